// Shared memory of one thread block: the dynamic part first, then each static variable.
//
// Variables are kept apart by gaps, so that an index past one does not silently reach the next.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "internal.h"

namespace simt {

namespace {

constexpr size_t arena_size = 512 << 10;

size_t gap() {
  return options.check ? 256 : 32;
}

size_t align_up(size_t value, size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

void fill_with_poison(void* memory, size_t size) {
  auto* bytes = static_cast<unsigned char*>(memory);
  size_t words = size / sizeof poison_word;
  for (size_t k = 0; k < words; k++) {
    memcpy(bytes + 4 * k, &poison_word, 4);
  }
  memcpy(bytes + 4 * words, &poison_word, size % 4);
}

void prepare_shared(Block& block, size_t dynamic_size) {
  if (block.shared == nullptr) {
    void* arena = mmap(nullptr, arena_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) {
      throw Error("the SIMT emulator could not map shared memory");
    }
    block.shared = static_cast<char*>(arena);
    block.shared_capacity = arena_size;
    block.shared_high = 0;
  }
  // What the last block wrote, and what this one may read without having written it.
  size_t stale = std::max(block.shared_high, block.shared_used);
  size_t wanted = std::max(stale, dynamic_size);
  if (options.poison) {
    fill_with_poison(block.shared, wanted);
  } else {
    memset(block.shared, 0, wanted);
  }
  block.shared_high = wanted;
  block.variables.clear();
  block.shared_payload = dynamic_size;
  block.shared_used = dynamic_size ? dynamic_size + gap() : 0;
}

void* shared_var(const void* key, size_t size, size_t align, const char* name) {
  Block* block = context.block;
  if (block == nullptr) {
    throw Error("a __shared__ variable was used outside a kernel");
  }
  for (const SharedVariable& variable : block->variables) {
    if (variable.key == key) {
      return block->shared + variable.offset;
    }
  }
  size_t offset = align_up(block->shared_used, std::max<size_t>(align, 16));
  block->shared_payload += size;
  if (block->shared_payload > shared_limit || offset + size > block->shared_capacity) {
    abort_kernel("launch_error", "a block uses " + std::to_string(block->shared_payload) +
                                     " bytes of shared memory, of " +
                                     std::to_string(shared_limit));
  }
  if (offset + size > block->shared_high) {
    if (options.poison) {
      fill_with_poison(block->shared + block->shared_high,
                       offset + size - block->shared_high);
    }
    block->shared_high = offset + size;
  }
  block->shared_used = offset + size + gap();
  block->variables.push_back({key, offset, size, name});
  return block->shared + offset;
}

void* dyn_shared() {
  if (context.block == nullptr) {
    throw Error("extern __shared__ memory was used outside a kernel");
  }
  return context.block->shared;
}

}  // namespace simt
