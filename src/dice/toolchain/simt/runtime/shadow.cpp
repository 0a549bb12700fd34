// The memory checks: bounds, initialisation and races, one call per access of an instrumented
// kernel.
//
// Order between two accesses of one launch. Same block: a barrier between them, or, in one warp, a
// completed warp operation. Different blocks: __threadfence() and then an atomic in the earlier
// block, and an atomic in the later one (the "last block sums up" pattern). Everything else that
// overlaps, with a write that is not atomic among it, is a race; a write that leaves the value
// unchanged is forgiven.
//
// Limits: two readers are remembered per cell; ordering by flags in memory is not recognised.
#include "shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace simt {

std::string name_near(const char* address);

// The library is loaded before the kernels; without this each use is a call.
#define SIMT_FAST_TLS __attribute__((tls_model("initial-exec")))

namespace {

constexpr int max_reports_per_worker = 200;

std::mutex cells_mutex;
std::atomic<bool> checks_on{false};
uint32_t launch_first = 1;   // sequence number of the launch's block 0
uint32_t next_sequence = 1;
std::atomic<std::atomic<uint8_t>*> published{nullptr};  // per block: fenced, then did an atomic
uint64_t launch_blocks = 0;

struct RegionHit {
  char* begin = nullptr;
  char* end = nullptr;
  Region* region = nullptr;
  CellArray* cells = nullptr;
};

// A write that overlaps another access is judged once it has happened: only then is it known
// whether it changed the value.
struct PendingWrite {
  char* address;
  size_t size;
  unsigned char before[16];
  Finding finding;
  uint3 block;
  uint3 thread;
};

SIMT_FAST_TLS thread_local RegionHit hits[4];
SIMT_FAST_TLS thread_local unsigned next_hit = 0;
SIMT_FAST_TLS thread_local int reports = 0;
SIMT_FAST_TLS thread_local PendingWrite pending;
SIMT_FAST_TLS thread_local bool block_fenced = false;  // the running block's
SIMT_FAST_TLS thread_local bool block_did_atomic = false;
SIMT_FAST_TLS thread_local uint32_t fence_sequence = 0;  // the block that the two flags are about

Cell* map_cells(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory);
}

CellArray* make_cells(size_t size, unsigned cell_size) {
  auto* array = new CellArray;
  array->cell_size = cell_size;
  array->bytes = (size / cell_size + 2) * sizeof(Cell);
  array->cells = map_cells(array->bytes);
  if (array->cells == nullptr) {
    delete array;
    throw Error("the SIMT emulator could not map shadow memory");
  }
  return array;
}

uint32_t sequence_of(Stamp stamp) {
  return (stamp & ~stamp_atomic) >> stamp_sequence_shift;
}

unsigned thread_of(Stamp stamp) {
  return stamp & 1023;
}

Stamp stamp_now(const Block& block) {
  uint32_t thread = context.thread;
  uint64_t warp_epoch = block.warps[thread / 32].epoch & 0xfff;
  uint64_t barrier_epoch = block.barrier_epoch & 0xffff;
  return thread | warp_epoch << stamp_warp_shift | barrier_epoch << stamp_barrier_shift |
         uint64_t(block.sequence) << stamp_sequence_shift;
}

// Whether nothing orders the access `earlier` before the one that happens now.
bool overlaps(Stamp earlier, Stamp now) {
  earlier &= ~stamp_atomic;
  if (earlier == 0) {
    return false;
  }
  Stamp difference = earlier ^ now;
  if (difference >> stamp_sequence_shift == 0) {
    if (difference >> stamp_barrier_shift != 0 || (difference & 1023) == 0) {
      return false;
    }
    bool same_warp = (difference & 1023) < 32;
    return !same_warp || (difference >> stamp_warp_shift & 0xfff) == 0;
  }
  uint32_t sequence = sequence_of(earlier);
  if (sequence < launch_first) {
    return false;
  }
  auto* flags = published.load(std::memory_order_acquire);
  bool acquired = block_did_atomic && fence_sequence == sequence_of(now);
  return !(flags != nullptr && acquired && flags[sequence - launch_first].load());
}

std::string thread_text(Stamp stamp) {
  uint32_t block_index = sequence_of(stamp) - launch_first;
  dim3 grid = context.grid_dim;
  dim3 dim = context.block_dim;
  unsigned thread = thread_of(stamp);
  auto triple = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  return "thread " + triple(thread % dim.x, thread / dim.x % dim.y, thread / (dim.x * dim.y)) +
         " of block " +
         triple(block_index % grid.x, block_index / grid.x % grid.y, block_index / grid.x / grid.y);
}

// What is being accessed, for messages; made only when something is wrong.
struct Place {
  const char* array;  // may be null
  const char* memory;  // "shared" or "global"
  size_t offset;
  size_t size;
};

std::string place_text(const Place& place) {
  std::string text = std::string(place.memory) + " memory, byte " + std::to_string(place.offset);
  if (place.array != nullptr) {
    text += " of " + std::string(place.array);
  }
  return text;
}

Finding finding_at(const char* kind, const Place& place, std::string message) {
  Finding finding;
  finding.kind = kind;
  finding.message = std::move(message);
  finding.array = place.array ? place.array : place.memory;
  finding.bytes = static_cast<long>(place.size);
  return finding;
}

bool may_report() {
  return ++reports <= max_reports_per_worker;
}

void report_race(const char* what, Stamp other, const Place& place, char* address, bool is_write) {
  Block& block = *context.block;
  if (block.write_pending || !may_report()) {
    return;
  }
  Finding finding = finding_at("race", place,
                               std::string(what) + " " + thread_text(other) + " in " +
                                   place_text(place) + ", with nothing to order the two");
  if (!is_write || place.size > sizeof pending.before) {
    report(finding);
    return;
  }
  block.write_pending = true;
  pending.address = address;
  pending.size = place.size;
  memcpy(pending.before, address, place.size);
  pending.finding = std::move(finding);
  pending.block = context.block_index;
  pending.thread = context.thread_index;
}

void note_reader(Cell& cell, Stamp now) {
  Stamp first = cell.readers[0];
  if ((first ^ now) >> stamp_barrier_shift != 0) {
    // An older reader: drop it if a barrier or launch lies between, else keep it as the second.
    bool other_block = sequence_of(first) != sequence_of(now) && sequence_of(first) >= launch_first;
    if (other_block && first != 0) {
      cell.readers[1] = now;
    } else {
      cell.readers[0] = now;
    }
  } else if (((first ^ now) & 1023) == 0) {
    cell.readers[0] = now;
  } else {
    cell.readers[1] = now;
  }
}

void check_race(Cell& cell, Stamp now, Access access, const Place& place, char* address) {
  Stamp write = cell.write;
  if (access == Access::read) {
    if (!(write & stamp_atomic) && overlaps(write, now)) {
      report_race("a read races with a write by", write, place, address, false);
    }
    note_reader(cell, now);
    return;
  }
  bool atomic = access != Access::write;
  if (!(atomic && (write & stamp_atomic)) && overlaps(write, now)) {
    report_race(atomic ? "an atomic races with a write by" : "a write races with a write by", write,
                place, address, !atomic);
  } else if (!atomic) {
    for (Stamp reader : cell.readers) {
      if (overlaps(reader, now)) {
        report_race("a write races with a read by", reader, place, address, true);
        break;
      }
    }
  }
  // A thread's atomic on what it has just written plainly leaves the plain write on record: the
  // atomics of others are not ordered after it.
  bool own_plain_write = write != 0 && !(write & stamp_atomic) &&
                         (write ^ now) >> stamp_barrier_shift == 0 && ((write ^ now) & 1023) == 0;
  if (!atomic) {
    cell.write = now;
  } else if (!own_plain_write) {
    cell.write = now | stamp_atomic;
  }
}

void report_uninitialised(const Place& place) {
  if (may_report()) {
    report(finding_at("uninitialised", place,
                      std::to_string(place.size) + " bytes are read that nothing has written: " +
                          place_text(place)));
  }
}

// --- shared memory ---

Cell* shared_cells(Block& block, unsigned size) {
  if (block.shared_cells == nullptr) {
    block.shared_cells = map_cells((block.shared_capacity + 1) * sizeof(Cell));
    if (block.shared_cells == nullptr) {
      throw Error("the SIMT emulator could not map shadow memory");
    }
  }
  if (size < block.shared_cell_size) {
    // Finer cells from here on; what the coarse ones know is passed on, from the end backwards.
    unsigned ratio = block.shared_cell_size / size;
    size_t used = std::min(block.shared_capacity, block.shared_used + 1024);
    for (size_t k = used / block.shared_cell_size + 1; k-- > 0;) {
      Cell cell = block.shared_cells[k];
      for (unsigned part = 0; part < ratio; part++) {
        block.shared_cells[k * ratio + part] = cell;
      }
    }
    block.shared_cell_size = size;
  }
  return block.shared_cells;
}

// A word is uninitialised when all of it is: struct padding inside a word is no fault. Nor is it
// in the second and fourth word of a 16-byte struct such as {float, int64}.
bool shared_uninitialised(const Block& block, size_t offset, size_t size) {
  unsigned cell = block.shared_cell_size;
  auto written = [&](size_t at) {
    return sequence_of(block.shared_cells[at / cell].write) == block.sequence;
  };
  size_t unit = std::min<size_t>(size, 4);
  bool any_written = false;
  bool any_missing = false;
  bool only_padding = size == 16;
  for (size_t at = offset; at < offset + size; at += unit) {
    bool word_written = false;
    for (size_t byte = at; byte < at + unit && byte < offset + size; byte += cell) {
      word_written = word_written || written(byte);
    }
    any_written = any_written || word_written;
    if (!word_written) {
      any_missing = true;
      only_padding = only_padding && (at - offset) % 8 == 4;
    }
  }
  bool is_struct = size != 1 && size != 2 && size != 4 && size != 8 && size != 16;
  if (is_struct) {
    return !any_written;
  }
  return any_missing && !only_padding;
}

// The arena serves one block after another.
void forget_other_blocks(Cell& cell, Stamp now) {
  for (Stamp* stamp : {&cell.write, &cell.readers[0], &cell.readers[1]}) {
    if (sequence_of(*stamp) != sequence_of(now)) {
      *stamp = 0;
    }
  }
}

void check_shared(Block& block, size_t offset, size_t size, Access access) {
  Place place{nullptr, "shared", offset, size};
  size_t dynamic_size = block.request->dynamic_shared;
  bool inside = false;
  if (offset + size <= dynamic_size) {
    inside = true;
    place.array = "the dynamic shared array";
  } else {
    for (const SharedVariable& variable : block.variables) {
      if (offset >= variable.offset && offset + size <= variable.offset + variable.size) {
        inside = true;
        place.array = variable.name ? variable.name : "a shared variable";
        place.offset = offset - variable.offset;
        break;
      }
    }
  }
  if (!inside) {
    std::string near = dynamic_size > 0 && offset >= dynamic_size
                           ? "the dynamic shared array (" + std::to_string(dynamic_size) + " bytes)"
                           : "its shared array";
    for (const SharedVariable& variable : block.variables) {
      if (offset + size > variable.offset) {
        near = (variable.name ? std::string(variable.name) : std::string("a shared variable")) +
               " (" + std::to_string(variable.size) + " bytes)";
        place.offset = offset - variable.offset;
      }
    }
    if (may_report()) {
      Finding finding = finding_at(
          "out_of_bounds", place,
          std::string(access == Access::read ? "a read" : "a write") + " of " +
              std::to_string(size) + " bytes in shared memory, at byte " +
              std::to_string(place.offset) + " of " + near);
      finding.array = near.substr(0, near.find(" ("));
      report(finding);
    }
    return;
  }
  unsigned wanted = size >= 4 ? 4 : static_cast<unsigned>(size);
  if (offset % wanted != 0) {
    wanted = 1;
  }
  Cell* cells = shared_cells(block, wanted);
  bool reads = access == Access::read || access == Access::atomic;
  if (reads && shared_uninitialised(block, offset, size)) {
    report_uninitialised(place);
  }
  Stamp now = stamp_now(block);
  unsigned cell_size = block.shared_cell_size;
  char* address = block.shared + offset;
  for (size_t k = offset / cell_size; k * cell_size < offset + size; k++) {
    forget_other_blocks(cells[k], now);
    check_race(cells[k], now, access, place, address);
  }
}

// --- global memory ---

// Whether a word that no kernel has written still holds the poison pattern: then the host has not
// written it either. A word cut off by the region's end cannot be told and counts as written.
bool still_poisoned(const Region& region, size_t offset) {
  size_t word = offset / 4 * 4;
  if (word + 4 > region.size) {
    return false;
  }
  uint32_t content;
  memcpy(&content, region.begin + word, 4);
  return content == poison_word;
}

bool global_uninitialised(const Region& region, const CellArray& array, size_t offset,
                          size_t size) {
  size_t missing = 0;
  size_t words = 0;
  for (size_t word = offset / 4 * 4; word < offset + size; word += 4) {
    words++;
    size_t at = std::max(word, offset);
    bool written = array.cells[at / array.cell_size].write != 0;
    missing += !written && still_poisoned(region, word);
  }
  bool is_struct = size > 16 || (size & (size - 1)) != 0;
  return is_struct ? missing == words : missing > 0;
}

void check_global(Block& block, Region& region, CellArray*& array, char* address, size_t size,
                  Access access) {
  size_t offset = address - region.begin;
  unsigned wanted = size >= 4 ? 4 : static_cast<unsigned>(size);
  if (offset % wanted != 0) {
    wanted = 1;
  }
  if (wanted < array->cell_size) {
    array = refine(region, wanted);
  }
  Place place{region.name.c_str(), "global", offset, size};
  bool reads = access == Access::read || access == Access::atomic;
  if (reads && region.poisoned && global_uninitialised(region, *array, offset, size)) {
    report_uninitialised(place);
  }
  Stamp now = stamp_now(block);
  for (size_t k = offset / array->cell_size; k * array->cell_size < offset + size; k++) {
    check_race(array->cells[k], now, access, place, address);
  }
}

void check_unknown(char* address, size_t size, Access access) {
  if (is_host_stack(address) || is_constant_memory(address)) {
    return;
  }
  Region* region = find_region(address, size);
  if (region != nullptr) {
    RegionHit& hit = hits[next_hit++ & 3];
    hit = {region->begin, region->begin + region->size, region, cells_of(*region)};
    check_global(*context.block, *region, hit.cells, address, size, access);
    return;
  }
  Finding finding;
  finding.kind = "out_of_bounds";
  finding.message = std::string(access == Access::read ? "a read" : "a write") + " of " +
                    std::to_string(size) + " bytes in global memory, " + describe_address(address);
  finding.array = name_near(address);
  finding.bytes = static_cast<long>(size);
  report(finding);
  fail_block(*context.block, finding.message);
}

void forget_history(Region& region) {
  for (CellArray* array = region.cells; array != nullptr; array = array->coarser) {
    for (size_t k = 0; k < array->bytes / sizeof(Cell); k++) {
      Cell& cell = array->cells[k];
      // Keeps "a kernel has written it" and nothing else.
      cell = {cell.write != 0 ? stamp_atomic : 0, {0, 0}};
    }
  }
}

}  // namespace

Region::~Region() {
  CellArray* array = cells;
  while (array != nullptr) {
    CellArray* coarser = array->coarser;
    munmap(array->cells, array->bytes);
    delete array;
    array = coarser;
  }
}

CellArray* cells_of(Region& region) {
  CellArray* array = region.cells;
  if (array != nullptr) {
    return array;
  }
  std::lock_guard lock(cells_mutex);
  if (region.cells == nullptr) {
    region.cells = make_cells(region.size, 4);
  }
  return region.cells;
}

CellArray* refine(Region& region, unsigned cell_size) {
  std::lock_guard lock(cells_mutex);
  CellArray* coarse = region.cells;
  if (coarse->cell_size <= cell_size) {
    return coarse;
  }
  CellArray* fine = make_cells(region.size, cell_size);
  for (size_t k = 0; k * cell_size < region.size; k++) {
    const Cell& known = coarse->cells[k * cell_size / coarse->cell_size];
    if (known.write != 0 || known.readers[0] != 0) {
      fine->cells[k] = known;
    }
  }
  fine->coarser = coarse;
  region.cells = fine;
  return fine;
}

void forget_cells(Region& region, size_t offset, size_t size) {
  for (CellArray* array = region.cells; array != nullptr; array = array->coarser) {
    size_t begin = offset / array->cell_size;
    size_t end = (offset + size + array->cell_size - 1) / array->cell_size;
    memset(static_cast<void*>(array->cells + begin), 0, (end - begin) * sizeof(Cell));
  }
}

uint32_t sequence_of_block(uint64_t block_index) {
  block_fenced = false;
  block_did_atomic = false;
  return launch_first + static_cast<uint32_t>(block_index % (max_sequence - 1));
}

namespace {

std::string argument_name(const char* text, int index) {
  // Splits at commas outside brackets; a `<` may be a comparison, which names tolerate.
  std::string name;
  int depth = 0;
  int current = 0;
  for (const char* c = text; *c != 0; c++) {
    if (*c == '(' || *c == '[' || *c == '{' || *c == '<') {
      depth++;
    } else if (*c == ')' || *c == ']' || *c == '}' || (*c == '>' && c > text && c[-1] != '-')) {
      depth--;
    }
    if (*c == ',' && depth == 0) {
      current++;
    } else if (current == index) {
      name += *c;
    }
  }
  for (const char* accessor : {".data_ptr", ".const_data_ptr", ".mutable_data_ptr"}) {
    size_t at = name.find(accessor);
    if (at != std::string::npos) {
      name.resize(at);
    }
  }
  size_t cast = name.rfind('(');
  if (cast != std::string::npos && name.find(')', cast) == std::string::npos) {
    name = name.substr(cast + 1);  // reinterpret_cast<...>(x.data_ptr
  }
  size_t first = name.find_first_not_of(" \n\t");
  return first == std::string::npos ? "argument " + std::to_string(index + 1) : name.substr(first);
}

}  // namespace

void begin_launch_checks(const LaunchRequest& request, uint64_t blocks) {
  checks_on = options.check.load();
  delete[] published.exchange(nullptr);
  launch_blocks = blocks;
  if (!checks_on) {
    return;
  }
  if (next_sequence + blocks > max_sequence) {
    for_each_region(forget_history);
    next_sequence = 1;
  }
  launch_first = next_sequence;
  next_sequence += static_cast<uint32_t>(std::min<uint64_t>(blocks, max_sequence - 1));
  remember_host_stack();
  map_module_of(reinterpret_cast<const void*>(request.run_thread));
  for (int k = 0; k < request.pointer_count; k++) {
    const PointerArgument& argument = request.pointers[k];
    name_region(argument.pointer, argument_name(request.argument_text, argument.index));
  }
}

void begin_worker_checks() {
  for (RegionHit& hit : hits) {
    hit = {};
  }
  reports = 0;
}

void judge_pending_write(Block& block) {
  block.write_pending = false;
  if (memcmp(pending.before, pending.address, pending.size) != 0) {
    report_at(pending.finding, pending.block, pending.thread);
  }
}

void check_access(char* address, size_t size, Access access) {
  Block* block = context.block;
  if (block == nullptr || !checks_on.load(std::memory_order_relaxed)) {
    return;
  }
  if (static_cast<size_t>(address - reinterpret_cast<char*>(&context)) < sizeof context) {
    return;
  }
  settle_pending_write(*block);
  const char* stack = block->fibers[block->current_fiber].stack;
  if (static_cast<size_t>(address - stack) < fiber_stack_size) {
    return;
  }
  count_step(*block);
  size_t shared_offset = address - block->shared;
  if (shared_offset < block->shared_capacity) {
    check_shared(*block, shared_offset, size, access);
    return;
  }
  for (RegionHit& hit : hits) {
    if (address >= hit.begin && address + size <= hit.end) {
      check_global(*block, *hit.region, hit.cells, address, size, access);
      return;
    }
  }
  check_unknown(address, size, access);
}

void note_atomic(void* pointer, size_t size, bool reads_old_value) {
  Block* block = context.block;
  if (block == nullptr || !checks_on.load(std::memory_order_relaxed)) {
    return;
  }
  check_access(static_cast<char*>(pointer), size,
               reads_old_value ? Access::atomic : Access::atomic_store);
  fence_sequence = block->sequence;
  block_did_atomic = true;
  auto* flags = published.load(std::memory_order_acquire);
  if (block_fenced && flags != nullptr) {
    flags[block->sequence - launch_first].store(1);
  }
}

void fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (context.block == nullptr || !checks_on.load(std::memory_order_relaxed)) {
    return;
  }
  block_fenced = true;
  if (published.load() == nullptr) {
    std::lock_guard lock(cells_mutex);
    if (published.load() == nullptr) {
      size_t count = std::min<uint64_t>(launch_blocks, max_sequence);
      published.store(new std::atomic<uint8_t>[count]());
    }
  }
}

}  // namespace simt
