// What candidates take from torch's header of this name, without cuSPARSE, cuBLAS and cuSOLVER.
#pragma once

#include <ATen/core/ATenGeneral.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace at::cuda {

inline int64_t getNumGPUs() { return c10::cuda::device_count(); }
inline bool is_available() { return c10::cuda::device_count() > 0; }

// Defined in libtorch_cuda.
TORCH_CUDA_CPP_API cudaDeviceProp* getCurrentDeviceProperties();
TORCH_CUDA_CPP_API int warp_size();
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
TORCH_CUDA_CPP_API bool canDeviceAccessPeer(c10::DeviceIndex device, c10::DeviceIndex peer);

}  // namespace at::cuda
