// at::Tensor and the functions over it, declared only.
#pragma once

#include "core.h"

namespace at {

using namespace c10;

constexpr auto kByte = ScalarType::Byte;
constexpr auto kChar = ScalarType::Char;
constexpr auto kShort = ScalarType::Short;
constexpr auto kInt = ScalarType::Int;
constexpr auto kLong = ScalarType::Long;
constexpr auto kHalf = ScalarType::Half;
constexpr auto kFloat = ScalarType::Float;
constexpr auto kDouble = ScalarType::Double;
constexpr auto kBool = ScalarType::Bool;
constexpr auto kBFloat16 = ScalarType::BFloat16;
constexpr auto kComplexFloat = ScalarType::ComplexFloat;
constexpr auto kComplexDouble = ScalarType::ComplexDouble;

// Converts from and to whatever an argument needs.
struct Anything {
  template <class T>
  Anything(const T&);
  Anything(std::initializer_list<int64_t>);
};

template <class T>
struct DefaultPtrTraits {
  typedef T* PtrType;
};
template <class T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};

template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
struct TensorAccessor {
  __host__ __device__ TensorAccessor<T, N - 1, Traits, Index> operator[](Index) const;
  __host__ __device__ Index size(Index) const;
  __host__ __device__ Index stride(Index) const;
  __host__ __device__ T* data() const;
};
template <class T, template <class> class Traits, class Index>
struct TensorAccessor<T, 1, Traits, Index> {
  __host__ __device__ T& operator[](Index) const;
  __host__ __device__ Index size(Index) const;
  __host__ __device__ Index stride(Index) const;
  __host__ __device__ T* data() const;
};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
struct GenericPackedTensorAccessor : TensorAccessor<T, N, Traits, Index> {};
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int32_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, int64_t>;
template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, int64_t>;

struct DeprecatedTypeProperties {
  operator ScalarType() const;
  bool is_cuda() const;
  ScalarType scalarType() const;
  std::string toString() const;
};

struct Dtype {
  operator ScalarType() const;
  size_t itemsize() const;
  const char* name() const;
  bool operator==(ScalarType) const;
  bool operator!=(ScalarType) const;
  bool operator==(const Dtype&) const;
  bool operator!=(const Dtype&) const;
};
std::ostream& operator<<(std::ostream&, const Dtype&);

// A function or method that takes anything and returns a tensor.
#define DICE_METHOD(NAME) \
  template <class... A>   \
  Tensor NAME(const A&...) const;
#define DICE_METHOD_SIZES(NAME)     \
  DICE_METHOD(NAME)                 \
  Tensor NAME(IntArrayRef) const;   \
  template <class... A>             \
  Tensor NAME(IntArrayRef, const A&...) const;
#define DICE_INPLACE(NAME) \
  template <class... A>    \
  Tensor& NAME(const A&...) const;

struct Tensor {
  Tensor();
  Tensor(const Tensor&);
  Tensor(Tensor&&);
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&);

  bool defined() const;
  void reset();
  int64_t size(int64_t) const;
  int64_t stride(int64_t) const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t numel() const;
  size_t nbytes() const;
  size_t itemsize() const;
  int64_t element_size() const;
  int64_t dim() const;
  int64_t ndimension() const;
  int64_t storage_offset() const;
  Storage storage() const;
  TensorOptions options() const;
  ScalarType scalar_type() const;
  Dtype dtype() const;
  DeprecatedTypeProperties type() const;
  Device device() const;
  int64_t get_device() const;
  Layout layout() const;
  bool is_cuda() const;
  bool is_cpu() const;
  bool is_contiguous(MemoryFormat = MemoryFormat::Contiguous) const;
  bool is_floating_point() const;
  bool is_complex() const;
  bool is_sparse() const;
  bool is_same(const Tensor&) const;
  bool requires_grad() const;
  bool equal(const Tensor&) const;
  Tensor grad() const;
  const Tensor& set_requires_grad(bool) const;
  MemoryFormat suggest_memory_format() const;

  void* data_ptr() const;
  const void* const_data_ptr() const;
  void* mutable_data_ptr() const;
  template <class T>
  T* data_ptr() const;
  template <class T>
  const T* const_data_ptr() const;
  template <class T>
  T* mutable_data_ptr() const;
  template <class T>
  T* data() const;
  Tensor data() const;
  template <class T>
  T item() const;
  Scalar item() const;
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, Traits> packed_accessor32() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, Traits> packed_accessor64() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, Traits> packed_accessor() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits, class Index = int64_t>
  GenericPackedTensorAccessor<T, N, Traits, Index> generic_packed_accessor() const;

  DICE_METHOD(contiguous) DICE_METHOD(clone) DICE_METHOD(detach) DICE_METHOD(to)
  DICE_METHOD(toType) DICE_METHOD(cuda) DICE_METHOD(cpu) DICE_METHOD(alias)
  DICE_METHOD_SIZES(view) DICE_METHOD_SIZES(reshape) DICE_METHOD_SIZES(permute)
  DICE_METHOD_SIZES(expand) DICE_METHOD_SIZES(repeat) DICE_METHOD_SIZES(sum)
  DICE_METHOD_SIZES(mean) DICE_METHOD_SIZES(flip) DICE_METHOD_SIZES(roll)
  DICE_METHOD_SIZES(new_empty) DICE_METHOD_SIZES(new_zeros) DICE_METHOD_SIZES(new_full)
  DICE_METHOD_SIZES(new_ones) DICE_METHOD_SIZES(as_strided) DICE_METHOD_SIZES(amax)
  DICE_METHOD_SIZES(amin) DICE_METHOD_SIZES(squeeze) DICE_METHOD_SIZES(var)
  DICE_METHOD_SIZES(std) DICE_METHOD_SIZES(norm) DICE_METHOD_SIZES(logsumexp)
  Tensor as_strided(IntArrayRef, IntArrayRef) const;
  DICE_METHOD(view_as) DICE_METHOD(reshape_as) DICE_METHOD(transpose) DICE_METHOD(t)
  DICE_METHOD(unsqueeze) DICE_METHOD(flatten) DICE_METHOD(expand_as) DICE_METHOD(slice)
  DICE_METHOD(select) DICE_METHOD(narrow) DICE_METHOD(index_select) DICE_METHOD(gather)
  DICE_METHOD(scatter) DICE_METHOD(unfold) DICE_METHOD(masked_fill) DICE_METHOD(masked_select)
  DICE_METHOD(argmax) DICE_METHOD(argmin) DICE_METHOD(prod) DICE_METHOD(cumsum)
  DICE_METHOD(cumprod) DICE_METHOD(softmax) DICE_METHOD(log_softmax) DICE_METHOD(sqrt)
  DICE_METHOD(rsqrt) DICE_METHOD(exp) DICE_METHOD(log) DICE_METHOD(abs) DICE_METHOD(neg)
  DICE_METHOD(sigmoid) DICE_METHOD(tanh) DICE_METHOD(relu) DICE_METHOD(pow) DICE_METHOD(square)
  DICE_METHOD(clamp) DICE_METHOD(clamp_min) DICE_METHOD(clamp_max) DICE_METHOD(matmul)
  DICE_METHOD(mm) DICE_METHOD(bmm) DICE_METHOD(mv) DICE_METHOD(dot) DICE_METHOD(add)
  DICE_METHOD(sub) DICE_METHOD(mul) DICE_METHOD(div) DICE_METHOD(eq) DICE_METHOD(ne)
  DICE_METHOD(gt) DICE_METHOD(ge) DICE_METHOD(lt) DICE_METHOD(le) DICE_METHOD(any)
  DICE_METHOD(all) DICE_METHOD(nonzero) DICE_METHOD(where) DICE_METHOD(triu) DICE_METHOD(tril)
  DICE_METHOD(diagonal) DICE_METHOD(tile) DICE_METHOD(movedim) DICE_METHOD(swapaxes)
  DICE_METHOD(floor) DICE_METHOD(ceil) DICE_METHOD(round) DICE_METHOD(sin) DICE_METHOD(cos)
  DICE_METHOD(type_as) DICE_METHOD(logical_not) DICE_METHOD(logical_and) DICE_METHOD(erf)
  DICE_METHOD(repeat_interleave) DICE_METHOD(addmm) DICE_METHOD(baddbmm) DICE_METHOD(view_dtype)
  Tensor max() const;
  Tensor min() const;
  Tensor max(const Tensor&) const;
  Tensor min(const Tensor&) const;
  std::tuple<Tensor, Tensor> max(int64_t, bool = false) const;
  std::tuple<Tensor, Tensor> min(int64_t, bool = false) const;
  std::tuple<Tensor, Tensor> sort(int64_t = -1, bool = false) const;
  std::tuple<Tensor, Tensor> topk(int64_t, int64_t = -1, bool = true, bool = true) const;
  std::vector<Tensor> chunk(int64_t, int64_t = 0) const;
  std::vector<Tensor> split(int64_t, int64_t = 0) const;
  std::vector<Tensor> unbind(int64_t = 0) const;
  Tensor index(std::initializer_list<Anything>) const;
  template <class T>
  Tensor& index_put_(std::initializer_list<Anything>, const T&) const;
  Tensor operator[](int64_t) const;

  DICE_INPLACE(fill_) DICE_INPLACE(zero_) DICE_INPLACE(copy_) DICE_INPLACE(add_)
  DICE_INPLACE(sub_) DICE_INPLACE(mul_) DICE_INPLACE(div_) DICE_INPLACE(clamp_)
  DICE_INPLACE(relu_) DICE_INPLACE(exp_) DICE_INPLACE(sqrt_) DICE_INPLACE(sigmoid_)
  DICE_INPLACE(tanh_) DICE_INPLACE(masked_fill_) DICE_INPLACE(scatter_) DICE_INPLACE(addmm_)
  DICE_INPLACE(scatter_add_) DICE_INPLACE(index_add_) DICE_INPLACE(transpose_)
  DICE_INPLACE(unsqueeze_) DICE_INPLACE(squeeze_) DICE_INPLACE(random_) DICE_INPLACE(normal_)
  DICE_INPLACE(uniform_) DICE_INPLACE(requires_grad_) DICE_INPLACE(resize_) DICE_INPLACE(neg_)
  Tensor& resize_(IntArrayRef) const;

  Tensor& operator+=(const Tensor&);
  Tensor& operator-=(const Tensor&);
  Tensor& operator*=(const Tensor&);
  Tensor& operator/=(const Tensor&);
  Tensor& operator+=(Scalar);
  Tensor& operator-=(Scalar);
  Tensor& operator*=(Scalar);
  Tensor& operator/=(Scalar);
  Tensor operator-() const;
  Tensor operator~() const;
};
#undef DICE_METHOD
#undef DICE_METHOD_SIZES
#undef DICE_INPLACE
std::ostream& operator<<(std::ostream&, const Tensor&);

#define DICE_OPERATOR(OP)                     \
  Tensor operator OP(const Tensor&, const Tensor&); \
  Tensor operator OP(const Tensor&, Scalar);  \
  Tensor operator OP(Scalar, const Tensor&);
DICE_OPERATOR(+) DICE_OPERATOR(-) DICE_OPERATOR(*) DICE_OPERATOR(/) DICE_OPERATOR(%)
DICE_OPERATOR(==) DICE_OPERATOR(!=) DICE_OPERATOR(<) DICE_OPERATOR(<=) DICE_OPERATOR(>)
DICE_OPERATOR(>=) DICE_OPERATOR(&) DICE_OPERATOR(|) DICE_OPERATOR(^)
#undef DICE_OPERATOR

using TensorList = ArrayRef<Tensor>;
using OptionalDeviceRef = std::optional<Device>;

#define DICE_FUNCTION(NAME) \
  template <class... A>     \
  Tensor NAME(const A&...);
// For functions whose sizes may be written in braces, which no template can deduce.
#define DICE_FACTORY(NAME)         \
  Tensor NAME(IntArrayRef);        \
  template <class... A>            \
  Tensor NAME(IntArrayRef, const A&...);
#define DICE_AFTER_TENSOR(NAME)                  \
  DICE_FUNCTION(NAME)                            \
  Tensor NAME(const Tensor&, IntArrayRef);       \
  template <class... A>                          \
  Tensor NAME(const Tensor&, IntArrayRef, const A&...);
#define DICE_OF_LIST(NAME)               \
  Tensor NAME(TensorList, int64_t = 0);  \
  Tensor NAME(std::initializer_list<Tensor>, int64_t = 0);

DICE_FACTORY(empty) DICE_FACTORY(zeros) DICE_FACTORY(ones) DICE_FACTORY(full)
DICE_FACTORY(rand) DICE_FACTORY(randn)
Tensor empty_strided(IntArrayRef, IntArrayRef, TensorOptions = {});
template <class... A>
Tensor randint(int64_t, IntArrayRef, const A&...);
template <class... A>
Tensor from_blob(void*, IntArrayRef, const A&...);
template <class T>
Tensor tensor(std::initializer_list<T>, TensorOptions = {});
template <class T>
Tensor tensor(const T&, TensorOptions = {});
DICE_FUNCTION(empty_like) DICE_FUNCTION(zeros_like) DICE_FUNCTION(ones_like)
DICE_FUNCTION(full_like) DICE_FUNCTION(rand_like) DICE_FUNCTION(randn_like) DICE_FUNCTION(arange)
DICE_FUNCTION(linspace) DICE_FUNCTION(eye) DICE_FUNCTION(scalar_tensor)
DICE_FUNCTION(matmul) DICE_FUNCTION(mm) DICE_FUNCTION(bmm) DICE_FUNCTION(addmm)
DICE_FUNCTION(baddbmm) DICE_FUNCTION(linear) DICE_FUNCTION(mv) DICE_FUNCTION(dot)
DICE_FUNCTION(einsum) DICE_FUNCTION(add) DICE_FUNCTION(sub) DICE_FUNCTION(mul)
DICE_FUNCTION(div) DICE_FUNCTION(exp) DICE_FUNCTION(log) DICE_FUNCTION(sqrt)
DICE_FUNCTION(rsqrt) DICE_FUNCTION(abs) DICE_FUNCTION(pow) DICE_FUNCTION(sigmoid)
DICE_FUNCTION(tanh) DICE_FUNCTION(relu) DICE_FUNCTION(gelu) DICE_FUNCTION(silu)
DICE_FUNCTION(softmax) DICE_FUNCTION(log_softmax) DICE_FUNCTION(softplus) DICE_FUNCTION(clamp)
DICE_FUNCTION(where) DICE_FUNCTION(maximum) DICE_FUNCTION(minimum) DICE_FUNCTION(max)
DICE_FUNCTION(min) DICE_FUNCTION(argmax) DICE_FUNCTION(argmin) DICE_FUNCTION(sin)
DICE_FUNCTION(cos) DICE_FUNCTION(erf) DICE_FUNCTION(floor) DICE_FUNCTION(ceil)
DICE_FUNCTION(round) DICE_FUNCTION(square) DICE_FUNCTION(neg) DICE_FUNCTION(transpose)
DICE_FUNCTION(unsqueeze) DICE_FUNCTION(flatten) DICE_FUNCTION(squeeze) DICE_FUNCTION(cumsum)
DICE_FUNCTION(cumprod) DICE_FUNCTION(prod) DICE_FUNCTION(index_select) DICE_FUNCTION(gather)
DICE_FUNCTION(any) DICE_FUNCTION(all) DICE_FUNCTION(isnan) DICE_FUNCTION(isinf)
DICE_FUNCTION(layer_norm) DICE_FUNCTION(batch_norm) DICE_FUNCTION(group_norm)
DICE_FUNCTION(dropout) DICE_FUNCTION(embedding) DICE_FUNCTION(triu) DICE_FUNCTION(tril)
DICE_FUNCTION(logical_and) DICE_FUNCTION(logical_or) DICE_FUNCTION(outer) DICE_FUNCTION(nonzero)
DICE_AFTER_TENSOR(sum) DICE_AFTER_TENSOR(mean) DICE_AFTER_TENSOR(amax) DICE_AFTER_TENSOR(amin)
DICE_AFTER_TENSOR(var) DICE_AFTER_TENSOR(std) DICE_AFTER_TENSOR(norm) DICE_AFTER_TENSOR(reshape)
DICE_AFTER_TENSOR(permute) DICE_AFTER_TENSOR(flip) DICE_AFTER_TENSOR(roll)
DICE_AFTER_TENSOR(logsumexp) DICE_AFTER_TENSOR(constant_pad_nd) DICE_AFTER_TENSOR(pad)
template <class... A>
Tensor conv1d(const Tensor&, const Tensor&, const A&...);
template <class... A>
Tensor conv2d(const Tensor&, const Tensor&, const A&...);
Tensor conv2d(const Tensor&, const Tensor&, const Tensor&, IntArrayRef, IntArrayRef = 0,
              IntArrayRef = 1, int64_t = 1);
template <class... A>
Tensor conv3d(const Tensor&, const Tensor&, const A&...);
template <class... A>
Tensor conv_transpose2d(const Tensor&, const Tensor&, const A&...);
DICE_OF_LIST(cat) DICE_OF_LIST(stack) DICE_OF_LIST(concat)
std::vector<Tensor> meshgrid(TensorList);
std::vector<Tensor> chunk(const Tensor&, int64_t, int64_t = 0);
std::vector<Tensor> split(const Tensor&, int64_t, int64_t = 0);
std::tuple<Tensor, Tensor> topk(const Tensor&, int64_t, int64_t = -1, bool = true, bool = true);
std::tuple<Tensor, Tensor> sort(const Tensor&, int64_t = -1, bool = false);
#undef DICE_FUNCTION
#undef DICE_FACTORY
#undef DICE_AFTER_TENSOR
#undef DICE_OF_LIST

std::optional<Device> device_of(const Tensor&);
struct NoGradGuard {};
namespace indexing {
struct Slice {
  template <class... A>
  Slice(A...);
};
constexpr int Ellipsis = 0;
constexpr int None = 0;
}  // namespace indexing

template <class T>
struct OpMathType {
  using type = T;
};
template <>
struct OpMathType<Half> {
  using type = float;
};
template <>
struct OpMathType<BFloat16> {
  using type = float;
};
template <class T>
using opmath_type = typename OpMathType<T>::type;
template <class T, bool Cuda>
using acc_type = opmath_type<T>;

}  // namespace at

namespace torch {

using namespace at;
using at::Device;
using at::Tensor;
using at::TensorOptions;
using Dtype = c10::ScalarType;

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

TensorOptions dtype(ScalarType);
TensorOptions device(Device);
TensorOptions requires_grad(bool);
namespace cuda {
bool is_available();
int64_t device_count();
void synchronize(int64_t = -1);
}  // namespace cuda

}  // namespace torch
