// Wraps torch's CPU allocator: every storage is filled with the poison pattern and made known to
// the checks, with guard zones around it.
//
// Whatever torch then writes counts as initialised, because its content is no longer the pattern.
// A host write of exactly that pattern (one NaN of 16 million, or the integer 2144707493) at an
// aligned word is taken for no write.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

extern "C" {
void simt_memory_add(const void* pointer, size_t size, const char* name, int poisoned);
void simt_memory_remove(const void* pointer);
}

namespace simt {
void fill_with_poison(void* memory, size_t size);
}

namespace {

c10::Allocator* torch_allocator = nullptr;
std::mutex live_mutex;

// Never destroyed: tensors may be freed while the process exits.
std::unordered_map<void*, c10::DataPtr>& live() {
  static auto* map = new std::unordered_map<void*, c10::DataPtr>;
  return *map;
}

void release(void* pointer) {
  simt_memory_remove(pointer);
  c10::DataPtr owner;
  std::lock_guard lock(live_mutex);
  auto found = live().find(pointer);
  if (found != live().end()) {
    owner = std::move(found->second);
    live().erase(found);
  }
}

class PoisoningAllocator final : public c10::Allocator {
 public:
  // raw_allocate() asserts that data and context are one pointer.
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) {
      return torch_allocator->allocate(0);
    }
    constexpr size_t front = 1024;
    size_t back = std::clamp<size_t>(size, 1024, 256 << 10);
    c10::DataPtr owner = torch_allocator->allocate(front + size + back);
    char* pointer = static_cast<char*>(owner.get()) + front;
    simt::fill_with_poison(pointer, (size + 7) / 8 * 8);
    simt_memory_add(pointer, size, "a tensor", 1);
    {
      std::lock_guard lock(live_mutex);
      live()[pointer] = std::move(owner);
    }
    return c10::DataPtr(pointer, pointer, &release, c10::Device(c10::kCPU));
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};

PoisoningAllocator poisoning_allocator;

}  // namespace

extern "C" void simt_alloc_install() {
  if (torch_allocator == nullptr) {
    torch_allocator = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&poisoning_allocator, 255);
  }
}
