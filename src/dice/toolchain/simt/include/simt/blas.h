// cuBLAS's matrix products on host memory, through ATen. Matrices are column-major, as there.
//
// cuBLASLt covers plain and batched products with bias, ReLU and GELU epilogues.
#pragma once

#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>

#include "torch_cuda.h"
#include "../simt.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;
enum cublasMath_t {
  CUBLAS_DEFAULT_MATH,
  CUBLAS_TENSOR_OP_MATH,
  CUBLAS_PEDANTIC_MATH,
  CUBLAS_TF32_TENSOR_OP_MATH
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
typedef struct SimtBlas* cublasHandle_t;
typedef struct SimtBlas* cublasLtHandle_t;

inline const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "a cuBLAS error";
}

inline cublasHandle_t simt_blas_handle() {
  static char handle;
  return reinterpret_cast<cublasHandle_t>(&handle);
}

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = simt_blas_handle();
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = simt_blas_handle();
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

namespace at::cuda {

inline cublasHandle_t getCurrentCUDABlasHandle() { return simt_blas_handle(); }
inline cublasLtHandle_t getCurrentCUDABlasLtHandle() { return simt_blas_handle(); }

}  // namespace at::cuda

#define TORCH_CUDABLAS_CHECK(expression) \
  TORCH_CHECK((expression) == CUBLAS_STATUS_SUCCESS, "a cuBLAS call failed")

namespace simt {

inline at::ScalarType scalar_type_of(int type) {
  switch (type) {
    case CUDA_R_64F: return at::kDouble;
    case CUDA_R_16F: return at::kHalf;
    case CUDA_R_16BF: return at::kBFloat16;
    default: return at::kFloat;
  }
}

// A batch of column-major matrices in memory.
struct MatrixArgument {
  const void* data;
  int64_t leading;
  int64_t stride;  // from one matrix of the batch to the next
  int type;        // a cudaDataType_t
};

inline at::Tensor as_tensor(const MatrixArgument& m, int64_t rows, int64_t columns,
                            int64_t batch) {
  auto options = at::TensorOptions().dtype(scalar_type_of(m.type));
  return at::from_blob(const_cast<void*>(m.data), {batch, rows, columns},
                       {m.stride, 1, m.leading}, options);
}

// C = alpha op(A) op(B) + beta C, with op(A) m x k and op(B) k x n.
inline cublasStatus_t gemm(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n,
                           int64_t k, double alpha, const MatrixArgument& a,
                           const MatrixArgument& b, double beta, const MatrixArgument& c,
                           int64_t batch) {
  bool a_fits = a.leading >= (op_a == CUBLAS_OP_N ? m : k);
  bool b_fits = b.leading >= (op_b == CUBLAS_OP_N ? k : n);
  if (m < 0 || n < 0 || k < 0 || !a_fits || !b_fits || c.leading < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  at::Tensor left = op_a == CUBLAS_OP_N ? as_tensor(a, m, k, batch)
                                        : as_tensor(a, k, m, batch).transpose(1, 2);
  at::Tensor right = op_b == CUBLAS_OP_N ? as_tensor(b, k, n, batch)
                                         : as_tensor(b, n, k, batch).transpose(1, 2);
  at::Tensor out = as_tensor(c, m, n, batch);
  at::Tensor product = at::matmul(left, right).mul(alpha);
  out.copy_(beta == 0 ? product : product.add(out.mul(beta)));
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace simt

#define SIMT_GEMM(Letter, T, Type)                                                               \
  inline cublasStatus_t cublas##Letter##gemm(                                                    \
      cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
      const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {  \
    return ::simt::gemm(op_a, op_b, m, n, k, double(*alpha), {a, lda, 0, Type},                  \
                        {b, ldb, 0, Type}, double(*beta), {c, ldc, 0, Type}, 1);                 \
  }                                                                                              \
  inline cublasStatus_t cublas##Letter##gemmStridedBatched(                                      \
      cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
      const T* alpha, const T* a, int lda, long long stride_a, const T* b, int ldb,              \
      long long stride_b, const T* beta, T* c, int ldc, long long stride_c, int batch) {         \
    return ::simt::gemm(op_a, op_b, m, n, k, double(*alpha), {a, lda, stride_a, Type},           \
                        {b, ldb, stride_b, Type}, double(*beta), {c, ldc, stride_c, Type},       \
                        batch);                                                                  \
  }
SIMT_GEMM(S, float, CUDA_R_32F)
SIMT_GEMM(D, double, CUDA_R_64F)
SIMT_GEMM(H, __half, CUDA_R_16F)
#undef SIMT_GEMM

// The factors are read as float, which is right for every compute type but 64F and 16F.
template <class ComputeType>
inline cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b,
                                   int m, int n, int k, const void* alpha, const void* a,
                                   cudaDataType_t a_type, int lda, const void* b,
                                   cudaDataType_t b_type, int ldb, const void* beta, void* c,
                                   cudaDataType_t c_type, int ldc, ComputeType,
                                   cublasGemmAlgo_t) {
  return ::simt::gemm(op_a, op_b, m, n, k, *(const float*)alpha, {a, lda, 0, a_type},
                      {b, ldb, 0, b_type}, *(const float*)beta, {c, ldc, 0, c_type}, 1);
}

template <class ComputeType>
inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType_t a_type, int lda, long long stride_a,
    const void* b, cudaDataType_t b_type, int ldb, long long stride_b, const void* beta, void* c,
    cudaDataType_t c_type, int ldc, long long stride_c, int batch, ComputeType, cublasGemmAlgo_t) {
  return ::simt::gemm(op_a, op_b, m, n, k, *(const float*)alpha, {a, lda, stride_a, a_type},
                      {b, ldb, stride_b, b_type}, *(const float*)beta,
                      {c, ldc, stride_c, c_type}, batch);
}

inline cublasStatus_t cublasSgemv(cublasHandle_t, cublasOperation_t op, int m, int n,
                                  const float* alpha, const float* a, int lda, const float* x,
                                  int step_x, const float* beta, float* y, int step_y) {
  at::Tensor matrix = ::simt::as_tensor({a, lda, 0, CUDA_R_32F}, m, n, 1)[0];
  if (op != CUBLAS_OP_N) {
    matrix = matrix.t();
  }
  at::Tensor in = at::from_blob((void*)x, {matrix.size(1)}, {step_x}, at::kFloat);
  at::Tensor out = at::from_blob(y, {matrix.size(0)}, {step_y}, at::kFloat);
  at::Tensor product = at::matmul(matrix, in).mul(*alpha);
  out.copy_(*beta == 0 ? product : product.add(out.mul(*beta)));
  return CUBLAS_STATUS_SUCCESS;
}

// --- cuBLASLt ---
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB,
  CUBLASLT_MATMUL_DESC_EPILOGUE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  CUBLASLT_MATMUL_DESC_POINTER_MODE,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
};
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36
};
enum cublasLtMatmulPreferenceAttributes_t { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 };
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
  CUBLASLT_MATRIX_LAYOUT_ORDER
};

struct SimtLtDescription {
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
  int epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct SimtLtLayout {
  int type;
  int64_t rows;
  int64_t columns;
  int64_t leading;
  int batch = 1;
  int64_t stride = 0;
};
struct SimtLtPreference {};
typedef SimtLtDescription* cublasLtMatmulDesc_t;
typedef SimtLtLayout* cublasLtMatrixLayout_t;
typedef SimtLtPreference* cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t {
  int unused;
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
};

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                               cublasComputeType_t, cudaDataType_t) {
  *description = new SimtLtDescription;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void* value, size_t) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      description->op_a = *static_cast<const cublasOperation_t*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      description->op_b = *static_cast<const cublasOperation_t*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      description->epilogue = *static_cast<const int*>(value);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      description->bias = *static_cast<void* const*>(value);
      break;
    default: break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                 cudaDataType_t type, uint64_t rows,
                                                 uint64_t columns, int64_t leading) {
  *layout = new SimtLtLayout{type, int64_t(rows), int64_t(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t attribute,
                                                       const void* value, size_t) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    layout->batch = *static_cast<const int*>(value);
  } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
    layout->stride = *static_cast<const int64_t*>(value);
  }
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new SimtLtPreference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                           cublasLtMatmulPreferenceAttributes_t,
                                                           const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
    cublasLtMatmulHeuristicResult_t* result, int* found) {
  *found = 1;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = 0;
  return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                     const void* alpha, const void* a, cublasLtMatrixLayout_t la,
                                     const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                                     const void* c, cublasLtMatrixLayout_t, void* d,
                                     cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t*, void*,
                                     size_t, cudaStream_t) {
  bool plain_a = description->op_a == CUBLAS_OP_N;
  bool plain_b = description->op_b == CUBLAS_OP_N;
  int64_t m = plain_a ? la->rows : la->columns;
  int64_t k = plain_a ? la->columns : la->rows;
  int64_t k_b = plain_b ? lb->rows : lb->columns;
  int64_t n = plain_b ? lb->columns : lb->rows;
  if (k != k_b || m != ld->rows || n != ld->columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  float factor = *static_cast<const float*>(beta);
  if (c != d && factor != 0) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  ::simt::MatrixArgument out{d, ld->leading, ld->stride, ld->type};
  cublasStatus_t status =
      ::simt::gemm(description->op_a, description->op_b, m, n, k, *static_cast<const float*>(alpha),
                   {a, la->leading, la->stride, la->type}, {b, lb->leading, lb->stride, lb->type},
                   factor, out, ld->batch);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  at::Tensor result = ::simt::as_tensor(out, m, n, ld->batch);
  if (description->epilogue & CUBLASLT_EPILOGUE_BIAS) {
    auto options = at::TensorOptions().dtype(::simt::scalar_type_of(ld->type));
    result.add_(at::from_blob(const_cast<void*>(description->bias), {1, m, 1}, options));
  }
  if (description->epilogue & CUBLASLT_EPILOGUE_RELU) {
    result.copy_(at::relu(result));
  }
  if (description->epilogue & CUBLASLT_EPILOGUE_GELU) {
    result.copy_(at::gelu(result, "tanh"));
  }
  return CUBLAS_STATUS_SUCCESS;
}
