// CUDA's device math beyond <cmath>: fast intrinsics, rounding variants, conversions, bit casts.
//
// Fast intrinsics are computed at full precision here; a GPU is allowed 2 ulp and more.
#pragma once

#include <limits>

#include "qualifiers.h"

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// glibc declares __expf and its like as implementation details, so these have to be macros.
#define __expf ::expf
#define __exp2f ::exp2f
#define __exp10f(x) ::powf(10.0f, (x))
#define __logf ::logf
#define __log2f ::log2f
#define __log10f ::log10f
#define __sinf ::sinf
#define __cosf ::cosf
#define __tanf ::tanf
#define __tanhf ::tanhf
#define __powf ::powf

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / cbrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
inline float erfcxf(float x) { return static_cast<float>(exp(double(x) * x) * erfc(double(x))); }
inline float sinpif(float x) { return static_cast<float>(sin(double(x) * CUDART_PI)); }
inline float cospif(float x) { return static_cast<float>(cos(double(x) * CUDART_PI)); }
inline double sinpi(double x) { return sin(x * CUDART_PI); }
inline double cospi(double x) { return cos(x * CUDART_PI); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }

inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}

inline void sincospif(float x, float* sine, float* cosine) {
  *sine = sinpif(x);
  *cosine = cospif(x);
}

// --- arithmetic with a named rounding: every mode rounds to nearest here ---
#define SIMT_ROUNDINGS(Suffix)                                                        \
  inline float __fadd_##Suffix(float a, float b) { return a + b; }                    \
  inline float __fsub_##Suffix(float a, float b) { return a - b; }                    \
  inline float __fmul_##Suffix(float a, float b) { return a * b; }                    \
  inline float __fdiv_##Suffix(float a, float b) { return a / b; }                    \
  inline float __fmaf_##Suffix(float a, float b, float c) { return fmaf(a, b, c); }   \
  inline float __frcp_##Suffix(float a) { return 1.0f / a; }                          \
  inline float __fsqrt_##Suffix(float a) { return sqrtf(a); }                         \
  inline double __dadd_##Suffix(double a, double b) { return a + b; }                 \
  inline double __dsub_##Suffix(double a, double b) { return a - b; }                 \
  inline double __dmul_##Suffix(double a, double b) { return a * b; }                 \
  inline double __ddiv_##Suffix(double a, double b) { return a / b; }                 \
  inline double __fma_##Suffix(double a, double b, double c) { return fma(a, b, c); } \
  inline double __drcp_##Suffix(double a) { return 1.0 / a; }                         \
  inline double __dsqrt_##Suffix(double a) { return sqrt(a); }
SIMT_ROUNDINGS(rn)
SIMT_ROUNDINGS(rz)
SIMT_ROUNDINGS(ru)
SIMT_ROUNDINGS(rd)
#undef SIMT_ROUNDINGS

inline float __frsqrt_rn(float a) { return rsqrtf(a); }

// --- conversions ---
namespace simt {

// A float that does not fit saturates and NaN becomes 0, as the cvt instruction does.
template <class Integer, class Float>
inline Integer to_integer(Float x) {
  if (x != x) {
    return 0;
  }
  if (x <= static_cast<Float>(std::numeric_limits<Integer>::min())) {
    return std::numeric_limits<Integer>::min();
  }
  if (x >= static_cast<Float>(std::numeric_limits<Integer>::max())) {
    return std::numeric_limits<Integer>::max();
  }
  return static_cast<Integer>(x);
}

}  // namespace simt

#define SIMT_TO_INTEGER(Prefix, Float, Integer)                                               \
  inline Integer Prefix##_rn(Float x) { return ::simt::to_integer<Integer>(nearbyint(x)); }  \
  inline Integer Prefix##_rz(Float x) { return ::simt::to_integer<Integer>(trunc(x)); }      \
  inline Integer Prefix##_ru(Float x) { return ::simt::to_integer<Integer>(ceil(x)); }       \
  inline Integer Prefix##_rd(Float x) { return ::simt::to_integer<Integer>(floor(x)); }
SIMT_TO_INTEGER(__float2int, float, int)
SIMT_TO_INTEGER(__float2uint, float, unsigned)
SIMT_TO_INTEGER(__float2ll, float, long long)
SIMT_TO_INTEGER(__float2ull, float, unsigned long long)
SIMT_TO_INTEGER(__double2int, double, int)
SIMT_TO_INTEGER(__double2uint, double, unsigned)
SIMT_TO_INTEGER(__double2ll, double, long long)
#undef SIMT_TO_INTEGER

#define SIMT_FROM_INTEGER(Name, Integer, Float)                                \
  inline Float Name##_rn(Integer x) { return static_cast<Float>(x); }          \
  inline Float Name##_rz(Integer x) { return static_cast<Float>(x); }
SIMT_FROM_INTEGER(__int2float, int, float)
SIMT_FROM_INTEGER(__uint2float, unsigned, float)
SIMT_FROM_INTEGER(__ll2float, long long, float)
SIMT_FROM_INTEGER(__ull2float, unsigned long long, float)
SIMT_FROM_INTEGER(__ll2double, long long, double)
SIMT_FROM_INTEGER(__double2float, double, float)
#undef SIMT_FROM_INTEGER
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

// --- bit casts ---
#define SIMT_BIT_CAST(Name, From, To)     \
  inline To Name(From x) {                \
    static_assert(sizeof(From) == sizeof(To)); \
    return __builtin_bit_cast(To, x);     \
  }
SIMT_BIT_CAST(__float_as_int, float, int)
SIMT_BIT_CAST(__float_as_uint, float, unsigned)
SIMT_BIT_CAST(__int_as_float, int, float)
SIMT_BIT_CAST(__uint_as_float, unsigned, float)
SIMT_BIT_CAST(__double_as_longlong, double, long long)
SIMT_BIT_CAST(__longlong_as_double, long long, double)
#undef SIMT_BIT_CAST
inline int __double2loint(double x) { return int(__double_as_longlong(x) & 0xffffffffll); }
inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)high << 32 | unsigned(low));
}
