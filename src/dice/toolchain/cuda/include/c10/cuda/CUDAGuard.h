// The guards of torch's header of this name over its C++ API, without the allocator's headers, which
// cost every build half a second.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex index) : original_(current_device()), current_(index) { c10::cuda::set_device(index); }
  explicit CUDAGuard(Device device) : CUDAGuard(device.has_index() ? device.index() : current_device()) {}
  ~CUDAGuard() { c10::cuda::set_device(original_); }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  void set_index(DeviceIndex index) { c10::cuda::set_device(current_ = index); }
  void set_device(Device device) { set_index(device.index()); }
  Device original_device() const { return Device(kCUDA, original_); }

 private:
  static DeviceIndex current_device() { return c10::cuda::current_device(); }
  DeviceIndex original_, current_;
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) guard_.emplace(*device);
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index) guard_.emplace(*index);
  }
  void set_index(DeviceIndex index) { guard_ ? guard_->set_index(index) : (void)guard_.emplace(index); }
  void set_device(Device device) { set_index(device.index()); }
  void reset() { guard_.reset(); }

 private:
  std::optional<CUDAGuard> guard_;
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream stream)
      : device_(stream.device()), original_(getCurrentCUDAStream(stream.device_index())), current_(stream) {
    setCurrentCUDAStream(stream);
  }
  ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  CUDAStream original_stream() const { return original_; }
  CUDAStream current_stream() const { return current_; }

 private:
  CUDAGuard device_;
  CUDAStream original_, current_;
};

}  // namespace c10::cuda
