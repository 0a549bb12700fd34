// The block- and warp-wide primitives of CUB that generated kernels use.
//
// Order of evaluation is linear rather than a tree; results of floating-point sums differ in the
// last digits, as they do between GPUs. Device-wide algorithms are not covered.
#pragma once

#include "warp.h"

namespace cub {

struct Sum {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return a > b ? a : b;
  }
};
struct Min {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return a < b ? a : b;
  }
};

template <class Key, class Value>
struct KeyValuePair {
  Key key;
  Value value;
};

struct ArgMax {
  template <class Pair>
  Pair operator()(const Pair& a, const Pair& b) const {
    bool take_b = b.value > a.value || (b.value == a.value && b.key < a.key);
    return take_b ? b : a;
  }
};
struct ArgMin {
  template <class Pair>
  Pair operator()(const Pair& a, const Pair& b) const {
    bool take_b = b.value < a.value || (b.value == a.value && b.key < a.key);
    return take_b ? b : a;
  }
};

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

// Only thread 0's result is defined, as in CUB.
template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1>
class BlockReduce {
 public:
  struct TempStorage {
    T values[X * Y * Z];
  };

  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  template <class Combine>
  T Reduce(T value, Combine combine, int valid = X * Y * Z) {
    int rank = ::simt::context.thread;
    storage_.values[rank] = value;
    ::simt::barrier(0);
    T result = value;
    if (rank == 0) {
      for (int k = 1; k < valid; k++) {
        result = combine(result, storage_.values[k]);
      }
    }
    ::simt::barrier(0);
    return result;
  }

  template <int Items, class Combine>
  T Reduce(T (&values)[Items], Combine combine) {
    T own = values[0];
    for (int k = 1; k < Items; k++) {
      own = combine(own, values[k]);
    }
    return Reduce(own, combine);
  }

  T Sum(T value, int valid = X * Y * Z) { return Reduce(value, cub::Sum(), valid); }

 private:
  TempStorage& storage_;
};

template <class T, int Width = 32>
class WarpReduce {
 public:
  struct TempStorage {
    char unused;
  };

  explicit WarpReduce(TempStorage&) {}

  template <class Combine>
  T Reduce(T value, Combine combine) {
    for (int delta = Width / 2; delta > 0; delta /= 2) {
      T other = __shfl_down_sync(~0u, value, delta, Width);
      value = combine(value, other);
    }
    return value;
  }

  T Sum(T value) { return Reduce(value, cub::Sum()); }
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1>
class BlockScan {
 public:
  struct TempStorage {
    T values[X * Y * Z];
  };

  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  void InclusiveSum(T value, T& result) { InclusiveScan(value, result, cub::Sum()); }
  void InclusiveSum(T value, T& result, T& total) {
    InclusiveScan(value, result, cub::Sum(), total);
  }
  void ExclusiveSum(T value, T& result) { ExclusiveScan(value, result, T(0), cub::Sum()); }
  void ExclusiveSum(T value, T& result, T& total) {
    ExclusiveScan(value, result, T(0), cub::Sum(), total);
  }

  template <class Combine>
  void InclusiveScan(T value, T& result, Combine combine) {
    T total;
    InclusiveScan(value, result, combine, total);
  }
  template <class Combine>
  void InclusiveScan(T value, T& result, Combine combine, T& total) {
    publish(value);
    result = fold(::simt::context.thread + 1, combine);
    total = fold(X * Y * Z, combine);
    ::simt::barrier(0);
  }

  template <class Combine>
  void ExclusiveScan(T value, T& result, T initial, Combine combine) {
    T total;
    ExclusiveScan(value, result, initial, combine, total);
  }
  template <class Combine>
  void ExclusiveScan(T value, T& result, T initial, Combine combine, T& total) {
    publish(value);
    int rank = ::simt::context.thread;
    result = rank == 0 ? initial : combine(initial, fold(rank, combine));
    total = fold(X * Y * Z, combine);
    ::simt::barrier(0);
  }

 private:
  void publish(T value) {
    storage_.values[::simt::context.thread] = value;
    ::simt::barrier(0);
  }

  template <class Combine>
  T fold(int count, Combine combine) {
    T result = storage_.values[0];
    for (int k = 1; k < count; k++) {
      result = combine(result, storage_.values[k]);
    }
    return result;
  }

  TempStorage& storage_;
};

template <class T, int Width = 32>
class WarpScan {
 public:
  struct TempStorage {
    char unused;
  };

  explicit WarpScan(TempStorage&) {}

  void InclusiveSum(T value, T& result) {
    for (int delta = 1; delta < Width; delta *= 2) {
      T other = __shfl_up_sync(~0u, value, delta, Width);
      value = (::simt::lane() & (Width - 1)) >= delta ? value + other : value;
    }
    result = value;
  }
  void ExclusiveSum(T value, T& result) {
    T inclusive;
    InclusiveSum(value, inclusive);
    result = inclusive - value;
  }
};

}  // namespace cub
