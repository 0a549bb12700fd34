// cooperative_groups: thread blocks, tiles of a warp, coalesced groups, and reductions over them.
//
// Not covered: grid and cluster groups, memcpy_async, tiles larger than a warp.
#pragma once

#include "warp.h"

namespace cooperative_groups {

struct thread_block {
  static unsigned thread_rank() { return ::simt::context.thread; }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static void sync() { ::simt::barrier(0); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() {
  return {};
}

// What tiles and coalesced groups share: a set of lanes of one warp.
template <class Group>
struct LaneOperations {
  void sync() const { __syncwarp(mask()); }
  bool any(int predicate) const { return __any_sync(mask(), predicate); }
  bool all(int predicate) const { return __all_sync(mask(), predicate); }

 private:
  unsigned mask() const { return static_cast<const Group*>(this)->lane_mask(); }
};

template <unsigned Size, class Parent = void>
struct thread_block_tile : LaneOperations<thread_block_tile<Size, Parent>> {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "tiles larger than a warp are not covered");

  static unsigned thread_rank() { return ::simt::context.thread & (Size - 1); }
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned meta_group_rank() { return ::simt::context.thread / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
  static unsigned first_lane() { return (::simt::context.thread & 31) / Size * Size; }
  static unsigned lane_mask() {
    unsigned ones = Size == 32 ? ~0u : (1u << (Size & 31)) - 1;
    return ones << first_lane();
  }

  template <class T>
  T shfl(T value, int source) const {
    return __shfl_sync(lane_mask(), value, source, Size);
  }
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    return __shfl_up_sync(lane_mask(), value, delta, Size);
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return __shfl_down_sync(lane_mask(), value, delta, Size);
  }
  template <class T>
  T shfl_xor(T value, unsigned lane_bits) const {
    return __shfl_xor_sync(lane_mask(), value, lane_bits, Size);
  }
  unsigned ballot(int predicate) const {
    return __ballot_sync(lane_mask(), predicate) >> first_lane();
  }
};

// The live lanes of a warp at the place of the call, or a subset of them.
struct coalesced_group : LaneOperations<coalesced_group> {
  unsigned lanes;

  explicit coalesced_group(unsigned lanes_) : lanes(lanes_) {}

  unsigned lane_mask() const { return lanes; }
  unsigned size() const { return __builtin_popcount(lanes); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    return __builtin_popcount(lanes & ((1u << ::simt::lane()) - 1));
  }
  int lane_of(unsigned rank) const {
    for (int lane = 0; lane < 32; lane++) {
      if ((lanes >> lane & 1) && rank-- == 0) {
        return lane;
      }
    }
    return ::simt::keep_own;
  }
  template <class T>
  T shfl(T value, int rank) const {
    return ::simt::take_from_lane(lanes, value, lane_of(rank));
  }
  template <class T>
  T shfl_down(T value, unsigned delta) const {
    return ::simt::take_from_lane(lanes, value, lane_of(thread_rank() + delta));
  }
  template <class T>
  T shfl_up(T value, unsigned delta) const {
    unsigned rank = thread_rank();
    return ::simt::take_from_lane(lanes, value,
                                  rank < delta ? ::simt::keep_own : lane_of(rank - delta));
  }
  unsigned ballot(int predicate) const {
    unsigned by_lane = __ballot_sync(lanes, predicate);
    unsigned by_rank = 0;
    for (unsigned rank = 0; rank < size(); rank++) {
      by_rank |= (by_lane >> lane_of(rank) & 1) << rank;
    }
    return by_rank;
  }
};

inline coalesced_group coalesced_threads() {
  return coalesced_group(__activemask());
}

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate) {
  unsigned yes = __ballot_sync(group.lane_mask(), predicate);
  return coalesced_group(predicate ? yes : group.lane_mask() & ~yes);
}

template <class Group>
void sync(const Group& group) {
  group.sync();
}

template <class T = void>
struct plus {
  template <class U>
  U operator()(U a, U b) const {
    return a + b;
  }
};
template <class T = void>
struct greater {
  template <class U>
  U operator()(U a, U b) const {
    return a > b ? a : b;
  }
};
template <class T = void>
struct less {
  template <class U>
  U operator()(U a, U b) const {
    return a < b ? a : b;
  }
};
template <class T = void>
struct bit_and {
  template <class U>
  U operator()(U a, U b) const {
    return a & b;
  }
};
template <class T = void>
struct bit_or {
  template <class U>
  U operator()(U a, U b) const {
    return a | b;
  }
};
template <class T = void>
struct bit_xor {
  template <class U>
  U operator()(U a, U b) const {
    return a ^ b;
  }
};

template <unsigned Size, class Parent, class T, class Combine>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Combine combine) {
  for (unsigned bit = Size / 2; bit > 0; bit /= 2) {
    value = combine(value, tile.shfl_xor(value, bit));
  }
  return value;
}

template <class T, class Combine>
T reduce(const coalesced_group& group, T value, Combine combine) {
  return ::simt::reduce_lanes(group.lanes, value, combine);
}

template <unsigned Size, class Parent, class T, class Combine = plus<T>>
T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T value, Combine combine = {}) {
  for (unsigned delta = 1; delta < Size; delta *= 2) {
    T other = tile.shfl_up(value, delta);
    value = tile.thread_rank() >= delta ? combine(other, value) : value;
  }
  return value;
}

}  // namespace cooperative_groups
