// kernel<<<grid, block, shared, stream>>>(arguments) as one C++ expression.
//
// The rewriter turns a launch into SIMT_LAUNCH((kernel), (grid, block, ...), arguments...). It has
// to stay one expression: temporaries in the arguments live to the end of it, as they do in CUDA.
#pragma once

#include <utility>

#include "context.h"
#include "pack.h"

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

struct PointerList {
  PointerArgument* entries;
  int count = 0;
  int index = 0;  // of the next argument, pointer or not
};

template <class T>
void note_argument(PointerList& list, const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    list.entries[list.count++] = {(const void*)value, list.index};
  }
  list.index++;
}

// Every thread calls the kernel with its own copy of the by-value parameters, made from one pack.
template <class Kernel, class... Args>
void launch(const LaunchConfig& config, Kernel kernel, const char* name, const char* text,
            Args&&... args) {
  struct Packet {
    Kernel& kernel;
    Pack<std::decay_t<Args>...> parameters;
  };
  Packet packet{kernel, {{std::forward<Args>(args)}...}};
  PointerArgument entries[sizeof...(Args) + 1];
  PointerList pointers{entries};
  packet.parameters.apply([&](const auto&... values) { (note_argument(pointers, values), ...); });
  LaunchRequest request{config.grid,
                        config.block,
                        config.dynamic_shared,
                        [](void* p) {
                          Packet& packet = *static_cast<Packet*>(p);
                          packet.parameters.apply(packet.kernel);
                        },
                        &packet,
                        name,
                        text,
                        entries,
                        pointers.count};
  launch_kernel(request);
}

}  // namespace simt

#define SIMT_LAUNCH(kernel, config, ...)                                               \
  ::simt::launch(                                                                      \
      ::simt::LaunchConfig config, [&](auto&... simt_args) { kernel(simt_args...); },  \
      #kernel, #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__)
