// Declarations of c10's small types, for nvcc's front end only: nothing here is ever linked or run.
// The host code has been compiled against the real headers already, so these may accept too much.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace c10 {

template <class T>
struct ArrayRef {
  ArrayRef();
  ArrayRef(const T&);
  ArrayRef(const T*, size_t);
  ArrayRef(const T*, const T*);
  ArrayRef(std::initializer_list<T>);
  template <class U>
  ArrayRef(const std::vector<U>&);
  template <class U, size_t N>
  ArrayRef(const std::array<U, N>&);
  const T* begin() const;
  const T* end() const;
  const T* data() const;
  size_t size() const;
  bool empty() const;
  const T& operator[](size_t) const;
  const T& front() const;
  const T& back() const;
  const T& at(size_t) const;
  std::vector<T> vec() const;
  ArrayRef slice(size_t, size_t = 0) const;
  bool equals(ArrayRef) const;
  bool operator==(const ArrayRef&) const;
  bool operator!=(const ArrayRef&) const;
};
using IntArrayRef = ArrayRef<int64_t>;
template <class T>
std::ostream& operator<<(std::ostream&, const ArrayRef<T>&);

#define DICE_HALF_TYPE(NAME)                                          \
  struct alignas(2) NAME {                                            \
    unsigned short x;                                                 \
    NAME() = default;                                                 \
    __host__ __device__ NAME(float value);                            \
    __host__ __device__ operator float() const;                       \
    __host__ __device__ NAME& operator+=(const NAME&);                \
    __host__ __device__ NAME& operator-=(const NAME&);                \
    __host__ __device__ NAME& operator*=(const NAME&);                \
    __host__ __device__ NAME& operator/=(const NAME&);                \
  };                                                                  \
  __host__ __device__ NAME operator+(const NAME&, const NAME&);       \
  __host__ __device__ NAME operator-(const NAME&, const NAME&);       \
  __host__ __device__ NAME operator*(const NAME&, const NAME&);       \
  __host__ __device__ NAME operator/(const NAME&, const NAME&);       \
  __host__ __device__ NAME operator-(const NAME&);                    \
  __host__ __device__ float operator+(const NAME&, float);            \
  __host__ __device__ float operator+(float, const NAME&);            \
  __host__ __device__ float operator-(const NAME&, float);            \
  __host__ __device__ float operator-(float, const NAME&);            \
  __host__ __device__ float operator*(const NAME&, float);            \
  __host__ __device__ float operator*(float, const NAME&);            \
  __host__ __device__ float operator/(const NAME&, float);            \
  __host__ __device__ float operator/(float, const NAME&);
DICE_HALF_TYPE(Half)
DICE_HALF_TYPE(BFloat16)
#undef DICE_HALF_TYPE

template <class T>
struct complex {
  T real_, imag_;
  __host__ __device__ constexpr complex(T real = T(), T imag = T()) : real_(real), imag_(imag) {}
  __host__ __device__ constexpr T real() const { return real_; }
  __host__ __device__ constexpr T imag() const { return imag_; }
};

enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble,
  Bool, QInt8, QUInt8, QInt32, BFloat16, UInt16 = 27, UInt32, UInt64, Undefined = 45
};
enum class DeviceType : int8_t { CPU, CUDA };
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
enum class Layout : int8_t { Strided, Sparse };
constexpr auto kCPU = DeviceType::CPU;
constexpr auto kCUDA = DeviceType::CUDA;
constexpr auto kStrided = Layout::Strided;
const char* toString(ScalarType);
size_t elementSize(ScalarType);
std::ostream& operator<<(std::ostream&, ScalarType);
std::ostream& operator<<(std::ostream&, DeviceType);

using DeviceIndex = int8_t;
struct Device {
  Device(DeviceType, DeviceIndex = -1);
  Device(const std::string&);
  Device(const char*);
  bool is_cuda() const;
  bool is_cpu() const;
  bool has_index() const;
  DeviceIndex index() const;
  DeviceType type() const;
  std::string str() const;
  bool operator==(const Device&) const;
  bool operator!=(const Device&) const;
};
std::ostream& operator<<(std::ostream&, const Device&);

struct Scalar {
  Scalar();
  template <class T>
  Scalar(T);
  template <class T>
  T to() const;
  double toDouble() const;
  float toFloat() const;
  int64_t toLong() const;
  int toInt() const;
  bool toBool() const;
  bool isFloatingPoint() const;
  ScalarType type() const;
};

template <class T>
using optional = std::optional<T>;
using std::nullopt;
using std::nullopt_t;
using string_view = std::string_view;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TensorOptions {
  TensorOptions();
  TensorOptions(ScalarType);
  TensorOptions(Device);
  TensorOptions(DeviceType);
  TensorOptions(Layout);
  TensorOptions(MemoryFormat);
  TensorOptions dtype(std::optional<ScalarType>) const;
  TensorOptions device(std::optional<Device>) const;
  TensorOptions device(DeviceType, DeviceIndex = -1) const;
  TensorOptions device(const std::string&) const;
  TensorOptions device(const char*) const;
  TensorOptions layout(Layout) const;
  TensorOptions requires_grad(bool) const;
  TensorOptions memory_format(MemoryFormat) const;
  TensorOptions pinned_memory(bool) const;
  ScalarType dtype() const;
  Device device() const;
};

struct Storage {
  void* data() const;
  size_t nbytes() const;
};

template <class T, class U>
__host__ __device__ constexpr auto ceil_div(T a, U b) {
  return (a + b - 1) / b;
}

}  // namespace c10

template <class... A>
std::string dice_text(const A&...);

#define TORCH_CHECK(CONDITION, ...)                                      \
  do {                                                                   \
    if (!(CONDITION)) throw c10::Error(dice_text("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (0)
#define TORCH_CHECK_TYPE TORCH_CHECK
#define TORCH_CHECK_VALUE TORCH_CHECK
#define TORCH_CHECK_INDEX TORCH_CHECK
#define TORCH_CHECK_NOT_IMPLEMENTED TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_ASSERT(...) TORCH_CHECK((__VA_ARGS__))
#define AT_ERROR(...) throw c10::Error(dice_text(__VA_ARGS__))
#define TORCH_CHECK_EQ(A, B, ...) TORCH_CHECK((A) == (B))
#define TORCH_CHECK_NE(A, B, ...) TORCH_CHECK((A) != (B))
#define TORCH_CHECK_GT(A, B, ...) TORCH_CHECK((A) > (B))
#define TORCH_CHECK_GE(A, B, ...) TORCH_CHECK((A) >= (B))
#define TORCH_CHECK_LT(A, B, ...) TORCH_CHECK((A) < (B))
#define TORCH_CHECK_LE(A, B, ...) TORCH_CHECK((A) <= (B))
#define TORCH_WARN(...) ((void)0)
#define TORCH_WARN_ONCE(...) ((void)0)
#define C10_UNUSED [[maybe_unused]]
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_RESTRICT __restrict__
#define C10_ALWAYS_INLINE __forceinline__ inline
#define C10_LIKELY(x) (x)
#define C10_UNLIKELY(x) (x)
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(a) __launch_bounds__(a)
#define C10_LAUNCH_BOUNDS_2(a, b) __launch_bounds__(a, b)
