// kernel<<<grid, block, shared, stream>>>(arguments) as one C++ expression.
//
// The rewriter turns a launch into SIMT_LAUNCH((kernel), (grid, block, ...), arguments...). It has
// to stay one expression: temporaries in the arguments live to the end of it, as they do in CUDA.
#pragma once

#include <array>
#include <tuple>

#include "context.h"

namespace simt {

// Streams are no-ops here: a launch has finished when it returns.
struct StreamArgument {
  StreamArgument(int = 0) {}
  StreamArgument(std::nullptr_t) {}
  template <class Stream, class = std::enable_if_t<!std::is_arithmetic_v<Stream>>>
  StreamArgument(const Stream&) {}
};

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  size_t dynamic_shared;

  LaunchConfig(dim3 grid_, dim3 block_, size_t dynamic_shared_ = 0, StreamArgument = {})
      : grid(grid_), block(block_), dynamic_shared(dynamic_shared_) {}
};

// A kernel parameter that is a pointer: lets diagnostics call memory by the argument's name.
struct PointerArgument {
  const void* pointer;
  int index;
};

struct LaunchRequest {
  dim3 grid;
  dim3 block;
  size_t dynamic_shared;
  void (*run_thread)(void*);
  void* arguments;
  const char* kernel;
  const char* argument_text;  // the arguments as written, separated by commas
  const PointerArgument* pointers;
  int pointer_count;
};

void launch_kernel(const LaunchRequest& request);

// Every thread calls the kernel with its own copy of the by-value parameters, made from one tuple.
template <class Kernel, class... Args>
void launch(const LaunchConfig& config, Kernel kernel, const char* name, const char* text,
            Args&&... args) {
  using Parameters = std::tuple<std::decay_t<Args>...>;
  struct Packet {
    Kernel& kernel;
    Parameters parameters;
  };
  Packet packet{kernel, Parameters(std::forward<Args>(args)...)};
  std::array<PointerArgument, sizeof...(Args) + 1> pointers;
  int pointer_count = 0;
  int index = 0;
  auto collect = [&](const auto& value) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
      pointers[pointer_count++] = {(const void*)value, index};
    }
    index++;
  };
  std::apply([&](const auto&... values) { (collect(values), ...); }, packet.parameters);
  LaunchRequest request{config.grid,
                        config.block,
                        config.dynamic_shared,
                        [](void* p) {
                          Packet& packet = *static_cast<Packet*>(p);
                          std::apply(packet.kernel, packet.parameters);
                        },
                        &packet,
                        name,
                        text,
                        pointers.data(),
                        pointer_count};
  launch_kernel(request);
}

}  // namespace simt

#define SIMT_LAUNCH(kernel, config, ...)                                               \
  ::simt::launch(                                                                      \
      ::simt::LaunchConfig config, [&](auto&... simt_args) { kernel(simt_args...); },  \
      #kernel, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__)
