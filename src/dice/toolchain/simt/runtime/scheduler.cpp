// Runs the threads of one thread block on fibers, and the block-wide barrier.
//
// A barrier waits for every thread of the block that has not returned, as the hardware's does. Its
// misuse is found where it happens: threads that meet at different barriers end the launch with
// `divergent_barrier`; a barrier completed by the return of other threads, which hardware allows
// and the programming guide does not, is a warning.
#include "internal.h"

namespace simt {

thread_local constinit Context context{};

namespace {

// The next thread that can go on, round robin from the last one picked; -1 when all wait.
int pick_runnable(Block& block) {
  int count = block.thread_count;
  for (int offset = 1; offset <= count; offset++) {
    int position = block.last_picked + offset;
    if (position >= count) {
      position -= count;
    }
    int thread = block.order[position];
    ThreadState state = block.threads[thread].state;
    if (state == ThreadState::runnable || state == ThreadState::fresh) {
      block.last_picked = position;
      return thread;
    }
  }
  return -1;
}

[[noreturn]] void fail_at_different_barriers(Block& block, int line, const Thread& thread) {
  std::string message = "threads of one block wait at different barriers: __syncthreads() on line " +
                        std::to_string(line) + " and on line " +
                        std::to_string(thread.barrier_line);
  report_at({.kind = "divergent_barrier", .message = message, .array = "", .bytes = 0},
            context.block_index, thread.index);
  fail_block(block, message);
}

void release_barrier(Block& block) {
  block.barrier_epoch++;
  int next = block.barrier_epoch & 1;
  block.predicate_sum[next] = 0;
  block.predicate_count[next] = 0;
  block.at_barrier = 0;
  int line = 0;  // 0: a barrier inside a library, which is not compared
  for (Thread& thread : block.threads) {
    if (thread.state == ThreadState::at_barrier) {
      if (thread.barrier_line != line && thread.barrier_line != 0) {
        if (line != 0) {
          fail_at_different_barriers(block, line, thread);
        }
        line = thread.barrier_line;
      }
      thread.state = ThreadState::runnable;
    }
  }
}

std::string lanes_text(uint32_t lanes) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", lanes);
  return text;
}

// Nobody can go on. A warp operation that waits for lanes which stand elsewhere is completed with
// those that came; what is left is a barrier that some threads will never reach.
void resolve_deadlock(Block& block) {
  for (int k = 0; k < block.thread_count; k++) {
    Thread& thread = block.threads[k];
    if (thread.state != ThreadState::at_collective) {
      continue;
    }
    Collective& collective = *thread.collective;
    report_at({.kind = "warp_mask",
               .message = "a warp operation with mask " + lanes_text(collective.mask) +
                          " was reached by lanes " + lanes_text(collective.arrived) +
                          " only, while the others wait elsewhere",
               .array = "",
               .bytes = 0},
              context.block_index, thread.index);
    complete(block, collective, k / 32);
    return;
  }
  std::string message = "deadlock: " + std::to_string(block.at_barrier) + " of " +
                        std::to_string(block.live) + " threads wait at __syncthreads()";
  report({.kind = "divergent_barrier", .message = message, .array = "", .bytes = 0});
  fail_block(block, message);
}

void finish_thread(Block& block, int index) {
  settle_pending_write(block);
  block.threads[index].state = ThreadState::done;
  block.live--;
  int warp_index = index / 32;
  Warp& warp = block.warps[warp_index];
  warp.live &= ~(1u << (index & 31));
  for (int k = 0; k < warp.used; k++) {
    Collective& collective = warp.collectives[k];
    if (collective.mask && (collective.mask & warp.live & ~collective.arrived) == 0) {
      complete(block, collective, warp_index);
    }
  }
  if (block.at_barrier > 0 && block.at_barrier == block.live) {
    if (!block.barrier_reported) {
      block.barrier_reported = true;
      report({.kind = "barrier_after_exit",
              .message = "__syncthreads() was reached by " + std::to_string(block.live) + " of " +
                         std::to_string(block.thread_count) +
                         " threads of the block; the others had returned",
              .array = "",
              .bytes = 0,
              .severity = Severity::warning});
    }
    release_barrier(block);
  }
}

void run_thread(Block& block, int index, int fiber) {
  Thread& thread = block.threads[index];
  thread.state = ThreadState::runnable;
  thread.fiber = fiber;
  resume_as(index);
  try {
    block.request->run_thread(block.request->arguments);
  } catch (const std::exception& error) {
    report({.kind = "kernel_exception", .message = error.what(), .array = "", .bytes = 0});
    fail_block(block, error.what());
  }
  finish_thread(block, index);
}

// Threads that have not started run to their end on this fiber, without any switch, for as long
// as none of them blocks.
void run_fresh_threads(Block& block, int fiber) {
  while (block.next_fresh < block.thread_count) {
    int thread = block.order[block.next_fresh];
    if (block.threads[thread].state == ThreadState::fresh) {
      block.last_picked = block.next_fresh;
      block.next_fresh++;
      run_thread(block, thread, fiber);
    } else {
      block.next_fresh++;
    }
  }
}

}  // namespace

void fiber_main() {
  for (;;) {
    Block& block = *context.block;
    int fiber = block.current_fiber;
    run_fresh_threads(block, fiber);
    if (block.live == 0) {
      jump(block, -1);
      continue;
    }
    // Every thread has started, so this stack is free once it has been left.
    int thread = pick_runnable(block);
    if (thread < 0) {
      yield_to_next(block);
      continue;
    }
    block.free_fibers.push_back(fiber);
    jump(block, block.threads[thread].fiber);
  }
}

void yield_to_next(Block& block) {
  int thread = pick_runnable(block);
  while (thread < 0) {
    resolve_deadlock(block);
    thread = pick_runnable(block);
  }
  bool fresh = block.threads[thread].state == ThreadState::fresh;
  int fiber = fresh ? start_fiber(block) : block.threads[thread].fiber;
  if (fiber != block.current_fiber) {
    jump(block, fiber);
  }
}

void fail_block(Block& block, const std::string& reason) {
  block.failed = true;
  block.failure = reason;
  jump(block, -1);
  __builtin_unreachable();
}

void abort_kernel(const char* kind, const std::string& message) {
  if (context.block == nullptr) {
    throw Error(message);
  }
  report({.kind = kind, .message = message, .array = "", .bytes = 0});
  fail_block(*context.block, message);
}

void assert_failed(const char* expression, const char* file, int line) {
  std::string where = context.block == nullptr ? std::string(file) + ":" : "line ";
  abort_kernel("assert", "assertion `" + std::string(expression) + "` failed on " + where +
                             std::to_string(line));
}

void count_step(Block& block) {
  uint64_t limit = options.step_limit.load(std::memory_order_relaxed);
  if (limit != 0 && ++block.steps > limit) {
    abort_kernel("step_limit", "a thread block took more than " + std::to_string(limit) +
                                   " steps: an endless loop?");
  }
}

void barrier(int line) {
  Block* block = context.block;
  if (block == nullptr) {
    throw Error("__syncthreads() was called outside a kernel");
  }
  settle_pending_write(*block);
  count_step(*block);
  int index = context.thread;
  Thread& thread = block->threads[index];
  thread.barrier_line = line;
  thread.state = ThreadState::at_barrier;
  block->at_barrier++;
  if (block->at_barrier == block->live) {
    if (block->live < block->thread_count && !block->barrier_reported) {
      block->barrier_reported = true;
      report({.kind = "barrier_after_exit",
              .message = "__syncthreads() was reached by " + std::to_string(block->live) +
                         " of " + std::to_string(block->thread_count) +
                         " threads of the block; the others had returned",
              .array = "",
              .bytes = 0,
              .severity = Severity::warning});
    }
    release_barrier(*block);
    return;
  }
  yield_to_next(*block);
  resume_as(index);
}

int barrier_count(int predicate, int line, int* total) {
  Block* block = context.block;
  if (block == nullptr) {
    throw Error("__syncthreads_count() was called outside a kernel");
  }
  int slot = block->barrier_epoch & 1;
  block->predicate_sum[slot] += predicate != 0;
  block->predicate_count[slot]++;
  barrier(line);
  *total = block->predicate_count[slot];
  return block->predicate_sum[slot];
}

namespace {

void lay_out_threads(Block& block, const LaunchRequest& request, int count) {
  dim3 dim = request.block;
  block.thread_count = count;
  block.threads.resize(count);
  block.warps.resize((count + 31) / 32);
  block.order.resize(count);
  bool descending = options.order == 1;
  for (int k = 0; k < count; k++) {
    block.threads[k].index = {k % dim.x, k / dim.x % dim.y, k / (dim.x * dim.y)};
    block.order[k] = descending ? count - 1 - k : k;
  }
}

void reset_threads(Block& block) {
  for (Thread& thread : block.threads) {
    thread.state = ThreadState::fresh;
  }
  int rest = block.thread_count;
  for (Warp& warp : block.warps) {
    warp.live = rest >= 32 ? ~0u : (1u << rest) - 1;
    rest -= 32;
    for (int k = 0; k < warp.used; k++) {
      warp.collectives[k].mask = 0;
      warp.collectives[k].unread = 0;
    }
    warp.used = 0;
  }
}

}  // namespace

void run_block(Block& block, const LaunchRequest& request, uint64_t index) {
  dim3 grid = request.grid;
  context.block_index = {static_cast<unsigned>(index % grid.x),
                         static_cast<unsigned>(index / grid.x % grid.y),
                         static_cast<unsigned>(index / grid.x / grid.y)};
  context.block_dim = request.block;
  context.grid_dim = grid;
  context.block = &block;
  int count = request.block.x * request.block.y * request.block.z;
  if (block.request != &request) {
    block.request = &request;
    lay_out_threads(block, request, count);
  }
  reset_threads(block);
  block.live = count;
  block.at_barrier = 0;
  block.next_fresh = 0;
  block.last_picked = count - 1;
  block.predicate_sum[0] = block.predicate_sum[1] = 0;
  block.predicate_count[0] = block.predicate_count[1] = 0;
  block.barrier_reported = false;
  block.write_pending = false;
  block.failed = false;
  block.steps = 0;
  block.fiber_count = 0;
  block.free_fibers.clear();
  block.current_fiber = -1;
  block.sequence = sequence_of_block(index);
  prepare_shared(block, request.dynamic_shared);
  jump(block, start_fiber(block));
  if (block.failed) {
    throw Error(block.failure);
  }
}

}  // namespace simt
