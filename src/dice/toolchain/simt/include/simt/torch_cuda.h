// Stand-ins for the parts of ATen/cuda and c10/cuda that extensions use.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include "atomics.h"
#include "half.h"
#include "runtime_api.h"

namespace c10::cuda {

struct CUDAStream {
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
  void synchronize() const {}
  bool query() const { return true; }
  int device_index() const { return 0; }
};

inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(int = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, int = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

struct CUDAGuard {
  template <class Device>
  explicit CUDAGuard(const Device&) {}
  void set_index(int) {}
  void set_device(c10::Device) {}
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  template <class Device>
  explicit OptionalCUDAGuard(const Device&) {}
  void set_index(int) {}
  void set_device(c10::Device) {}
};
struct CUDAStreamGuard {
  template <class Stream>
  explicit CUDAStreamGuard(const Stream&) {}
};

inline int device_count() { return 1; }
inline int current_device() { return 0; }
inline void set_device(int) {}
inline void device_synchronize() {}
inline void stream_synchronize(cudaStream_t) {}

namespace CUDACachingAllocator {

inline c10::Allocator* get() { return c10::GetCPUAllocator(); }
inline void* raw_alloc(size_t size) { return ::simt::device_alloc(size); }
inline void raw_delete(void* pointer) { ::simt::device_free(pointer); }
inline void emptyCache() {}

}  // namespace CUDACachingAllocator
}  // namespace c10::cuda

namespace at::cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;

inline cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties;
  return &properties;
}
inline cudaDeviceProp* getDeviceProperties(int) { return getCurrentDeviceProperties(); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }

template <class A, class B>
inline A ATenCeilDiv(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace at::cuda


#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(expression)                                            \
  do {                                                                        \
    const cudaError_t simt_error = (expression);                              \
    TORCH_CHECK(simt_error == cudaSuccess,                                    \
                "CUDA error: ", cudaGetErrorString(simt_error));              \
  } while (0)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_CHECK_WARN(expression) C10_CUDA_CHECK(expression)
#define THCudaCheck(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define CUDA_KERNEL_LOOP_TYPE(i, n, Index)                                             \
  for (Index i = (Index)((int64_t)blockIdx.x * blockDim.x + threadIdx.x); i < (n);     \
       i += (Index)((int64_t)blockDim.x * gridDim.x))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#undef CUDA_KERNEL_ASSERT
#define CUDA_KERNEL_ASSERT(condition) \
  ((condition) ? (void)0 : ::simt::assert_failed(#condition, __FILE__, __LINE__))

template <class T>
inline T gpuAtomicAdd(T* address, std::type_identity_t<T> value) {
  return atomicAdd(address, value);
}
template <class T>
inline void gpuAtomicAddNoReturn(T* address, std::type_identity_t<T> value) {
  atomicAdd(address, value);
}
template <class T>
inline T gpuAtomicMax(T* address, std::type_identity_t<T> value) {
  return atomicMax(address, value);
}
template <class T>
inline T gpuAtomicMin(T* address, std::type_identity_t<T> value) {
  return atomicMin(address, value);
}
