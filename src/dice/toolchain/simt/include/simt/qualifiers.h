// CUDA's function and variable qualifiers, as far as a host compiler has to know them.
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>  // before __noinline__ becomes a macro: libstdc++ spells an attribute so
#include <type_traits>
#include <utility>

#define DICE_SIMT 1
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define CUDARTAPI

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __noinline__ __attribute__((noinline))
// always_inline without `inline` does not link under -fPIC, so this one stays a hint.
#define __forceinline__ __attribute__((unused))
#define __align__(n) alignas(n)
#define __builtin_align__(n) alignas(n)
#undef __launch_bounds__
#define __launch_bounds__(...)
#define __maxnreg__(n)
#define __cluster_dims__(...)

#define CUDART_INF_F (__builtin_inff())
#define CUDART_INF (__builtin_inf())
#define CUDART_NAN_F (__builtin_nanf(""))
#define CUDART_NAN (__builtin_nan(""))
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define CUDART_PIO2_F 1.570796327f
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_MAX_NORMAL_F 3.402823466e38f
#define CUDART_MIN_DENORM_F 1.401298464e-45f

// Functions that must not be instrumented in check mode: they report their access themselves.
#if defined(__SANITIZE_THREAD__)
#define SIMT_CHECKED_BUILD 1
#define SIMT_UNINSTRUMENTED __attribute__((no_sanitize("thread"), noinline))
#else
#define SIMT_CHECKED_BUILD 0
#define SIMT_UNINSTRUMENTED
#endif
