// On demand, for sources that use CUDA's mathematical libraries: handles of torch's, error checks.
#pragma once

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif
#if __has_include(<cusparse.h>)
#include <cusparse.h>
#endif

#include <ATen/cuda/CUDAContextLight.h>

namespace at::cuda {
// Defined in libtorch_cuda.
TORCH_CUDA_CPP_API cublasHandle_t getCurrentCUDABlasHandle();
TORCH_CUDA_CPP_API cublasLtHandle_t getCurrentCUDABlasLtHandle();
TORCH_CUDA_CPP_API cusparseHandle_t getCurrentCUDASparseHandle();
}  // namespace at::cuda

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define AT_CUDNN_CHECK(EXPR, ...)                                                      \
  do {                                                                                 \
    cudnnStatus_t dice_status = (EXPR);                                                \
    TORCH_CHECK(dice_status == CUDNN_STATUS_SUCCESS, "cuDNN error: ", cudnnGetErrorString(dice_status)); \
  } while (0)
#endif

#define TORCH_CUDABLAS_CHECK(EXPR)                                            \
  do {                                                                        \
    cublasStatus_t dice_status = (EXPR);                                      \
    TORCH_CHECK(dice_status == CUBLAS_STATUS_SUCCESS, "CUDA error: cuBLAS ", int(dice_status)); \
  } while (0)
