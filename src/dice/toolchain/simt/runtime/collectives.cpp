// Warp-wide operations: shuffles and votes over the lanes that a mask names.
//
// A lane that has returned does not hold the others up. What a lane reads from one that takes no
// part is undefined in CUDA; it gets the poison pattern here, so that using it shows.
#include <algorithm>
#include <cstring>

#include "internal.h"

namespace simt {

namespace {

Collective& arrive(Block& block, uint32_t mask, int thread) {
  Warp& warp = block.warps[thread / 32];
  uint32_t lane_bit = 1u << (thread & 31);
  if (!(mask & lane_bit)) {
    report({.kind = "warp_mask",
            .message = "a warp operation was called by a lane that its mask does not name",
            .array = "",
            .bytes = 0});
    mask |= lane_bit;
  }
  Collective* free_slot = nullptr;
  for (int k = 0; k < warp.used; k++) {
    Collective& collective = warp.collectives[k];
    if (collective.mask == mask) {
      collective.arrived |= lane_bit;
      return collective;
    }
    if (collective.mask == 0 && collective.unread == 0 && free_slot == nullptr) {
      free_slot = &collective;
    }
  }
  if (free_slot == nullptr) {
    free_slot = &warp.collectives[warp.used++];
  }
  free_slot->mask = mask;
  free_slot->arrived = lane_bit;
  free_slot->predicates = 0;
  return *free_slot;
}

void wait_for_lanes(Block& block, Collective& collective, int thread) {
  const Warp& warp = block.warps[thread / 32];
  if ((collective.mask & warp.live & ~collective.arrived) == 0) {
    complete(block, collective, thread / 32);
    return;
  }
  block.threads[thread].state = ThreadState::at_collective;
  block.threads[thread].collective = &collective;
  yield_to_next(block);
  resume_as(thread);
}

Block& block_of_kernel() {
  if (context.block == nullptr) {
    throw Error("a warp operation was called outside a kernel");
  }
  settle_pending_write(*context.block);
  count_step(*context.block);
  return *context.block;
}

}  // namespace

void complete(Block& block, Collective& collective, int warp_index) {
  collective.unread = collective.arrived;
  collective.mask = 0;
  block.warps[warp_index].epoch++;
  int begin = warp_index * 32;
  int end = std::min(block.thread_count, begin + 32);
  for (int k = begin; k < end; k++) {
    Thread& thread = block.threads[k];
    if (thread.state == ThreadState::at_collective && thread.collective == &collective) {
      thread.state = ThreadState::runnable;
    }
  }
}

void exchange(uint32_t mask, void* value, size_t size, int source) {
  Block& block = block_of_kernel();
  int thread = context.thread;
  Collective& collective = arrive(block, mask, thread);
  memcpy(collective.values[thread & 31], value, size);
  wait_for_lanes(block, collective, thread);
  collective.unread &= ~(1u << (thread & 31));
  if (source < 0 || source > 31) {
    return;
  }
  if (collective.arrived >> source & 1) {
    memcpy(value, collective.values[source], size);
  } else {
    fill_with_poison(value, size);
  }
}

uint32_t vote(uint32_t mask, bool predicate) {
  Block& block = block_of_kernel();
  int thread = context.thread;
  Collective& collective = arrive(block, mask, thread);
  if (predicate) {
    collective.predicates |= 1u << (thread & 31);
  }
  wait_for_lanes(block, collective, thread);
  collective.unread &= ~(1u << (thread & 31));
  return collective.predicates;
}

uint32_t live_lanes() {
  if (context.block == nullptr) {
    throw Error("__activemask() was called outside a kernel");
  }
  return context.block->warps[context.thread / 32].live;
}

}  // namespace simt
