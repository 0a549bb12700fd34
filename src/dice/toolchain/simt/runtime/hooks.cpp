// The functions that g++ -fsanitize=thread calls at every load and store of a kernel. Sanitizer
// runtime there is none: these are all of it.
#include <cstring>

#include "shadow.h"

using simt::Access;
using simt::check_access;

extern "C" {

#define SIMT_ACCESS_HOOKS(Size)                                                                   \
  void __tsan_read##Size(void* p) { check_access((char*)p, Size, Access::read); }                 \
  void __tsan_write##Size(void* p) { check_access((char*)p, Size, Access::write); }               \
  void __tsan_unaligned_read##Size(void* p) { check_access((char*)p, Size, Access::read); }       \
  void __tsan_unaligned_write##Size(void* p) { check_access((char*)p, Size, Access::write); }     \
  void __tsan_volatile_read##Size(void* p) { check_access((char*)p, Size, Access::read); }        \
  void __tsan_volatile_write##Size(void* p) { check_access((char*)p, Size, Access::write); }      \
  void __tsan_unaligned_volatile_read##Size(void* p) { check_access((char*)p, Size, Access::read); } \
  void __tsan_unaligned_volatile_write##Size(void* p) {                                           \
    check_access((char*)p, Size, Access::write);                                                  \
  }
SIMT_ACCESS_HOOKS(1)
SIMT_ACCESS_HOOKS(2)
SIMT_ACCESS_HOOKS(4)
SIMT_ACCESS_HOOKS(8)
SIMT_ACCESS_HOOKS(16)

void __tsan_read_range(void* p, size_t size) {
  if (size > 0) {
    check_access((char*)p, size, Access::read);
  }
}
void __tsan_write_range(void* p, size_t size) {
  if (size > 0) {
    check_access((char*)p, size, Access::write);
  }
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_ignore_thread_begin() {}
void __tsan_ignore_thread_end() {}

// Atomic operations of the host code and of std::atomic in kernels.
#define SIMT_ATOMIC_HOOKS(Bits, T)                                                                \
  T __tsan_atomic##Bits##_load(const volatile T* p, int) { return __atomic_load_n(p, 5); }        \
  void __tsan_atomic##Bits##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, 5); }        \
  T __tsan_atomic##Bits##_exchange(volatile T* p, T v, int) { return __atomic_exchange_n(p, v, 5); } \
  T __tsan_atomic##Bits##_fetch_add(volatile T* p, T v, int) {                                    \
    return __atomic_fetch_add(p, v, 5);                                                           \
  }                                                                                               \
  T __tsan_atomic##Bits##_fetch_sub(volatile T* p, T v, int) {                                    \
    return __atomic_fetch_sub(p, v, 5);                                                           \
  }                                                                                               \
  T __tsan_atomic##Bits##_fetch_or(volatile T* p, T v, int) { return __atomic_fetch_or(p, v, 5); } \
  T __tsan_atomic##Bits##_fetch_and(volatile T* p, T v, int) {                                    \
    return __atomic_fetch_and(p, v, 5);                                                           \
  }                                                                                               \
  T __tsan_atomic##Bits##_fetch_xor(volatile T* p, T v, int) {                                    \
    return __atomic_fetch_xor(p, v, 5);                                                           \
  }                                                                                               \
  T __tsan_atomic##Bits##_fetch_nand(volatile T* p, T v, int) {                                   \
    return __atomic_fetch_nand(p, v, 5);                                                          \
  }                                                                                               \
  int __tsan_atomic##Bits##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {         \
    return __atomic_compare_exchange_n(p, c, v, false, 5, 5);                                     \
  }                                                                                               \
  int __tsan_atomic##Bits##_compare_exchange_weak(volatile T* p, T* c, T v, int, int) {           \
    return __atomic_compare_exchange_n(p, c, v, false, 5, 5);                                     \
  }                                                                                               \
  T __tsan_atomic##Bits##_compare_exchange_val(volatile T* p, T c, T v, int, int) {               \
    __atomic_compare_exchange_n(p, &c, v, false, 5, 5);                                           \
    return c;                                                                                     \
  }
SIMT_ATOMIC_HOOKS(8, uint8_t)
SIMT_ATOMIC_HOOKS(16, uint16_t)
SIMT_ATOMIC_HOOKS(32, uint32_t)
SIMT_ATOMIC_HOOKS(64, uint64_t)

void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) {}

// Library calls are not instrumented: link check builds with
// -Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove.
void* __wrap_memcpy(void* to, const void* from, size_t size) {
  __tsan_read_range(const_cast<void*>(from), size);
  __tsan_write_range(to, size);
  return memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, size_t size) {
  __tsan_read_range(const_cast<void*>(from), size);
  __tsan_write_range(to, size);
  return memmove(to, from, size);
}
void* __wrap_memset(void* to, int value, size_t size) {
  __tsan_write_range(to, size);
  return memset(to, value, size);
}

}  // extern "C"
