// Values of several types, side by side. std::tuple does it too, but its constructors cost the compiler
// most of the time that it spends on a generated extension.
#pragma once

#include <cstddef>
#include <utility>

namespace simt {

template <size_t I, class T>
struct Leaf {
  T value;
};

template <class Indices, class... T>
struct PackOf;

template <size_t... I, class... T>
struct PackOf<std::index_sequence<I...>, T...> : Leaf<I, T>... {
  // Calls function(values...) and returns what it returns.
  template <class Function>
  decltype(auto) apply(Function&& function) {
    return function(static_cast<Leaf<I, T>&>(*this).value...);
  }
};

// An aggregate: Pack<int, float>{{1}, {2.0f}}.
template <class... T>
using Pack = PackOf<std::index_sequence_for<T...>, T...>;

}  // namespace simt
