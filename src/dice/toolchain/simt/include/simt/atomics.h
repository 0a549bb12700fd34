// atomicAdd and its relatives, on global and shared memory, for every type of 2, 4 or 8 bytes.
#pragma once

#include "context.h"

namespace simt {

template <size_t Size>
struct UnsignedOfSize;
template <>
struct UnsignedOfSize<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOfSize<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOfSize<8> {
  using type = uint64_t;
};

// Replaces *address by update(*address) atomically and returns the old value.
template <class T, class Update>
SIMT_UNINSTRUMENTED inline T atomic_update(T* address, Update update, bool reads = true) {
  using Bits = typename UnsignedOfSize<sizeof(T)>::type;
#if SIMT_CHECKED_BUILD
  note_atomic((void*)address, sizeof(T), reads);
#endif
  Bits* word = (Bits*)address;
  Bits old_bits = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    T old_value;
    memcpy((void*)&old_value, &old_bits, sizeof(T));
    T new_value = update(old_value);
    Bits new_bits;
    memcpy(&new_bits, (const void*)&new_value, sizeof(T));
    if (__atomic_compare_exchange_n(word, &old_bits, new_bits, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      return old_value;
    }
  }
}

}  // namespace simt

// The operand converts to the type of the address, as CUDA's overloads make it.
#define SIMT_ATOMIC(Name, Expression, Reads)                                         \
  template <class T>                                                                 \
  inline T Name(T* address, std::type_identity_t<T> value) {                         \
    return ::simt::atomic_update(                                                    \
        address, [=](T old) -> T { return Expression; }, Reads);                     \
  }                                                                                  \
  template <class T>                                                                 \
  inline T Name##_block(T* address, std::type_identity_t<T> value) {                 \
    return Name(address, value);                                                     \
  }                                                                                  \
  template <class T>                                                                 \
  inline T Name##_system(T* address, std::type_identity_t<T> value) {                \
    return Name(address, value);                                                     \
  }

SIMT_ATOMIC(atomicAdd, T(old + value), true)
SIMT_ATOMIC(atomicSub, T(old - value), true)
SIMT_ATOMIC(atomicMax, old > value ? old : value, true)
SIMT_ATOMIC(atomicMin, old < value ? old : value, true)
SIMT_ATOMIC(atomicAnd, T(old & value), true)
SIMT_ATOMIC(atomicOr, T(old | value), true)
SIMT_ATOMIC(atomicXor, T(old ^ value), true)
SIMT_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1), true)
SIMT_ATOMIC(atomicDec, (old == 0 || old > value) ? T(value) : T(old - 1), true)
SIMT_ATOMIC(atomicExch, value, false)
#undef SIMT_ATOMIC

template <class T>
inline T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return ::simt::atomic_update(address, [=](T old) -> T {
    return memcmp((const void*)&old, (const void*)&compare, sizeof(T)) == 0 ? value : old;
  });
}

template <class T>
inline T atomicCAS_block(T* address, std::type_identity_t<T> compare,
                         std::type_identity_t<T> value) {
  return atomicCAS(address, compare, value);
}

template <class T>
inline T atomicCAS_system(T* address, std::type_identity_t<T> compare,
                          std::type_identity_t<T> value) {
  return atomicCAS(address, compare, value);
}
