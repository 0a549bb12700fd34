// Shadow memory: who last wrote and read each cell of memory, and since when.
//
// A stamp is one 64-bit word, so that OS threads can update cells without locks:
//   bits 0-9   thread in its block      bits 22-37  the block's barrier epoch
//   bits 10-21 the warp's epoch         bits 38-62  sequence number of the block
//   bit  63    atomic
// Sequence numbers grow over all launches: a stamp below the launch's first number is history.
#pragma once

#include <atomic>
#include <string>

#include "internal.h"

namespace simt {

using Stamp = uint64_t;

constexpr Stamp stamp_atomic = Stamp(1) << 63;
constexpr int stamp_warp_shift = 10;
constexpr int stamp_barrier_shift = 22;
constexpr int stamp_sequence_shift = 38;
constexpr uint32_t max_sequence = (1u << 25) - 1;

struct Cell {
  Stamp write;    // 0: never written by a kernel
  Stamp readers[2];
};

enum class Access { read, write, atomic, atomic_store };

// The cells of one region at one granularity. When a kernel accesses less than a cell, a finer
// array takes over; the coarse one stays for OS threads that still hold it.
struct CellArray {
  Cell* cells = nullptr;
  size_t bytes = 0;
  unsigned cell_size = 4;
  CellArray* coarser = nullptr;
};

// A stretch of global memory that kernels may access.
struct Region {
  char* begin;
  size_t size;
  std::string name;
  bool poisoned;  // words that still hold the poison pattern have never been written
  std::atomic<CellArray*> cells{nullptr};

  Region(char* begin_, size_t size_, std::string name_, bool poisoned_)
      : begin(begin_), size(size_), name(std::move(name_)), poisoned(poisoned_) {}
  ~Region();
};

CellArray* cells_of(Region& region);
CellArray* refine(Region& region, unsigned cell_size);
void forget_cells(Region& region, size_t offset, size_t size);

// Calls `visit` for every region, under the map's lock.
void for_each_region(void (*visit)(Region&));
bool is_constant_memory(const char* address);
bool is_host_stack(const char* address);
void map_module_of(const void* code);
void remember_host_stack();
void name_region(const void* pointer, const std::string& name);

void check_access(char* address, size_t size, Access access);

}  // namespace simt
