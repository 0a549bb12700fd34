// Integer intrinsics, and the min/max overloads that CUDA declares in the global namespace.
#pragma once

#include "qualifiers.h"

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long reversed = 0;
  for (int bit = 0; bit < 64; bit++) {
    reversed |= (x >> bit & 1) << (63 - bit);
  }
  return reversed;
}

inline unsigned __brev(unsigned x) { return unsigned(__brevll(x) >> 32); }

// The low 24 bits of each operand; __mul24 takes them as signed.
inline int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned((unsigned long long)a * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return (long long)((__int128)a * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
inline int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
inline unsigned __sad(int a, int b, unsigned c) {
  long long difference = (long long)a - b;
  return c + unsigned(difference < 0 ? -difference : difference);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  unsigned long long both = (unsigned long long)high << 32 | low;
  return unsigned(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  unsigned long long both = (unsigned long long)high << 32 | low;
  return unsigned(both >> (shift & 31));
}

// Picks four of the eight bytes of b:a, one selector nibble per byte (sign replication left out).
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned result = 0;
  for (int byte = 0; byte < 4; byte++) {
    unsigned from = selector >> (4 * byte) & 7;
    result |= unsigned(both >> (8 * from) & 0xff) << (8 * byte);
  }
  return result;
}

inline int __dp4a(int a, int b, int c) {
  for (int byte = 0; byte < 4; byte++) {
    c += int((signed char)(a >> (8 * byte))) * int((signed char)(b >> (8 * byte)));
  }
  return c;
}

// Non-template overloads, so that they win over std::min and std::max where both are visible.
#define SIMT_MIN_MAX(A, B)                             \
  inline std::common_type_t<A, B> max(A a, B b) {      \
    using Common = std::common_type_t<A, B>;           \
    return Common(a) > Common(b) ? Common(a) : Common(b); \
  }                                                    \
  inline std::common_type_t<A, B> min(A a, B b) {      \
    using Common = std::common_type_t<A, B>;           \
    return Common(a) < Common(b) ? Common(a) : Common(b); \
  }
#define SIMT_MIN_MAX_BOTH(A, B) \
  SIMT_MIN_MAX(A, B)            \
  SIMT_MIN_MAX(B, A)

SIMT_MIN_MAX(int, int)
SIMT_MIN_MAX(unsigned, unsigned)
SIMT_MIN_MAX(long, long)
SIMT_MIN_MAX(unsigned long, unsigned long)
SIMT_MIN_MAX(long long, long long)
SIMT_MIN_MAX(unsigned long long, unsigned long long)
SIMT_MIN_MAX_BOTH(int, unsigned)
SIMT_MIN_MAX_BOTH(int, long)
SIMT_MIN_MAX_BOTH(int, unsigned long)
SIMT_MIN_MAX_BOTH(int, long long)
SIMT_MIN_MAX_BOTH(int, unsigned long long)
SIMT_MIN_MAX_BOTH(unsigned, long)
SIMT_MIN_MAX_BOTH(unsigned, unsigned long)
SIMT_MIN_MAX_BOTH(unsigned, long long)
SIMT_MIN_MAX_BOTH(long, unsigned long)
SIMT_MIN_MAX_BOTH(long, long long)
SIMT_MIN_MAX_BOTH(unsigned long, unsigned long long)
#undef SIMT_MIN_MAX_BOTH
#undef SIMT_MIN_MAX

// Floating point ones drop a NaN operand, as fmin and fmax do.
#define SIMT_FLOAT_MIN_MAX(Result, A, B)                                          \
  inline Result max(A a, B b) { return std::fmax(Result(a), Result(b)); }         \
  inline Result min(A a, B b) { return std::fmin(Result(a), Result(b)); }
SIMT_FLOAT_MIN_MAX(float, float, float)
SIMT_FLOAT_MIN_MAX(float, float, int)
SIMT_FLOAT_MIN_MAX(float, int, float)
SIMT_FLOAT_MIN_MAX(double, double, double)
SIMT_FLOAT_MIN_MAX(double, float, double)
SIMT_FLOAT_MIN_MAX(double, double, float)
SIMT_FLOAT_MIN_MAX(double, double, int)
SIMT_FLOAT_MIN_MAX(double, int, double)
#undef SIMT_FLOAT_MIN_MAX

inline int umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline int umax(unsigned a, unsigned b) { return a > b ? a : b; }
