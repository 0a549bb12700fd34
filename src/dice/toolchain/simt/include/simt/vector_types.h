// CUDA's built-in vector types (float4, int2, dim3, ...) and their make_* functions.
#pragma once

#include "qualifiers.h"

#define SIMT_VECTOR_1_2_4(Scalar, Name, Align2, Align4)             \
  struct Name##1 {                                                  \
    Scalar x;                                                       \
  };                                                                \
  struct alignas(Align2) Name##2 {                                  \
    Scalar x, y;                                                    \
  };                                                                \
  struct alignas(Align4) Name##4 {                                  \
    Scalar x, y, z, w;                                              \
  };                                                                \
  inline Name##1 make_##Name##1(Scalar x) {                         \
    return {x};                                                     \
  }                                                                 \
  inline Name##2 make_##Name##2(Scalar x, Scalar y) {               \
    return {x, y};                                                  \
  }                                                                 \
  inline Name##4 make_##Name##4(Scalar x, Scalar y, Scalar z, Scalar w) { \
    return {x, y, z, w};                                            \
  }

#define SIMT_VECTOR_3(Scalar, Name)                                 \
  struct Name##3 {                                                  \
    Scalar x, y, z;                                                 \
  };                                                                \
  inline Name##3 make_##Name##3(Scalar x, Scalar y, Scalar z) {     \
    return {x, y, z};                                               \
  }

#define SIMT_VECTOR(Scalar, Name, Align2, Align4)  \
  SIMT_VECTOR_1_2_4(Scalar, Name, Align2, Align4)  \
  SIMT_VECTOR_3(Scalar, Name)

SIMT_VECTOR(signed char, char, 2, 4)
SIMT_VECTOR(unsigned char, uchar, 2, 4)
SIMT_VECTOR(short, short, 4, 8)
SIMT_VECTOR(unsigned short, ushort, 4, 8)
SIMT_VECTOR(int, int, 8, 16)
SIMT_VECTOR(unsigned, uint, 8, 16)
SIMT_VECTOR(long, long, 16, 16)
SIMT_VECTOR(unsigned long, ulong, 16, 16)
SIMT_VECTOR(long long, longlong, 16, 16)
SIMT_VECTOR(unsigned long long, ulonglong, 16, 16)
SIMT_VECTOR(float, float, 8, 16)
SIMT_VECTOR(double, double, 16, 16)

#undef SIMT_VECTOR
#undef SIMT_VECTOR_3
#undef SIMT_VECTOR_1_2_4

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
