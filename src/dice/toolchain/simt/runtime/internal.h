// What the runtime's files share: the state of one thread block and the calls between the parts.
//
// One OS thread runs one thread block at a time. Its CUDA threads run one after another on one
// fiber; a second fiber starts only when a thread blocks at a barrier or a warp collective. A
// kernel that never blocks is therefore a plain loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/launch.h"

namespace simt {

struct Region;
struct Cell;

enum class ThreadState : uint8_t { fresh, runnable, at_barrier, at_collective, done };

// A warp-wide operation. It gathers lanes (mask != 0) until all that its mask names and that have
// not returned are there; then its results stay until the last of them has taken its own.
struct Collective {
  uint32_t mask = 0;     // lanes it waits for; 0 when not gathering
  uint32_t arrived = 0;  // lanes that came, kept for the readers
  uint32_t unread = 0;   // lanes that have yet to take their result
  uint32_t predicates = 0;
  alignas(16) unsigned char values[32][16];
};

// Operations with disjoint masks can be in flight side by side, and finished ones await readers;
// a lane takes part in one at a time, so there are never more than there are lanes.
constexpr int collectives_per_warp = 32;

struct Warp {
  uint32_t live = 0;
  uint32_t epoch = 0;  // completed collectives: orders the lanes' accesses for the race check
  int used = 0;        // collectives that have been in use since the block began
  Collective collectives[collectives_per_warp];
};

struct Thread {
  uint3 index;
  ThreadState state;
  int barrier_line;
  Collective* collective;
  int fiber;
};

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // lowest usable byte
};

struct SharedVariable {
  const void* key;
  size_t offset;
  size_t size;
  const char* name;
};

struct Block {
  // --- set per block ---
  int thread_count = 0;
  int live = 0;
  int at_barrier = 0;
  int next_fresh = 0;   // position in `order` of the next thread to start
  int last_picked = 0;  // position in `order`
  uint32_t barrier_epoch = 0;
  int predicate_sum[2] = {};
  int predicate_count[2] = {};
  uint32_t sequence = 0;  // unique over all launches, as far as the shadow remembers
  bool barrier_reported = false;
  bool write_pending = false;  // see settle_pending_write
  bool failed = false;
  std::string failure;
  uint64_t steps = 0;

  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<int> order;

  // --- fibers ---
  std::vector<Fiber> fibers;
  std::vector<int> free_fibers;
  std::vector<char*> stacks;
  int fiber_count = 0;
  int current_fiber = -1;  // -1: the OS thread's own stack
  void* main_stack_pointer = nullptr;

  // --- what to run ---
  const LaunchRequest* request = nullptr;

  // --- shared memory: the dynamic part at offset 0, then one variable after another ---
  char* shared = nullptr;
  size_t shared_capacity = 0;
  size_t shared_used = 0;     // with the gaps between variables
  size_t shared_payload = 0;  // without
  size_t shared_high = 0;     // bytes that may differ from the poison pattern
  std::vector<SharedVariable> variables;
  Cell* shared_cells = nullptr;
  unsigned shared_cell_size = 4;
};

struct Options {
  std::atomic<bool> check{false};
  std::atomic<int> os_threads{0};  // 0: as many as the machine has
  std::atomic<int> order{0};       // 0 ascending, 1 descending threads and blocks
  std::atomic<uint64_t> step_limit{0};
  std::atomic<bool> poison{true};
};
extern Options options;

constexpr size_t fiber_stack_size = 256 << 10;
constexpr size_t shared_limit = 232448;      // per block, with opt-in (H100)
constexpr size_t shared_default = 49152;     // per block, without
constexpr uint32_t poison_word = 0x7fd5a5a5;  // a NaN that no arithmetic produces

// --- fibers.cpp ---
int start_fiber(Block& block);
void jump(Block& block, int to);

// --- scheduler.cpp ---
void fiber_main();
void yield_to_next(Block& block);
void complete(Block& block, Collective& collective, int warp);
// Ends the block from one of its fibers: every other fiber is abandoned as it stands.
[[noreturn]] void fail_block(Block& block, const std::string& reason);
void count_step(Block& block);
void run_block(Block& block, const LaunchRequest& request, uint64_t index);

inline void resume_as(int thread) {
  context.thread = thread;
  context.thread_index = context.block->threads[thread].index;
}

// --- shared_memory.cpp ---
void prepare_shared(Block& block, size_t dynamic_size);
void fill_with_poison(void* memory, size_t size);

// --- shadow.cpp ---
void begin_launch_checks(const LaunchRequest& request, uint64_t blocks);
void begin_worker_checks();
void judge_pending_write(Block& block);

// A suspicious write is judged at the thread's next step, once its value is known.
inline void settle_pending_write(Block& block) {
  if (block.write_pending) {
    judge_pending_write(block);
  }
}

uint32_t sequence_of_block(uint64_t block_index);

// --- memory_map.cpp ---
Region* find_region(const char* address, size_t size);
std::string describe_address(const char* address);

// --- report.cpp ---
enum class Severity { error, warning };
struct Finding {
  const char* kind;
  std::string message;
  std::string array;
  long bytes = 0;
  Severity severity = Severity::error;
};
// Adds where the calling thread is; a second finding of the same kind about the same array of the
// same kernel is kept only if its thread comes earlier.
void report(const Finding& finding);
void report_at(const Finding& finding, uint3 block, uint3 thread);
void set_kernel_name(const char* name);
const std::string& kernel_name();

}  // namespace simt
