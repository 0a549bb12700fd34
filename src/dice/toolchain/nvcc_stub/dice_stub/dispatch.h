// AT_DISPATCH_*: every case is instantiated, as under the real headers.
#pragma once

#include "tensor.h"

#define DICE_CASE(KIND, TYPE, ...)                  \
  case at::ScalarType::KIND: {                      \
    using scalar_t [[maybe_unused]] = TYPE;         \
    return __VA_ARGS__();                           \
  }
#define DICE_FLOATING(...)                          \
  DICE_CASE(Double, double, __VA_ARGS__)            \
  DICE_CASE(Float, float, __VA_ARGS__)
#define DICE_INTEGRAL(...)                          \
  DICE_CASE(Byte, uint8_t, __VA_ARGS__)             \
  DICE_CASE(Char, int8_t, __VA_ARGS__)              \
  DICE_CASE(Short, int16_t, __VA_ARGS__)            \
  DICE_CASE(Int, int32_t, __VA_ARGS__)              \
  DICE_CASE(Long, int64_t, __VA_ARGS__)
#define DICE_SWITCH(TYPE, NAME, ...)                \
  [&] {                                             \
    switch (at::ScalarType(TYPE)) {                 \
      __VA_ARGS__                                   \
      default:                                      \
        throw c10::Error(NAME);                     \
    }                                               \
  }()

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_CASE(Half, at::Half, __VA_ARGS__))
// AND, AND2: the extra types are Half and BFloat16 whichever were named; that instantiates enough.
#define AT_DISPATCH_FLOATING_TYPES_AND(EXTRA, TYPE, NAME, ...) \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_CASE(Half, at::Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...)                   \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_CASE(Half, at::Half, __VA_ARGS__) \
              DICE_CASE(BFloat16, at::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...)            \
  DICE_SWITCH(TYPE, NAME, DICE_CASE(Half, at::Half, __VA_ARGS__)       \
              DICE_CASE(BFloat16, at::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  DICE_SWITCH(TYPE, NAME, DICE_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                        \
  [&] {                                                                 \
    switch (at::ScalarType(TYPE)) {                                     \
      case at::ScalarType::Int: {                                       \
        using index_t [[maybe_unused]] = int32_t;                       \
        return __VA_ARGS__();                                           \
      }                                                                 \
      case at::ScalarType::Long: {                                      \
        using index_t [[maybe_unused]] = int64_t;                       \
        return __VA_ARGS__();                                           \
      }                                                                 \
      default:                                                          \
        throw c10::Error(NAME);                                         \
    }                                                                   \
  }()
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_INTEGRAL(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(EXTRA, TYPE, NAME, ...)                   \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_INTEGRAL(__VA_ARGS__) \
              DICE_CASE(Half, at::Half, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...)                       \
  DICE_SWITCH(TYPE, NAME, DICE_FLOATING(__VA_ARGS__) DICE_INTEGRAL(__VA_ARGS__) \
              DICE_CASE(Half, at::Half, __VA_ARGS__)                            \
              DICE_CASE(BFloat16, at::BFloat16, __VA_ARGS__))
