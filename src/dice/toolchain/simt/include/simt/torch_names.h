// The names that torch/types.h gives to ATen's tensor API, for the slim route.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

// at::cat takes a type whose header adds 0.6 s to every compilation; these overloads take the usual
// lists, exactly, so that the original may be there too. Defined in runtime/torch_glue.cpp.
at::Tensor simt_cat(at::TensorList tensors, int64_t dim);

namespace at {

inline Tensor cat(TensorList tensors, int64_t dim = 0) { return simt_cat(tensors, dim); }
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0) {
  return simt_cat(tensors, dim);
}
inline Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0) {
  return simt_cat(tensors, dim);
}

template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};

inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}

}  // namespace at

namespace torch {

using namespace at;
using at::Device;
using at::DeviceType;
using at::IntArrayRef;
using at::RestrictPtrTraits;
using at::Scalar;
using at::Tensor;
using at::TensorOptions;
using c10::MemoryFormat;
using c10::nullopt;
using c10::ScalarType;
using Dtype = at::ScalarType;
using std::optional;

constexpr auto kU8 = at::kByte;
constexpr auto kUInt8 = at::kByte;
constexpr auto kI8 = at::kChar;
constexpr auto kInt8 = at::kChar;
constexpr auto kI16 = at::kShort;
constexpr auto kInt16 = at::kShort;
constexpr auto kI32 = at::kInt;
constexpr auto kInt32 = at::kInt;
constexpr auto kI64 = at::kLong;
constexpr auto kInt64 = at::kLong;
constexpr auto kF16 = at::kHalf;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kF32 = at::kFloat;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kF64 = at::kDouble;
constexpr auto kFloat64 = at::kDouble;

inline TensorOptions dtype(ScalarType type) { return TensorOptions().dtype(type); }
inline TensorOptions device(Device where) { return TensorOptions().device(where); }
inline TensorOptions requires_grad(bool on) { return TensorOptions().requires_grad(on); }


}  // namespace torch
