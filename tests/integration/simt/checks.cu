// One fault of each kind, next to its correct twin. The line comments say what is wrong.
#include <torch/extension.h>
#include <cassert>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// HOST(name, kernel, grid, block, shared bytes) becomes a host function that launches the kernel on
// x of n elements and an empty y of the same size; the test expands it.
__global__ void bounds_kernel(const float* x, float* y, int n) { int i = blockIdx.x * 64 + threadIdx.x; y[i] = x[i] * 2; }  // no i < n
HOST(bounds, bounds_kernel, (n + 63) / 64, 64, 0)
__global__ void bounds_ok_kernel(const float* x, float* y, int n) { int i = blockIdx.x * 64 + threadIdx.x; if (i < n) y[i] = x[i] * 2; }
HOST(bounds_ok, bounds_ok_kernel, (n + 63) / 64, 64, 0)

__global__ void write_only_kernel(const float* x, float* y, int n) { if (threadIdx.x == 5) y[n + 3] = 1; else y[threadIdx.x] = x[threadIdx.x]; }
HOST(write_only, write_only_kernel, 1, 32, 0)

__global__ void shared_bounds_kernel(const float* x, float* y, int n) {
  __shared__ float left[64]; __shared__ float right[64];
  int i = threadIdx.x; left[i] = x[i]; right[i] = 0; __syncthreads();
  y[i] = left[i + 1] + right[i];  // thread 63 leaves `left`
}
HOST(shared_bounds, shared_bounds_kernel, 1, 64, 0)
__global__ void shared_bounds_ok_kernel(const float* x, float* y, int n) {
  __shared__ float left[65]; __shared__ float right[64];
  int i = threadIdx.x; left[i] = x[i]; right[i] = 0; if (i == 0) left[64] = 0; __syncthreads();
  y[i] = left[i + 1] + right[i];
}
HOST(shared_bounds_ok, shared_bounds_ok_kernel, 1, 64, 0)
__global__ void dynamic_bounds_kernel(const float* x, float* y, int n) {
  extern __shared__ float buffer[]; buffer[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] = buffer[threadIdx.x];
}
HOST(dynamic_bounds, dynamic_bounds_kernel, 1, 64, 60 * sizeof(float))  // four floats short
HOST(dynamic_bounds_ok, dynamic_bounds_kernel, 1, 64, 64 * sizeof(float))


__global__ void shared_unset_kernel(const float* x, float* y, int n) {
  __shared__ float sum; atomicAdd(&sum, x[threadIdx.x]); __syncthreads(); y[threadIdx.x] = sum;  // never set to 0
}
HOST(shared_unset, shared_unset_kernel, 1, 64, 0)
__global__ void shared_set_ok_kernel(const float* x, float* y, int n) {
  __shared__ float sum; if (threadIdx.x == 0) sum = 0; __syncthreads();
  atomicAdd(&sum, x[threadIdx.x]); __syncthreads(); y[threadIdx.x] = sum;
}
HOST(shared_set_ok, shared_set_ok_kernel, 1, 64, 0)
__global__ void global_unset_kernel(const float* x, float* y, int n) { int i = threadIdx.x; y[i] += x[i]; }  // y is torch::empty
HOST(global_unset, global_unset_kernel, 1, 64, 0)
__global__ void global_set_ok_kernel(const float* x, float* y, int n) { int i = threadIdx.x; y[i] = __int_as_float(0x7fd5a5a5); y[i] = y[i] != y[i] ? x[i] : 0; }
HOST(global_set_ok, global_set_ok_kernel, 1, 64, 0)

__global__ void shared_race_kernel(const float* x, float* y, int n) {
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; y[i] = i ? s[i] - s[i - 1] : s[i];  // no barrier
}
HOST(shared_race, shared_race_kernel, 1, 64, 0)
__global__ void shared_race_ok_kernel(const float* x, float* y, int n) {
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; __syncthreads(); y[i] = i ? s[i] - s[i - 1] : s[i];
}
HOST(shared_race_ok, shared_race_ok_kernel, 1, 64, 0)
__global__ void shift_race_kernel(const float* x, float* y, int n) {
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; __syncthreads();
  float v = s[(i + 1) % 64] + s[i]; s[i] = v; __syncthreads(); y[i] = s[i];  // read and write in one phase
}
HOST(shift_race, shift_race_kernel, 1, 64, 0)
__global__ void shift_race_ok_kernel(const float* x, float* y, int n) {
  __shared__ float s[64]; int i = threadIdx.x; s[i] = x[i]; __syncthreads();
  float v = s[(i + 1) % 64] + s[i]; __syncthreads(); s[i] = v; __syncthreads(); y[i] = s[i];
}
HOST(shift_race_ok, shift_race_ok_kernel, 1, 64, 0)
__global__ void global_race_kernel(const float* x, float* y, int n) { int i = blockIdx.x * 32 + threadIdx.x; y[i / 2] = x[i]; if (i >= n / 2) y[i] = 0; }
HOST(global_race, global_race_kernel, n / 32, 32, 0)
__global__ void block_race_kernel(const float* x, float* y, int n) { y[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x]; }  // every block
HOST(block_race, block_race_kernel, 2, 32, 0)
__global__ void same_value_ok_kernel(const float* x, float* y, int n) { __shared__ int flag; flag = 1; __syncthreads(); y[0] = 7.0f; y[threadIdx.x + 1] = x[0] + flag; }
HOST(same_value_ok, same_value_ok_kernel, 2, 32, 0)
__global__ void warp_sync_ok_kernel(const float* x, float* y, int n) {
  __shared__ volatile float s[32]; int i = threadIdx.x; s[i] = x[i]; __syncwarp();
  for (int o = 16; o > 0; o >>= 1) { float v = i < o ? s[i + o] : 0; __syncwarp(); if (i < o) s[i] = s[i] + v; __syncwarp(); }
  y[i] = s[0];
}
HOST(warp_sync_ok, warp_sync_ok_kernel, 1, 32, 0)
__global__ void half_cells_ok_kernel(const float* x, float* y, int n) {
  __shared__ __half s[64]; __shared__ bool odd[64]; int i = threadIdx.x; s[i] = __float2half(x[i]); odd[i] = i & 1; __syncthreads();
  y[i] = __half2float(s[63 - i]) + odd[63 - i];
}
HOST(half_cells_ok, half_cells_ok_kernel, 1, 64, 0)
__global__ void atomic_mix_race_kernel(const float* x, float* y, int n) {
  __shared__ float s; if (threadIdx.x == 0) s = 0; atomicAdd(&s, x[threadIdx.x]); __syncthreads(); y[threadIdx.x] = s;  // no barrier after s = 0
}
HOST(atomic_mix_race, atomic_mix_race_kernel, 1, 64, 0)

__global__ void divergent_kernel(const float* x, float* y, int n) {
  if (threadIdx.x < 16) { __syncthreads(); y[threadIdx.x] = 1; } else { y[threadIdx.x] = 2; }
  __syncthreads();
}
HOST(divergent, divergent_kernel, 1, 64, 0)
__global__ void deadlock_kernel(const float* x, float* y, int n) {
  if (threadIdx.x < 16) __syncthreads(); else __syncwarp();
  y[threadIdx.x] = 2;
}
HOST(deadlock, deadlock_kernel, 1, 32, 0)
__global__ void early_return_kernel(const float* x, float* y, int n) {
  if (threadIdx.x >= 40) return;
  __shared__ float s; if (threadIdx.x == 0) s = x[0]; __syncthreads(); y[threadIdx.x] = s;
}
HOST(early_return, early_return_kernel, 1, 64, 0)
__global__ void asserts_kernel(const float* x, float* y, int n) { assert(threadIdx.x < 3); y[threadIdx.x] = x[threadIdx.x]; }
HOST(asserts, asserts_kernel, 1, 32, 0)
__global__ void traps_kernel(const float* x, float* y, int n) { if (blockIdx.x == 1 && threadIdx.x == 2) __trap(); y[threadIdx.x] = 1; }
HOST(traps, traps_kernel, 2, 32, 0)
__global__ void endless_kernel(const float* x, float* y, int n) { volatile const float* p = x; while (p[0] > -1e30f) { } }
HOST(endless, endless_kernel, 1, 32, 0)
__global__ void copies_ok_kernel(const float* x, float* y, int n) {
  __shared__ float s[64]; if (threadIdx.x == 0) memset(s, 0, n * sizeof(float)); __syncthreads(); y[threadIdx.x] = s[threadIdx.x];
}
HOST(copies_ok, copies_ok_kernel, 1, 64, 0)

// --- locals without a value ---
__global__ void unset_max_kernel(const float* x, float* y, int n) {
  float m; for (int i = 0; i < n; i++) m = fmaxf(m, x[i]); y[threadIdx.x] = m;
}
HOST(unset_max, unset_max_kernel, 1, 64, 0)
__global__ void unset_min_kernel(const float* x, float* y, int n) {
  float m; for (int i = 0; i < n; i++) m = fminf(m, x[i]); y[threadIdx.x] = m;
}
HOST(unset_min, unset_min_kernel, 1, 64, 0)
__global__ void unset_array_kernel(const float* x, float* y, int n) {
  float m[2]; for (int i = 0; i < n; i++) m[i % 2] += x[i]; y[threadIdx.x] = m[0] + m[1];
}
HOST(unset_array, unset_array_kernel, 1, 64, 0)
__global__ void set_later_kernel(const float* x, float* y, int n) {
  float v, w; int i = threadIdx.x; bool even;
  even = i % 2 == 0;
  if (even) w = 2; else w = 3;
  switch (i % 3) { case 0: v = x[i]; break; case 1: float u; u = x[i]; v = u; break; default: v = x[i]; }
  y[i] = v * w;
}
HOST(set_later, set_later_kernel, 1, 64, 0)
