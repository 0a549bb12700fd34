// Barriers, warp shuffles, votes and reductions.
#pragma once

#include <atomic>
#include <chrono>

#include "context.h"

inline void __syncthreads(int line = __builtin_LINE()) {
  ::simt::barrier(line);
}

inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  int total;
  return ::simt::barrier_count(predicate, line, &total);
}

inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  int total;
  return ::simt::barrier_count(predicate, line, &total) > 0;
}

inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  int total;
  int holds = ::simt::barrier_count(predicate, line, &total);
  return holds == total;
}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  ::simt::vote(mask, false);
}

inline void __threadfence() {
  ::simt::fence();
}

inline void __threadfence_system() {
  ::simt::fence();
}

inline void __threadfence_block() {}

inline void __nanosleep(unsigned) {}

inline long long clock64() {
  return static_cast<long long>(__builtin_ia32_rdtsc());
}

namespace simt {

inline int lane() {
  return static_cast<int>(context.thread & 31);
}

template <class T>
SIMT_UNINSTRUMENTED inline T take_from_lane(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 16, "a warp shuffle moves at most 16 bytes");
  exchange(mask, &value, sizeof(T), source);
  return value;
}

// Reduces over the lanes of `mask`, every one of which gets the result.
template <class T, class Combine>
inline T reduce_lanes(unsigned mask, T value, Combine combine) {
  T result{};
  bool first = true;
  for (int source = 0; source < 32; source++) {
    if (!(mask >> source & 1)) {
      continue;
    }
    T other = take_from_lane(mask, value, source);
    result = first ? other : combine(result, other);
    first = false;
  }
  return result;
}

constexpr int keep_own = -1;

}  // namespace simt

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  int base = ::simt::lane() & ~(width - 1);
  return ::simt::take_from_lane(mask, value, base | (source & (width - 1)));
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = ::simt::lane();
  bool inside = (lane & (width - 1)) >= static_cast<int>(delta);
  return ::simt::take_from_lane(mask, value, inside ? lane - int(delta) : ::simt::keep_own);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  int lane = ::simt::lane();
  bool inside = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return ::simt::take_from_lane(mask, value, inside ? lane + int(delta) : ::simt::keep_own);
}

// A lane may read from its own and from earlier groups of `width` lanes, not from later ones.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  int lane = ::simt::lane();
  int source = lane ^ lane_mask;
  bool inside = source < 32 && source / width <= lane / width;
  return ::simt::take_from_lane(mask, value, inside ? source : ::simt::keep_own);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return ::simt::vote(mask, predicate != 0);
}

inline int __any_sync(unsigned mask, int predicate) {
  return ::simt::vote(mask, predicate != 0) != 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  return ::simt::vote(mask, predicate == 0) == 0;
}

inline unsigned __activemask() {
  return ::simt::live_lanes();
}

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  unsigned same = 0;
  for (int source = 0; source < 32; source++) {
    if (!(mask >> source & 1)) {
      continue;
    }
    T other = ::simt::take_from_lane(mask, value, source);
    same |= static_cast<unsigned>(other == value) << source;
  }
  return same;
}

template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
  unsigned same = __match_any_sync(mask, value);
  *predicate = __all_sync(mask, same == mask);
  return *predicate ? mask : 0;
}

template <class T>
inline T __reduce_add_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return T(a + b); });
}

template <class T>
inline T __reduce_min_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return a < b ? a : b; });
}

template <class T>
inline T __reduce_max_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return a > b ? a : b; });
}

template <class T>
inline T __reduce_and_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return T(a & b); });
}

template <class T>
inline T __reduce_or_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return T(a | b); });
}

template <class T>
inline T __reduce_xor_sync(unsigned mask, T value) {
  return ::simt::reduce_lanes(mask, value, [](T a, T b) { return T(a ^ b); });
}
