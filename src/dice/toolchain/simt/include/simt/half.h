// __half, __half2, __nv_bfloat16 and __nv_bfloat162 with their arithmetic and intrinsics.
//
// The scalar types are torch's own, so that a reinterpret_cast between the two is the identity.
// Arithmetic goes through float and rounds once per operation, as the hardware's does.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "math.h"
#include "vector_types.h"

using __half = c10::Half;
using half = c10::Half;
using __nv_bfloat16 = c10::BFloat16;
using nv_bfloat16 = c10::BFloat16;

namespace simt {

// Two 16-bit floats side by side; x is the low one.
template <class Scalar>
struct alignas(4) Pair {
  Scalar x, y;

  Pair() = default;
  Pair(Scalar x_, Scalar y_) : x(x_), y(y_) {}

  friend Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }
  friend Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }
  friend Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }
  friend Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }
  friend Pair operator-(Pair a) { return {-a.x, -a.y}; }
  Pair& operator+=(Pair b) { return *this = *this + b; }
  Pair& operator-=(Pair b) { return *this = *this - b; }
  Pair& operator*=(Pair b) { return *this = *this * b; }
  friend bool operator==(Pair a, Pair b) { return a.x == b.x && a.y == b.y; }
};

template <class Scalar>
inline Scalar round_to(float x) {
  return Scalar(x);
}

template <class Scalar>
inline Scalar multiply_add(Scalar a, Scalar b, Scalar c) {
  return Scalar(fmaf(float(a), float(b), float(c)));
}

}  // namespace simt

using __half2 = ::simt::Pair<__half>;
using half2 = __half2;
using __nv_bfloat162 = ::simt::Pair<__nv_bfloat16>;
using nv_bfloat162 = __nv_bfloat162;

// --- conversions: half ---
inline float __half2float(__half h) { return float(h); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __float2half_rz(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(float(x)); }
inline __half __int2half_rn(int x) { return __half(float(x)); }
inline __half __uint2half_rn(unsigned x) { return __half(float(x)); }
inline int __half2int_rn(__half h) { return __float2int_rn(float(h)); }
inline int __half2int_rz(__half h) { return __float2int_rz(float(h)); }
inline unsigned short __half_as_ushort(__half h) { return h.x; }
inline short __half_as_short(__half h) { return short(h.x); }
inline __half __ushort_as_half(unsigned short bits) { return __half(bits, __half::from_bits()); }
inline __half __short_as_half(short bits) { return __ushort_as_half((unsigned short)bits); }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
inline __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
inline __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }

// --- conversions: bfloat16 ---
inline float __bfloat162float(__nv_bfloat16 h) { return float(h); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(float(x)); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(float(x)); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(bits, __nv_bfloat16::from_bits());
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) {
  return {__nv_bfloat16(a), __nv_bfloat16(a)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) {
  return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {float(v.x), float(v.y)}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }

// --- what both kinds share: each line declares the scalar and the pairwise form ---
#define SIMT_HALF_BINARY(Scalar, Vector, Name, Expression)         \
  inline Scalar Name(Scalar a, Scalar b) { return Expression; }    \
  inline Vector Name##2(Vector v, Vector w) {                      \
    return {Name(v.x, w.x), Name(v.y, w.y)};                       \
  }
#define SIMT_HALF_COMPARE(Scalar, Vector, Name, Operator)                          \
  inline bool Name(Scalar a, Scalar b) { return float(a) Operator float(b); }      \
  inline Vector Name##2(Vector v, Vector w) {                                      \
    return {Scalar(float(Name(v.x, w.x))), Scalar(float(Name(v.y, w.y)))};         \
  }

#define SIMT_HALF_INTRINSICS(Scalar, Vector)                                                  \
  SIMT_HALF_BINARY(Scalar, Vector, __hadd, a + b)                                             \
  SIMT_HALF_BINARY(Scalar, Vector, __hsub, a - b)                                             \
  SIMT_HALF_BINARY(Scalar, Vector, __hmul, a * b)                                             \
  SIMT_HALF_BINARY(Scalar, Vector, __hadd_rn, a + b)                                          \
  SIMT_HALF_BINARY(Scalar, Vector, __hsub_rn, a - b)                                          \
  SIMT_HALF_BINARY(Scalar, Vector, __hmul_rn, a * b)                                          \
  SIMT_HALF_BINARY(Scalar, Vector, __hdiv, a / b)                                             \
  SIMT_HALF_BINARY(Scalar, Vector, __hmax, Scalar(fmaxf(float(a), float(b))))                 \
  SIMT_HALF_BINARY(Scalar, Vector, __hmin, Scalar(fminf(float(a), float(b))))                 \
  SIMT_HALF_COMPARE(Scalar, Vector, __heq, ==)                                                \
  SIMT_HALF_COMPARE(Scalar, Vector, __hne, !=)                                                \
  SIMT_HALF_COMPARE(Scalar, Vector, __hlt, <)                                                 \
  SIMT_HALF_COMPARE(Scalar, Vector, __hle, <=)                                                \
  SIMT_HALF_COMPARE(Scalar, Vector, __hgt, >)                                                 \
  SIMT_HALF_COMPARE(Scalar, Vector, __hge, >=)                                                \
  inline Scalar __hfma(Scalar a, Scalar b, Scalar c) {                                        \
    return ::simt::multiply_add(a, b, c);                                                     \
  }                                                                                           \
  inline Vector __hfma2(Vector a, Vector b, Vector c) {                                       \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                    \
  }                                                                                           \
  inline Scalar __hfma_relu(Scalar a, Scalar b, Scalar c) {                                   \
    return Scalar(fmaxf(float(__hfma(a, b, c)), 0.0f));                                       \
  }                                                                                           \
  inline Scalar __hneg(Scalar a) { return -a; }                                               \
  inline Vector __hneg2(Vector v) { return -v; }                                              \
  inline Vector __h2div(Vector v, Vector w) { return v / w; }                                 \
  inline Scalar __habs(Scalar a) { return Scalar(fabsf(float(a))); }                          \
  inline Vector __habs2(Vector v) { return {__habs(v.x), __habs(v.y)}; }                      \
  inline bool __hisnan(Scalar a) { return std::isnan(float(a)); }                             \
  inline int __hisinf(Scalar a) {                                                             \
    return std::isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0;                                \
  }                                                                                           \
  inline Scalar hexp(Scalar a) { return Scalar(expf(float(a))); }                             \
  inline Scalar hexp2(Scalar a) { return Scalar(exp2f(float(a))); }                           \
  inline Scalar hlog(Scalar a) { return Scalar(logf(float(a))); }                             \
  inline Scalar hlog2(Scalar a) { return Scalar(log2f(float(a))); }                           \
  inline Scalar hsqrt(Scalar a) { return Scalar(sqrtf(float(a))); }                           \
  inline Scalar hrsqrt(Scalar a) { return Scalar(rsqrtf(float(a))); }                         \
  inline Scalar hrcp(Scalar a) { return Scalar(1.0f / float(a)); }                            \
  inline Scalar hsin(Scalar a) { return Scalar(sinf(float(a))); }                             \
  inline Scalar hcos(Scalar a) { return Scalar(cosf(float(a))); }                             \
  inline Scalar htanh(Scalar a) { return Scalar(tanhf(float(a))); }                           \
  inline Scalar hfloor(Scalar a) { return Scalar(floorf(float(a))); }                         \
  inline Scalar hceil(Scalar a) { return Scalar(ceilf(float(a))); }                           \
  inline Vector h2exp(Vector v) { return {hexp(v.x), hexp(v.y)}; }                            \
  inline Vector h2log(Vector v) { return {hlog(v.x), hlog(v.y)}; }                            \
  inline Vector h2sqrt(Vector v) { return {hsqrt(v.x), hsqrt(v.y)}; }                         \
  inline Vector h2rsqrt(Vector v) { return {hrsqrt(v.x), hrsqrt(v.y)}; }                      \
  inline Vector h2rcp(Vector v) { return {hrcp(v.x), hrcp(v.y)}; }                            \
  inline Vector h2tanh(Vector v) { return {htanh(v.x), htanh(v.y)}; }                         \
  inline float __low2float(Vector v) { return float(v.x); }                                   \
  inline float __high2float(Vector v) { return float(v.y); }                                  \
  inline bool __hbeq2(Vector v, Vector w) { return v == w; }

SIMT_HALF_INTRINSICS(__half, __half2)
SIMT_HALF_INTRINSICS(__nv_bfloat16, __nv_bfloat162)
#undef SIMT_HALF_INTRINSICS
#undef SIMT_HALF_COMPARE
#undef SIMT_HALF_BINARY
