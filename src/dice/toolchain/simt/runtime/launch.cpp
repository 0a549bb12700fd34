// Launches: configuration errors, thread blocks spread over OS threads, and the host's settings.
//
// OS threads live for one launch only. A process that forks between launches therefore never
// loses a pool, and nothing runs before the first launch.
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "internal.h"

namespace simt {

Options options;

namespace {

constexpr int error_invalid_value = 1;
constexpr int error_invalid_configuration = 9;

thread_local int pending_error = 0;
std::atomic<size_t> allowed_dynamic_shared{shared_default};
std::atomic<uint64_t> launch_count{0};
std::atomic<bool> skip_launches{false};

std::mutex pool_mutex;
std::vector<Block*> idle_blocks;

Block* take_block() {
  std::lock_guard lock(pool_mutex);
  if (idle_blocks.empty()) {
    return new Block;
  }
  Block* block = idle_blocks.back();
  idle_blocks.pop_back();
  return block;
}

void give_back(Block* block) {
  block->request = nullptr;
  std::lock_guard lock(pool_mutex);
  idle_blocks.push_back(block);
}

void refuse(int code, const std::string& why) {
  pending_error = code;
  report_at({.kind = "launch_error", .message = "the launch was refused: " + why, .array = "", .bytes = 0},
            {0, 0, 0}, {0, 0, 0});
}

std::string triple_text(dim3 v) {
  return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
}

// A GPU's limits. The kernel does not run, and the error stays pending for cudaGetLastError.
bool accept(const LaunchRequest& request) {
  dim3 grid = request.grid;
  dim3 block = request.block;
  uint64_t threads = uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) {
    refuse(error_invalid_configuration, "a block of " + triple_text(block) + " threads");
    return false;
  }
  bool empty = grid.x == 0 || grid.y == 0 || grid.z == 0;
  if (empty || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    refuse(error_invalid_configuration, "a grid of " + triple_text(grid) + " blocks");
    return false;
  }
  std::string shared = std::to_string(request.dynamic_shared) + " bytes of dynamic shared memory";
  if (request.dynamic_shared > shared_limit) {
    refuse(error_invalid_configuration, shared + ", more than " + std::to_string(shared_limit));
    return false;
  }
  if (request.dynamic_shared > allowed_dynamic_shared) {
    refuse(error_invalid_value, shared + ", more than " + std::to_string(allowed_dynamic_shared) +
                                    " without cudaFuncSetAttribute");
    return false;
  }
  return true;
}

// Which launches get which is without a period: a kernel that is always launched third gets both.
uint64_t unset_value(uint64_t launch) {
  constexpr uint64_t golden_ratio = 0x9E3779B97F4A7C15;
  return launch * golden_ratio >> 63 ? 0xFEFEFEFEFEFEFEFE : 0x7E7E7E7E7E7E7E7E;
}

struct Work {
  const LaunchRequest& request;
  uint64_t blocks;
  uint64_t chunk;
  uint64_t unset;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::string failure;

  void fail(const std::string& message) {
    std::lock_guard lock(mutex);
    if (failure.empty()) {
      failure = message;
    }
    stop = true;
  }
};

void run_worker(Work& work) {
  Context saved = context;
  Block* block = take_block();
  begin_worker_checks();
  bool descending = options.order == 1;
  context.unset = work.unset;
  try {
    while (!work.stop) {
      uint64_t begin = work.next.fetch_add(work.chunk);
      if (begin >= work.blocks) {
        break;
      }
      uint64_t end = std::min(work.blocks, begin + work.chunk);
      for (uint64_t k = begin; k < end && !work.stop; k++) {
        run_block(*block, work.request, descending ? work.blocks - 1 - k : k);
      }
    }
  } catch (const std::exception& error) {
    work.fail(error.what());
  }
  give_back(block);
  context = saved;
}

}  // namespace

void launch_kernel(const LaunchRequest& request) {
  if (context.block != nullptr) {
    throw Error("a kernel launched a kernel: dynamic parallelism is not covered");
  }
  set_kernel_name(request.kernel);
  uint64_t number = ++launch_count;
  if (!accept(request) || skip_launches) {
    return;
  }
  Work work{.request = request,
            .blocks = uint64_t(request.grid.x) * request.grid.y * request.grid.z,
            .chunk = 0,
            .unset = unset_value(number)};
  int limit = options.os_threads;
  uint64_t workers = limit > 0 ? limit : std::max(1u, std::thread::hardware_concurrency());
  work.chunk = std::clamp<uint64_t>(work.blocks / (workers * 8 + 1), 1, 64);
  workers = std::min(workers, (work.blocks + work.chunk - 1) / work.chunk);
  begin_launch_checks(request, work.blocks);
  std::vector<std::thread> helpers;
  for (uint64_t k = 1; k < workers; k++) {
    helpers.emplace_back([&work] { run_worker(work); });
  }
  run_worker(work);
  for (std::thread& helper : helpers) {
    helper.join();
  }
  if (!work.failure.empty()) {
    throw Error("kernel " + kernel_name() + ": " + work.failure);
  }
}

int take_error(bool clear) {
  int code = pending_error;
  if (clear) {
    pending_error = 0;
  }
  return code;
}

void set_error(int code) {
  pending_error = code;
}

// The real call allows one kernel; the emulator cannot tell kernels apart and allows all.
void allow_dynamic_shared(size_t size) {
  size_t known = allowed_dynamic_shared;
  while (size > known && !allowed_dynamic_shared.compare_exchange_weak(known, size)) {
  }
}

}  // namespace simt

extern "C" {

void simt_set_mode(int check) {
  simt::options.check = check != 0;
}

// Launches are counted and checked, and do nothing.
void simt_set_skip_launches(int on) {
  simt::skip_launches = on != 0;
}

int simt_get_mode() {
  return simt::options.check ? 1 : 0;
}

// 0: as many OS threads as the machine has processors.
void simt_set_threads(int count) {
  simt::options.os_threads = count;
}

// 0: threads and blocks in ascending order; 1: descending.
void simt_set_order(int order) {
  simt::options.order = order;
}

// Barriers, warp operations, atomics and (in check builds) memory accesses that one thread block
// may take; 0: any number.
void simt_set_step_limit(uint64_t limit) {
  simt::options.step_limit = limit;
}

void simt_set_poison(int on) {
  simt::options.poison = on != 0;
}

uint64_t simt_launch_count() {
  return simt::launch_count;
}

}  // extern "C"
