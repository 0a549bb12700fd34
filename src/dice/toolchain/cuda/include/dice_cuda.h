// Prelude of host code in a split build: torch's tensor API, CUDA's runtime API, launches, bindings.
//
// A launch `k<<<grid, block, shared, stream>>>(arguments)` is rewritten to SIMT_LAUNCH, which notes the
// configuration and calls k: its host body is a stub that launches the kernel of that name from the
// extension's device code. CUDA's functions that take a kernel or a symbol are mapped to those of the
// extension.
#pragma once

#include <Python.h>

#include <cuda_runtime.h>

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

#include "simt/torch_names.h"
#include "simt/pack.h"
#include "simt_bind.h"

// What the linker adds to an extension (see link.py).
struct dice_entry {
  const void* handle;  // the kernel's host function, or the variable's host copy
  const char* name;    // its name in the device code
};
struct dice_extension {
  const void* image;
  const dice_entry* kernels;
  const dice_entry* variables;
  void* library;
};
extern "C" __attribute__((visibility("hidden"))) dice_extension dice_this_extension;

// Defined in runtime/launch.cpp (libdice_cuda.so), once for all extensions of a process.
extern "C" {
void dice_cuda_configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
void dice_cuda_launch(dice_extension* extension, const void* kernel, void** arguments);
const void* dice_cuda_kernel(dice_extension* extension, const void* kernel);
void* dice_cuda_variable(dice_extension* extension, const void* variable, size_t* size);
cudaError_t dice_cuda_launch_direct(dice_extension* extension, const void* kernel, dim3 grid, dim3 block,
                                    void** arguments, size_t shared, cudaStream_t stream, int cooperative);
}

// nvcc declares these for host code too.
#define DICE_MIN_MAX(type) \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
DICE_MIN_MAX(int)
DICE_MIN_MAX(unsigned int)
DICE_MIN_MAX(long)
DICE_MIN_MAX(unsigned long)
DICE_MIN_MAX(long long)
DICE_MIN_MAX(unsigned long long)
DICE_MIN_MAX(float)
DICE_MIN_MAX(double)
#undef DICE_MIN_MAX

namespace dice {

// A parameter's type without const and __restrict__, which are no part of a function's type.
template <class T>
struct Parameter {
  using type = std::remove_cv_t<T>;
};
template <class T>
struct Parameter<T* __restrict__> {
  using type = T*;
};
template <class T>
struct Parameter<T* const __restrict__> {
  using type = T*;
};
template <class T>
using parameter_t = typename Parameter<T>::type;

inline void configure(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) {
  dice_cuda_configure(grid, block, shared, stream);
}
inline void launch(const void* kernel, void** arguments) {
  dice_cuda_launch(&dice_this_extension, kernel, arguments);
}
template <class F>
const void* kernel(F* function) {
  return dice_cuda_kernel(&dice_this_extension, (const void*)function);
}
template <class T>
void* variable(const T& symbol) {
  return dice_cuda_variable(&dice_this_extension, (const void*)&symbol, nullptr);
}
template <class T>
cudaError_t address_of(void** pointer, const T& symbol) {
  *pointer = variable(symbol);
  return *pointer ? cudaSuccess : cudaErrorInvalidSymbol;
}
template <class T>
cudaError_t copy_to(const T& symbol, const void* from, size_t count, size_t offset = 0,
                    cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  void* to = variable(symbol);
  return to ? cudaMemcpy((char*)to + offset, from, count, kind) : cudaErrorInvalidSymbol;
}
template <class T>
cudaError_t copy_to_async(const T& symbol, const void* from, size_t count, size_t offset = 0,
                          cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = nullptr) {
  void* to = variable(symbol);
  return to ? cudaMemcpyAsync((char*)to + offset, from, count, kind, stream) : cudaErrorInvalidSymbol;
}
template <class T>
cudaError_t copy_from(void* to, const T& symbol, size_t count, size_t offset = 0,
                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  void* from = variable(symbol);
  return from ? cudaMemcpy(to, (char*)from + offset, count, kind) : cudaErrorInvalidSymbol;
}
template <class F>
cudaError_t launch_kernel(F* function, dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                          cudaStream_t stream = nullptr, int cooperative = 0) {
  return dice_cuda_launch_direct(&dice_this_extension, (const void*)function, grid, block, arguments, shared,
                                 stream, cooperative);
}
template <class F>
cudaError_t launch_cooperative(F* function, dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                               cudaStream_t stream = nullptr) {
  return launch_kernel(function, grid, block, arguments, shared, stream, 1);
}
template <class F, class... A>
cudaError_t set_attribute(F* function, A... rest) {
  return ::cudaFuncSetAttribute(kernel(function), rest...);
}
template <class F, class... A>
cudaError_t set_cache_config(F* function, A... rest) {
  return ::cudaFuncSetCacheConfig(kernel(function), rest...);
}
template <class F>
cudaError_t get_attributes(cudaFuncAttributes* out, F* function) {
  return ::cudaFuncGetAttributes(out, kernel(function));
}
template <class F>
cudaError_t occupancy(int* count, F* function, int block, size_t shared) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(count, kernel(function), block, shared);
}

}  // namespace dice

#define SIMT_LAUNCH(kernel, config, ...) (::dice::configure config, kernel(__VA_ARGS__))

#define cudaMemcpyToSymbol ::dice::copy_to
#define cudaMemcpyToSymbolAsync ::dice::copy_to_async
#define cudaMemcpyFromSymbol ::dice::copy_from
#define cudaGetSymbolAddress(pointer, symbol) ::dice::address_of((void**)(pointer), symbol)
#define cudaLaunchKernel ::dice::launch_kernel
#define cudaLaunchCooperativeKernel ::dice::launch_cooperative
#define cudaFuncSetAttribute ::dice::set_attribute
#define cudaFuncSetCacheConfig ::dice::set_cache_config
#define cudaFuncGetAttributes ::dice::get_attributes
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor ::dice::occupancy
