// What NVRTC lacks of the C and C++ standard headers, as far as device code uses it.
#pragma once

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;

#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-016
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SHRT_MAX 32767
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295U
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-LONG_MAX - 1)
#define LLONG_MAX 9223372036854775807LL
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ULL
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LONG_MAX
#define INT64_MIN LONG_MIN
#define UINT64_MAX 18446744073709551615UL
#define SIZE_MAX 18446744073709551615UL
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440

namespace std {

using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
typedef unsigned long size_t;

template <class T> __host__ __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class T> __host__ __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> __host__ __device__ constexpr void swap(T& a, T& b) { T c = a; a = b; b = c; }

template <class T> struct numeric_limits;
#define DICE_INTEGER_LIMITS(type, lowest_value, highest_value) \
  template <> struct numeric_limits<type> { \
    static constexpr bool is_integer = true; \
    __host__ __device__ static constexpr type lowest() { return lowest_value; } \
    __host__ __device__ static constexpr type min() { return lowest_value; } \
    __host__ __device__ static constexpr type max() { return highest_value; } \
  };
DICE_INTEGER_LIMITS(signed char, -128, 127)
DICE_INTEGER_LIMITS(unsigned char, 0, 255)
DICE_INTEGER_LIMITS(short, -32768, 32767)
DICE_INTEGER_LIMITS(unsigned short, 0, 65535)
DICE_INTEGER_LIMITS(int, INT_MIN, INT_MAX)
DICE_INTEGER_LIMITS(unsigned int, 0, UINT_MAX)
DICE_INTEGER_LIMITS(long, LONG_MIN, LONG_MAX)
DICE_INTEGER_LIMITS(unsigned long, 0, UINT64_MAX)
DICE_INTEGER_LIMITS(long long, LLONG_MIN, LLONG_MAX)
DICE_INTEGER_LIMITS(unsigned long long, 0, ULLONG_MAX)
#undef DICE_INTEGER_LIMITS
template <> struct numeric_limits<float> {
  static constexpr bool is_integer = false;
  __host__ __device__ static constexpr float lowest() { return -FLT_MAX; }
  __host__ __device__ static constexpr float min() { return FLT_MIN; }
  __host__ __device__ static constexpr float max() { return FLT_MAX; }
  __host__ __device__ static constexpr float epsilon() { return FLT_EPSILON; }
  __device__ static float infinity() { return __int_as_float(0x7f800000); }
  __device__ static float quiet_NaN() { return __int_as_float(0x7fffffff); }
};
template <> struct numeric_limits<double> {
  static constexpr bool is_integer = false;
  __host__ __device__ static constexpr double lowest() { return -DBL_MAX; }
  __host__ __device__ static constexpr double min() { return DBL_MIN; }
  __host__ __device__ static constexpr double max() { return DBL_MAX; }
  __host__ __device__ static constexpr double epsilon() { return DBL_EPSILON; }
  __device__ static double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }
  __device__ static double quiet_NaN() { return __longlong_as_double(0x7fffffffffffffffLL); }
};

template <class A, class B> struct is_same { static constexpr bool value = false; };
template <class A> struct is_same<A, A> { static constexpr bool value = true; };
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool C, class A, class B> struct conditional { using type = A; };
template <class A, class B> struct conditional<false, A, B> { using type = B; };
template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type;
template <bool C, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool C, class T = void> using enable_if_t = typename enable_if<C, T>::type;

#define DICE_MATH(name) \
  __device__ inline float name(float x) { return ::name##f(x); } \
  __device__ inline double name(double x) { return ::name(x); }
DICE_MATH(exp) DICE_MATH(exp2) DICE_MATH(expm1) DICE_MATH(log) DICE_MATH(log2) DICE_MATH(log10) DICE_MATH(log1p)
DICE_MATH(sqrt) DICE_MATH(cbrt) DICE_MATH(sin) DICE_MATH(cos) DICE_MATH(tan) DICE_MATH(asin) DICE_MATH(acos)
DICE_MATH(atan) DICE_MATH(sinh) DICE_MATH(cosh) DICE_MATH(tanh) DICE_MATH(erf) DICE_MATH(erfc) DICE_MATH(floor)
DICE_MATH(ceil) DICE_MATH(round) DICE_MATH(trunc) DICE_MATH(rint)
#undef DICE_MATH
__device__ inline float abs(float x) { return ::fabsf(x); }
__device__ inline double abs(double x) { return ::fabs(x); }
__device__ inline int abs(int x) { return ::abs(x); }
__device__ inline float fabs(float x) { return ::fabsf(x); }
__device__ inline double fabs(double x) { return ::fabs(x); }
__device__ inline float fmax(float x, float y) { return ::fmaxf(x, y); }
__device__ inline double fmax(double x, double y) { return ::fmax(x, y); }
__device__ inline float fmin(float x, float y) { return ::fminf(x, y); }
__device__ inline double fmin(double x, double y) { return ::fmin(x, y); }
__device__ inline float pow(float x, float y) { return ::powf(x, y); }
__device__ inline double pow(double x, double y) { return ::pow(x, y); }
__device__ inline float fmod(float x, float y) { return ::fmodf(x, y); }
__device__ inline double fmod(double x, double y) { return ::fmod(x, y); }
__device__ inline bool isnan(float x) { return x != x; }
__device__ inline bool isnan(double x) { return x != x; }
__device__ inline bool isinf(float x) { return ::fabsf(x) == INFINITY; }
__device__ inline bool isinf(double x) { return ::fabs(x) == INFINITY; }

}  // namespace std
