// Where the running thread is: threadIdx and friends, and the runtime's entry points.
//
// Everything declared here is defined in runtime/*.cpp (libdice_simt.so).
#pragma once

#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "vector_types.h"

namespace simt {

// What the host sees when a launch is aborted: thrown by the launch, on the host's own stack.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Block;

struct Context {
  uint3 thread_index;
  uint3 block_index;
  dim3 block_dim;
  dim3 grid_dim;
  Block* block;      // null outside a kernel
  uint32_t thread;   // linear index in the thread block
  uint64_t unset;    // what an uninitialised variable holds in this launch
};

extern __attribute__((tls_model("initial-exec"))) thread_local constinit Context context;

// The value of a local variable without one: a huge number, positive in some launches and negative in
// others, so that a minimum or maximum that nobody started comes out wrong in one of them.
struct Unset {
  template <class T>
    requires std::is_arithmetic_v<T>
  operator T() const {
    if constexpr (std::is_same_v<T, bool>) {
      return context.unset >> 63;
    } else if constexpr (sizeof(T) == 8) {
      return std::bit_cast<T>(context.unset);
    } else if constexpr (sizeof(T) == 4) {
      return std::bit_cast<T>(static_cast<uint32_t>(context.unset));
    } else {
      return static_cast<T>(context.unset);
    }
  }
};

// --- barriers and warp collectives (runtime/scheduler.cpp, runtime/collectives.cpp) ---
void barrier(int line);
// Adds `predicate` up over the thread block; `*total` is the number of threads that took part.
int barrier_count(int predicate, int line, int* total);
// Every lane of `mask` deposits `value` (`size` <= 16 bytes) and takes lane `source`'s, or keeps
// its own when `source` is negative.
void exchange(uint32_t mask, void* value, size_t size, int source);
uint32_t vote(uint32_t mask, bool predicate);
uint32_t live_lanes();

// --- shared memory (runtime/shared_memory.cpp) ---
// One variable per key and thread block; `name` is for diagnostics and may be null.
void* shared_var(const void* key, size_t size, size_t align, const char* name = nullptr);
void* dyn_shared();

// --- ends of a thread that are errors (runtime/scheduler.cpp) ---
[[noreturn]] void abort_kernel(const char* kind, const std::string& message);
[[noreturn]] void assert_failed(const char* expression, const char* file, int line);

// --- memory (runtime/memory_map.cpp, runtime/shadow.cpp) ---
void* device_alloc(size_t size);
bool device_free(void* pointer);
// Tells the checks that the host passes this memory, fully initialised, to a kernel.
void note_host_memory(const void* pointer, size_t size);
// Tells the checks about an atomic access, which code outside the instrumentation performs.
void note_atomic(void* pointer, size_t size, bool reads_old_value);
void fence();

// --- pending CUDA errors (runtime/launch.cpp) ---
int take_error(bool clear);
void set_error(int code);
void allow_dynamic_shared(size_t size);

}  // namespace simt

#define threadIdx (::simt::context.thread_index)
#define blockIdx (::simt::context.block_index)
#define blockDim (::simt::context.block_dim)
#define gridDim (::simt::context.grid_dim)
static constexpr int warpSize = 32;

#define __trap() ::simt::abort_kernel("trap", "__trap() was called")
#define __brkpt() ::simt::abort_kernel("trap", "__brkpt() was called")
