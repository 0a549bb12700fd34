// The CUDA runtime API on host memory: the device is the host, every call is synchronous.
#pragma once

#include <chrono>

#include "launch.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidDevice = 101,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};
typedef cudaError_t cudaError;
typedef struct SimtStream* cudaStream_t;
struct SimtEvent {
  double time_ms;
};
typedef SimtEvent* cudaEvent_t;
typedef cudaStream_t CUstream;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte
};
enum {
  cudaEventDefault = 0,
  cudaEventBlockingSync = 1,
  cudaEventDisableTiming = 2,
  cudaStreamDefault = 0,
  cudaStreamNonBlocking = 1,
  cudaSharedmemCarveoutMaxShared = 100,
  cudaMemAttachGlobal = 1,
  cudaHostAllocDefault = 0
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

// An H100's figures, so that heuristics in host code take the branches they take there.
struct cudaDeviceProp {
  char name[256] = "DICE SIMT emulator";
  size_t totalGlobalMem = 80ull << 30;
  size_t sharedMemPerBlock = 49152;
  size_t sharedMemPerBlockOptin = 232448;
  size_t sharedMemPerMultiprocessor = 233472;
  size_t totalConstMem = 65536;
  int major = 9;
  int minor = 0;
  int multiProcessorCount = 132;
  int maxThreadsPerBlock = 1024;
  int maxThreadsPerMultiProcessor = 2048;
  int maxBlocksPerMultiProcessor = 32;
  int warpSize = 32;
  int regsPerBlock = 65536;
  int regsPerMultiprocessor = 65536;
  int l2CacheSize = 52428800;
  int maxGridSize[3] = {2147483647, 65535, 65535};
  int maxThreadsDim[3] = {1024, 1024, 64};
};

inline cudaError_t simt_fail(cudaError_t error) {
  ::simt::set_error(error);
  return error;
}

// --- errors ---
inline cudaError_t cudaGetLastError() { return cudaError_t(::simt::take_error(true)); }
inline cudaError_t cudaPeekAtLastError() { return cudaError_t(::simt::take_error(false)); }

inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevicePointer: return "cudaErrorInvalidDevicePointer";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources: return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    default: return "cudaErrorUnknown";
  }
}

inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevicePointer: return "invalid device pointer";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources: return "too many resources requested for launch";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "unknown error";
  }
}

// --- memory ---
template <class T>
inline cudaError_t cudaMalloc(T** pointer, size_t size) {
  *pointer = (T*)::simt::device_alloc(size);
  return *pointer ? cudaSuccess : simt_fail(cudaErrorMemoryAllocation);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** pointer, size_t size, unsigned = cudaMemAttachGlobal) {
  return cudaMalloc(pointer, size);
}
template <class T>
inline cudaError_t cudaMallocHost(T** pointer, size_t size, unsigned = 0) {
  return cudaMalloc(pointer, size);
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pointer, size_t size, unsigned) {
  return cudaMalloc(pointer, size);
}
template <class T>
inline cudaError_t cudaMallocAsync(T** pointer, size_t size, cudaStream_t) {
  return cudaMalloc(pointer, size);
}
template <class T>
inline cudaError_t cudaMallocPitch(T** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}
inline cudaError_t cudaFree(void* pointer) {
  return ::simt::device_free(pointer) ? cudaSuccess : simt_fail(cudaErrorInvalidDevicePointer);
}
inline cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
inline cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                              cudaMemcpyKind = cudaMemcpyDefault) {
  memmove(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                                   cudaMemcpyKind = cudaMemcpyDefault, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, size);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t width, size_t height,
                                cudaMemcpyKind = cudaMemcpyDefault) {
  for (size_t row = 0; row < height; row++) {
    memmove((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width);
  }
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t size) {
  memset(to, value, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t = nullptr) {
  return cudaMemset(to, value, size);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t size, size_t offset = 0,
                                      cudaMemcpyKind = cudaMemcpyHostToDevice) {
  if (offset + size > sizeof(T)) {
    return simt_fail(cudaErrorInvalidValue);
  }
  memcpy((char*)&symbol + offset, from, size);
  return cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t size,
                                           size_t offset = 0,
                                           cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                           cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, size, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t size, size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  if (offset + size > sizeof(T)) {
    return simt_fail(cudaErrorInvalidValue);
  }
  memcpy(to, (const char*)&symbol + offset, size);
  return cudaSuccess;
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** pointer, const T& symbol) {
  *pointer = (void*)&symbol;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = cudaDeviceProp().totalGlobalMem;
  return cudaSuccess;
}

// --- devices ---
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaThreadSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : simt_fail(cudaErrorInvalidDevice);
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = cudaDeviceProp();
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const cudaDeviceProp device;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = device.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = device.maxThreadsDim[0]; break;
    case cudaDevAttrMaxGridDimX: *value = device.maxGridSize[0]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(device.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = device.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = device.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = device.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrComputeCapabilityMajor: *value = device.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = int(device.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(device.sharedMemPerBlockOptin);
      break;
    default: return simt_fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

// --- functions ---
template <class Function>
inline cudaError_t cudaFuncSetAttribute(Function, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || size_t(value) > cudaDeviceProp().sharedMemPerBlockOptin) {
      return simt_fail(cudaErrorInvalidValue);
    }
    ::simt::allow_dynamic_shared(value);
  }
  return cudaSuccess;
}
template <class Function>
inline cudaError_t cudaFuncSetCacheConfig(Function, cudaFuncCache) {
  return cudaSuccess;
}
template <class Function>
inline cudaError_t cudaFuncSetSharedMemConfig(Function, cudaSharedMemConfig) {
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
template <class Function>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function,
                                                                 int block_size, size_t) {
  *blocks = cudaDeviceProp().maxThreadsPerMultiProcessor / block_size;
  return cudaSuccess;
}
template <class Function>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* min_grid, int* block_size, Function,
                                                      size_t = 0, int = 0) {
  *min_grid = 2 * cudaDeviceProp().multiProcessorCount;
  *block_size = 256;
  return cudaSuccess;
}
template <class Function>
inline cudaError_t cudaLaunchKernel(Function, dim3, dim3, void**, size_t, cudaStream_t) {
  throw ::simt::Error("cudaLaunchKernel is not covered by the emulator: use kernel<<<...>>>");
}

// --- streams and events: no-ops, except that events take the time ---
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new SimtEvent{0};
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  event->time_ms =
      Milliseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = float(end->time_ms - begin->time_ms);
  return cudaSuccess;
}
