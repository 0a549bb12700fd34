// Launches kernels of split extensions. One library for all extensions of a process.
//
// The device code of an extension is loaded at its first launch as a CUDA library (cudaLibraryLoadData),
// whose kernels the runtime API takes like any other kernel: errors, attributes and streams behave as in
// an extension that nvcc linked.
#include <cuda_runtime.h>

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

struct dice_entry {
  const void* handle;
  const char* name;
};
struct dice_extension {
  const void* image;
  const dice_entry* kernels;
  const dice_entry* variables;
  void* library;
};

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

thread_local Configuration configuration;
std::mutex mutex;
std::unordered_map<const void*, cudaKernel_t> kernels;
std::unordered_set<std::string> launched;
std::string launched_text;
unsigned long long launches = 0;
int skip = 0;

const char* name_of(const dice_entry* entries, const void* handle) {
  for (; entries->handle; ++entries) {
    if (entries->handle == handle) return entries->name;
  }
  return nullptr;
}

cudaError_t load(dice_extension* extension) {
  if (extension->library) return cudaSuccess;
  cudaLibrary_t library = nullptr;
  cudaError_t error = cudaLibraryLoadData(&library, extension->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error == cudaSuccess) extension->library = library;
  return error;
}

// The kernel behind a host function; `*error` says why there is none.
cudaKernel_t find(dice_extension* extension, const void* handle, cudaError_t* error) {
  std::lock_guard<std::mutex> lock(mutex);
  auto known = kernels.find(handle);
  if (known != kernels.end()) return known->second;
  const char* name = name_of(extension->kernels, handle);
  *error = name ? load(extension) : cudaErrorInvalidDeviceFunction;
  if (*error != cudaSuccess) return nullptr;
  cudaKernel_t kernel = nullptr;
  *error = cudaLibraryGetKernel(&kernel, (cudaLibrary_t)extension->library, name);
  if (*error != cudaSuccess) return nullptr;
  kernels.emplace(handle, kernel);
  return kernel;
}

void note(dice_extension* extension, const void* handle) {
  std::lock_guard<std::mutex> lock(mutex);
  ++launches;
  if (const char* name = name_of(extension->kernels, handle)) launched.insert(name);
}

cudaError_t start(dice_extension* extension, const void* handle, Configuration at, void** arguments, bool together) {
  cudaError_t error = cudaSuccess;
  cudaKernel_t kernel = find(extension, handle, &error);
  if (!kernel) return error;
  note(extension, handle);
  if (skip) return cudaSuccess;
  const void* function = (const void*)kernel;
  return together ? cudaLaunchCooperativeKernel(function, at.grid, at.block, arguments, at.shared, at.stream)
                  : cudaLaunchKernel(function, at.grid, at.block, arguments, at.shared, at.stream);
}

}  // namespace

extern "C" {

void dice_cuda_configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configuration = {grid, block, shared, stream};
}

void dice_cuda_launch(dice_extension* extension, const void* handle, void** arguments) {
  // the runtime keeps an error for cudaGetLastError itself
  start(extension, handle, configuration, arguments, false);
}

cudaError_t dice_cuda_launch_direct(dice_extension* extension, const void* handle, dim3 grid, dim3 block,
                                    void** arguments, size_t shared, cudaStream_t stream, int cooperative) {
  return start(extension, handle, {grid, block, shared, stream}, arguments, cooperative != 0);
}

const void* dice_cuda_kernel(dice_extension* extension, const void* handle) {
  cudaError_t error = cudaSuccess;
  cudaKernel_t kernel = find(extension, handle, &error);
  return kernel ? (const void*)kernel : handle;
}

void* dice_cuda_variable(dice_extension* extension, const void* handle, size_t* size) {
  std::lock_guard<std::mutex> lock(mutex);
  const char* name = name_of(extension->variables, handle);
  void* pointer = nullptr;
  size_t bytes = 0;
  if (!name || load(extension) != cudaSuccess) return nullptr;
  if (cudaLibraryGetGlobal(&pointer, &bytes, (cudaLibrary_t)extension->library, name) != cudaSuccess) return nullptr;
  if (size) *size = bytes;
  return pointer;
}

void dice_cuda_set_skip(int on) { skip = on; }
unsigned long long dice_cuda_launch_count() { return launches; }
const char* dice_cuda_launched() {
  std::lock_guard<std::mutex> lock(mutex);
  launched_text.clear();
  for (const std::string& name : launched) launched_text += name + "\n";
  return launched_text.c_str();
}

}  // extern "C"
