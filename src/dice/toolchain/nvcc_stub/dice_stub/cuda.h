// c10::cuda and at::cuda, declared only.
#pragma once

#include "tensor.h"

namespace c10::cuda {

struct CUDAStream {
  cudaStream_t stream() const;
  operator cudaStream_t() const;
  void synchronize() const;
  DeviceIndex device_index() const;
  bool query() const;
};
CUDAStream getCurrentCUDAStream(DeviceIndex = -1);
CUDAStream getDefaultCUDAStream(DeviceIndex = -1);
CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1);
void setCurrentCUDAStream(CUDAStream);
struct CUDAGuard {
  template <class T>
  explicit CUDAGuard(const T&);
  void set_index(DeviceIndex);
  void set_device(Device);
};
struct OptionalCUDAGuard {
  OptionalCUDAGuard();
  template <class T>
  explicit OptionalCUDAGuard(const T&);
};
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream);
};
DeviceIndex device_count();
DeviceIndex current_device();
void set_device(DeviceIndex);
void device_synchronize();

namespace CUDACachingAllocator {
struct DataPtr {
  void* get() const;
  operator bool() const;
};
struct Allocator {
  DataPtr allocate(size_t);
};
Allocator* get();
void* raw_alloc(size_t);
void* raw_alloc_with_stream(size_t, cudaStream_t);
void raw_delete(void*);
void emptyCache();
}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

namespace at::cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
cudaDeviceProp* getCurrentDeviceProperties();
cudaDeviceProp* getDeviceProperties(int64_t);
int warp_size();
bool is_available();
template <class T>
__host__ __device__ T ATenCeilDiv(T a, T b);

}  // namespace at::cuda

template <class T>
__device__ void gpuAtomicAdd(T*, T);
template <class T>
__device__ void gpuAtomicAddNoReturn(T*, T);

#define C10_CUDA_CHECK(EXPRESSION)                                       \
  do {                                                                   \
    cudaError_t dice_error = (EXPRESSION);                               \
    TORCH_CHECK(dice_error == cudaSuccess, cudaGetErrorString(dice_error)); \
  } while (0)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define THCudaCheck C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define CUDA_KERNEL_LOOP_TYPE(i, n, T)                                                     \
  for (T i = T(blockIdx.x) * blockDim.x + threadIdx.x; i < (n); i += T(blockDim.x) * gridDim.x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
namespace at::cuda {
cublasHandle_t getCurrentCUDABlasHandle();
}
#define TORCH_CUDABLAS_CHECK(EXPRESSION) TORCH_CHECK((EXPRESSION) == CUBLAS_STATUS_SUCCESS)
#endif
