// What generated kernels use, one host function per topic. Oracles are in test_features.py.
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be contiguous")
constexpr unsigned FULL = 0xffffffffu;

// --- indices: a 3-D grid of 3-D blocks writes every element of a 5 x 6 x 7 box once ---
__global__ void box_kernel(int* out, int depth, int height, int width) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  int y = blockIdx.y * blockDim.y + threadIdx.y;
  int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x >= width || y >= height || z >= depth) return;
  out[(z * height + y) * width + x] = x + 100 * y + 10000 * z + 1000000 * (gridDim.x + gridDim.z);
}
torch::Tensor box(int64_t depth, int64_t height, int64_t width) {
  auto out = torch::empty({depth, height, width}, torch::dtype(torch::kInt32).device(torch::kCUDA));
  dim3 block(2, 3, 4);
  dim3 grid((width + 1) / 2, (height + 2) / 3, (depth + 3) / 4);
  box_kernel<<<grid, block>>>(out.data_ptr<int>(), depth, height, width);
  return out;
}

// --- shared memory: tiled transpose (static 2-D, padded), reversal (dynamic), array of structs ---
template <typename T, int TILE>
__global__ void transpose_kernel(const T* __restrict__ in, T* __restrict__ out, int rows, int cols) {
  __shared__ T tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (y < rows && x < cols) tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  if (y < cols && x < rows) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}
torch::Tensor transpose(torch::Tensor x) {
  CHECK_INPUT(x);
  auto out = torch::empty({x.size(1), x.size(0)}, x.options());
  dim3 grid((x.size(1) + 15) / 16, (x.size(0) + 15) / 16), block(16, 16);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "transpose", [&] {
    transpose_kernel<scalar_t, 16><<<grid, block>>>(x.const_data_ptr<scalar_t>(),
                                                    out.mutable_data_ptr<scalar_t>(), x.size(0), x.size(1));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
struct Item { float value; int index; };
__global__ void argmax_kernel(const float* x, int64_t* out, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* row = reinterpret_cast<float*>(raw);
  __shared__ Item best[64];
  int t = threadIdx.x;
  for (int i = t; i < n; i += blockDim.x) row[i] = x[blockIdx.x * n + i];
  __syncthreads();
  Item mine{-INFINITY, -1};
  for (int i = t; i < n; i += blockDim.x)
    if (row[i] > mine.value) mine = Item{row[i], i};
  best[t] = mine;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (t < s) {
      Item other = best[t + s];
      if (other.value > best[t].value || (other.value == best[t].value && other.index < best[t].index)) best[t] = other;
    }
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = best[0].index;
}
torch::Tensor argmax(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options().dtype(torch::kInt64));
  argmax_kernel<<<x.size(0), 64, x.size(1) * sizeof(float)>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), x.size(1));
  return out;
}

// --- warp operations: every thread writes what it got, one row per operation ---
__global__ void warp_kernel(const int* in, long long* out) {
  int lane = threadIdx.x & 31, n = blockDim.x, t = threadIdx.x, v = in[t], row = 0;
  auto put = [&](long long value) { out[row++ * n + t] = value; };
  put(__shfl_sync(FULL, v, 5));
  put(__shfl_sync(FULL, v, lane + 3, 8));
  put(__shfl_up_sync(FULL, v, 2, 16));
  put(__shfl_down_sync(FULL, (long long)v << 33, 4));
  put(__shfl_xor_sync(FULL, v, 7));
  put(__ballot_sync(FULL, v & 1));
  put(__any_sync(FULL, v > 90));
  put(__all_sync(FULL, v >= 0));
  put(__reduce_add_sync(FULL, v));
  put(__reduce_max_sync(FULL, v));
  put(__match_any_sync(FULL, v % 3));
  put(__syncthreads_count(v & 1));
  put(__syncthreads_and(v >= 0));
  put(__syncthreads_or(v == 1000));
  put(__popc(__activemask()));
  if (lane < 16) put(__shfl_down_sync(0xffffu, v, 8, 16)); else put(0);
  __syncwarp();
  put((long long)(2 * (float)__shfl_sync(FULL, __float2half((float)v), 31)));
}
torch::Tensor warp(torch::Tensor x) {
  auto out = torch::empty({17, x.numel()}, x.options().dtype(torch::kInt64));
  warp_kernel<<<1, x.numel()>>>(x.data_ptr<int>(), (long long*)out.data_ptr<int64_t>());
  return out;
}

// --- atomics on shared and global memory ---
__global__ void atomics_kernel(const int* x, int n, int* ints, float* floats, double* doubles, __half* halves, unsigned* wrap) {
  __shared__ int total;
  __shared__ unsigned long long big;
  if (threadIdx.x == 0) { total = 0; big = 0; }
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&total, x[i]);
    atomicMax(&big, (unsigned long long)x[i]);
    atomicMax(&ints[1], x[i]);
    atomicMin(&ints[2], x[i]);
    atomicAnd(&ints[3], x[i] | 16);
    atomicOr(&ints[4], x[i]);
    atomicXor(&ints[5], x[i]);
    atomicSub(&ints[6], x[i]);
    atomicAdd(&floats[0], 0.5f * x[i]);
    atomicAdd(doubles, 0.25 * x[i]);
    atomicAdd(halves, __float2half(1.0f));
    atomicInc(&wrap[0], 9);
    int* bits = (int*)&floats[1];
    int old = *bits, assumed;
    do {
      assumed = old;
      old = atomicCAS(bits, assumed, __float_as_int(fmaxf((float)x[i], __int_as_float(assumed))));
    } while (old != assumed);
  }
  __syncthreads();
  if (threadIdx.x == 0) { atomicAdd(&ints[0], total); atomicAdd(&ints[7], (int)big); }
}
torch::Tensor atomics(torch::Tensor x) {
  auto ints = torch::zeros({8}, x.options());
  ints[2] = 1000000; ints[3] = -1;
  auto floats = torch::zeros({2}, x.options().dtype(torch::kFloat32)), doubles = torch::zeros({1}, x.options().dtype(torch::kFloat64));
  auto halves = torch::zeros({1}, x.options().dtype(torch::kFloat16)), wrap = torch::zeros({1}, x.options());
  atomics_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<int>(), x.numel(), ints.data_ptr<int>(), floats.data_ptr<float>(), doubles.data_ptr<double>(),
      reinterpret_cast<__half*>(halves.data_ptr<at::Half>()), reinterpret_cast<unsigned*>(wrap.data_ptr<int>()));
  return torch::cat({ints.to(torch::kFloat64), floats.to(torch::kFloat64), doubles, halves.to(torch::kFloat64), wrap.to(torch::kFloat64)});
}

// --- math: rows of f(x) ---
__constant__ float scale[2];
__device__ float shift = 0.5f;
template <typename F> __global__ void map_kernel(const float* x, float* out, int n, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) f(x, out, i);
}
torch::Tensor math(torch::Tensor x) {
  int n = x.numel();
  auto out = torch::empty({16, n}, x.options());
  float host[2] = {3.0f, 2.0f};
  C10_CUDA_CHECK(cudaMemcpyToSymbol(scale, host, sizeof(host)));
  map_kernel<<<2, 32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, [=] __device__(const float* x, float* out, int i) {
    float v = __ldg(x + i), r[16];
    r[0] = __expf(v); r[1] = __logf(v); r[2] = __fdividef(v, 3.0f); r[3] = rsqrtf(v);
    r[4] = __frcp_rn(v); r[5] = fmaf(v, scale[0], shift); r[6] = erff(v); r[7] = __powf(v, 1.5f);
    r[8] = tanhf(v); r[9] = max(v, 1.0f) + min(v, 1); r[10] = normcdff(v); r[11] = __saturatef(v);
    r[12] = __float2int_rn(v * 2.0f); r[13] = __int_as_float(__float_as_int(v)); r[14] = rcbrtf(v); r[15] = scale[1] * fabsf(-v);
    for (int k = 0; k < 16; k++) out[k * n + i] = r[k];
  });
  AT_CUDA_CHECK(cudaGetLastError());
  return out;
}
__global__ void integer_kernel(const int* x, long long* out, int n) {
  int i = threadIdx.x;
  unsigned v = x[i];
  long long r[8] = {__popc(v), __clz(v), __ffs(v), __brev(v), __umulhi(v, 0x80000001u), __mul24(v, 3), __byte_perm(v, 0, 0x0123), __popcll((unsigned long long)v << 32 | v)};
  for (int k = 0; k < 8; k++) out[k * n + i] = r[k];
}
torch::Tensor integers(torch::Tensor x) {
  auto out = torch::empty({8, x.numel()}, x.options().dtype(torch::kInt64));
  integer_kernel<<<1, x.numel()>>>(x.data_ptr<int>(), (long long*)out.data_ptr<int64_t>(), x.numel());
  return out;
}

// --- vector types, and a tail that does not divide ---
__global__ void axpy4_kernel(const float* x, float* y, int n) {
  int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 3 < n) {
    float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(y + i) = make_float4(v.x + v.y, v.y * 2, v.z - 1, v.w);
  } else {
    for (int k = 0; i + k < n; k++) y[i + k] = k == 0 ? x[i] : x[i + k] + 1;
  }
}
torch::Tensor vectors(torch::Tensor x) {
  auto y = torch::empty_like(x);
  axpy4_kernel<<<2, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}

// --- half and bfloat16 ---
__global__ void half_kernel(const __half* a, const __half* b, __half* out, int n) {
  int i = threadIdx.x;
  out[i] = __hadd(a[i], b[i]);
  out[n + i] = __hfma(a[i], b[i], __float2half(1.0f));
  out[2 * n + i] = a[i] * b[i] - __float2half(0.5f);
  out[3 * n + i] = hexp(a[i]);
  if (2 * i < n) {
    __half2 p = reinterpret_cast<const __half2*>(a)[i], q = reinterpret_cast<const __half2*>(b)[i];
    reinterpret_cast<__half2*>(out + 4 * n)[i] = __hmul2(p, __hadd2(q, __float2half2_rn(1.0f)));
    float2 f = __half22float2(__hmax2(p, q));
    reinterpret_cast<__half2*>(out + 5 * n)[i] = __floats2half2_rn(f.x, f.y);
  }
}
torch::Tensor halves(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty({6, a.numel()}, a.options());
  auto p = [](torch::Tensor& t) { return reinterpret_cast<__half*>(t.data_ptr<at::Half>()); };
  half_kernel<<<1, a.numel()>>>(p(a), p(b), p(out), a.numel());
  return out;
}
__global__ void bf16_kernel(const __nv_bfloat16* a, __nv_bfloat16* out, int n) {
  int i = threadIdx.x;
  out[i] = __float2bfloat16(__bfloat162float(a[i]) * 3.0f);
  out[n + i] = __hadd(a[i], a[i]);
}
torch::Tensor bf16(torch::Tensor a) {
  auto out = torch::empty({2, a.numel()}, a.options());
  bf16_kernel<<<1, a.numel()>>>((const __nv_bfloat16*)a.data_ptr<at::BFloat16>(), (__nv_bfloat16*)out.data_ptr<at::BFloat16>(), a.numel());
  return out;
}

// --- cooperative groups and cub ---
__global__ void groups_kernel(const float* x, float* out, int n) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto quad = cg::tiled_partition<4>(warp);
  int i = blockIdx.x * blockDim.x + block.thread_rank();
  float v = i < n ? x[i] : 0.0f;
  float total = cg::reduce(warp, v, cg::plus<float>());
  if (warp.thread_rank() == 0) atomicAdd(&out[0], total);
  float top = cg::reduce(quad, v, cg::greater<float>());
  if (quad.thread_rank() == 0) atomicAdd(&out[1], top);
  float other = quad.shfl_xor(v, 1);
  if (v > 0) {
    auto active = cg::coalesced_threads();
    (void)active;
  }
  block.sync();
  typedef cub::BlockReduce<float, 64> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum(other);
  if (block.thread_rank() == 0) atomicAdd(&out[2], sum);
  __shared__ typename cub::BlockScan<int, 64>::TempStorage scan_storage;
  int position, count;
  cub::BlockScan<int, 64>(scan_storage).ExclusiveSum(v > 0, position, count);
  if (v > 0 && position == count - 1) atomicAdd(&out[3], (float)count);
}
torch::Tensor groups(torch::Tensor x) {
  auto out = torch::zeros({4}, x.options());
  groups_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out;
}

// --- accessors, guards, events, device properties, cudaMalloc and copies ---
__global__ void trace_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* out) {
  int i = threadIdx.x;
  if (i < x.size(0) && i < x.size(1)) atomicAdd(out, x[i][i]);
}
torch::Tensor runtime_calls(torch::Tensor x) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  cudaStream_t stream; cudaEvent_t begin, end; cudaDeviceProp properties; float ms, *buffer;
  C10_CUDA_CHECK(cudaStreamCreate(&stream));
  cudaEventCreate(&begin); cudaEventCreate(&end); cudaEventRecord(begin, stream);
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  C10_CUDA_CHECK(cudaMalloc(&buffer, 4 * sizeof(float)));
  C10_CUDA_CHECK(cudaMemsetAsync(buffer, 0, 4 * sizeof(float), stream));
  trace_kernel<<<1, properties.warpSize, 0, stream>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), buffer);
  auto out = torch::empty({4}, x.options());
  C10_CUDA_CHECK(cudaMemcpyAsync(out.data_ptr<float>(), buffer, 4 * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  cudaEventRecord(end, stream); cudaEventSynchronize(end); cudaEventElapsedTime(&ms, begin, end);
  TORCH_CHECK(ms >= 0 && cudaFree(buffer) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess);
  return out;
}
__global__ void nothing_kernel(float* x) { x[0] = 1.0f; }
torch::Tensor refused(torch::Tensor x, int64_t grid, int64_t block, int64_t shared) {
  nothing_kernel<<<grid, block, shared>>>(x.data_ptr<float>());
  int code = cudaPeekAtLastError();
  TORCH_CHECK(code == cudaGetLastError() && cudaGetLastError() == cudaSuccess);
  return torch::full({1}, code, x.options());
}
torch::Tensor allow_shared(torch::Tensor x, int64_t bytes) {
  int code = cudaFuncSetAttribute(nothing_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaGetLastError();
  return torch::full({1}, code, x.options());
}

// --- the "last block sums up" pattern: fences and a counter order the blocks ---
__device__ unsigned finished = 0;
__global__ void last_block_kernel(const float* x, float* partial, float* out, int n) {
  __shared__ float sums[64];
  __shared__ bool last;
  int i = blockIdx.x * 64 + threadIdx.x;
  sums[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int s = 32; s > 0; s >>= 1) {
    if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sums[0];
    __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float total = 0;
    for (int b = 0; b < gridDim.x; b++) total += partial[b];
    out[0] = total;
  }
}
torch::Tensor last_block(torch::Tensor x) {
  int blocks = (x.numel() + 63) / 64;
  auto partial = torch::empty({blocks}, x.options()), out = torch::empty({1}, x.options());
  last_block_kernel<<<blocks, 64>>>(x.data_ptr<float>(), partial.data_ptr<float>(), out.data_ptr<float>(), x.numel());
  return out;
}

// --- softmax with a warp-shuffle block reduction: the shape of most generated kernels ---
__device__ __forceinline__ float warp_sum(float v) {
  #pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(FULL, v, o);
  return v;
}
__global__ void __launch_bounds__(128) softmax_kernel(const float* x, float* y, int n) {
  __shared__ float part[4];
  const float* row = x + (size_t)blockIdx.x * n;
  float top = -INFINITY, sum = 0;
  for (int i = 0; i < n; i++) top = fmaxf(top, row[i]);
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(row[i] - top);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 4) {
    float v = part[threadIdx.x];
    for (int o = 2; o > 0; o >>= 1) v += __shfl_down_sync(0xf, v, o);
    if (threadIdx.x == 0) part[0] = v;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[(size_t)blockIdx.x * n + i] = expf(row[i] - top) / part[0];
}
torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  softmax_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
torch::Tensor throws(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 7, "seven dimensions wanted, got ", x.dim());
  return x;
}
torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty({a.size(0), b.size(1)}, a.options());
  float one = 1, zero = 0;
  int m = a.size(0), k = a.size(1), n = b.size(1);
  TORCH_CHECK(cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
                          a.data_ptr<float>(), k, &zero, c.data_ptr<float>(), n) == CUBLAS_STATUS_SUCCESS);
  return c;
}
