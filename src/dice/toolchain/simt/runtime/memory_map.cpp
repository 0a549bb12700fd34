// Which memory a kernel may access: tensors, cudaMalloc, and the globals of the kernel's module.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "shadow.h"

namespace simt {

namespace {

struct Range {
  const char* begin;
  const char* end;
  bool holds(const char* address) const { return address >= begin && address < end; }
};

std::mutex map_mutex;
std::map<const char*, std::unique_ptr<Region>>& regions() {
  static auto* map = new std::map<const char*, std::unique_ptr<Region>>;  // outlives every tensor
  return *map;
}
std::vector<Range> constants;         // read-only segments of modules
std::vector<uintptr_t> known_modules;  // load addresses
Range host_stack{nullptr, nullptr};

// The last region that begins at or below `address`. The caller holds the lock.
Region* region_below(const char* address) {
  auto after = regions().upper_bound(address);
  return after == regions().begin() ? nullptr : std::prev(after)->second.get();
}

void erase_overlapping(const char* begin, size_t size) {
  auto it = regions().upper_bound(begin);
  if (it != regions().begin()) {
    --it;
    if (it->second->begin + it->second->size <= begin) {
      ++it;
    }
  }
  while (it != regions().end() && it->first < begin + size) {
    it = regions().erase(it);
  }
}

void add_region(const void* pointer, size_t size, const std::string& name, bool poisoned) {
  char* begin = const_cast<char*>(static_cast<const char*>(pointer));
  std::lock_guard lock(map_mutex);
  erase_overlapping(begin, size);
  regions()[begin] = std::make_unique<Region>(begin, size, name, poisoned);
}

bool remove_region(const void* pointer) {
  std::lock_guard lock(map_mutex);
  return regions().erase(static_cast<const char*>(pointer)) > 0;
}

int add_segments(dl_phdr_info* info, size_t, void* wanted) {
  if (info->dlpi_addr != *static_cast<uintptr_t*>(wanted)) {
    return 0;
  }
  for (int k = 0; k < info->dlpi_phnum; k++) {
    const auto& header = info->dlpi_phdr[k];
    if (header.p_type != PT_LOAD) {
      continue;
    }
    auto* begin = reinterpret_cast<char*>(info->dlpi_addr + header.p_vaddr);
    if (header.p_flags & PF_W) {
      add_region(begin, header.p_memsz, "a __device__ variable", false);
    } else {
      constants.push_back({begin, begin + header.p_memsz});
    }
  }
  return 1;
}

}  // namespace

Region* find_region(const char* address, size_t size) {
  std::lock_guard lock(map_mutex);
  Region* region = region_below(address);
  bool inside = region != nullptr && address + size <= region->begin + region->size;
  return inside ? region : nullptr;
}

std::string describe_address(const char* address) {
  constexpr ptrdiff_t near = 1 << 20;
  std::lock_guard lock(map_mutex);
  Region* below = region_below(address);
  auto above = regions().upper_bound(address);
  ptrdiff_t past = below ? address - (below->begin + below->size) : near;
  ptrdiff_t before = above != regions().end() ? above->second->begin - address : near;
  if (past < near && past <= before) {
    return (past < 0 ? "across the end" : std::to_string(past) + " bytes past the end") + " of " +
           below->name + " (" + std::to_string(below->size) + " bytes)";
  }
  if (before < near) {
    return std::to_string(before) + " bytes before " + above->second->name + " (" +
           std::to_string(above->second->size) + " bytes)";
  }
  char text[40];
  snprintf(text, sizeof text, "at address %p", static_cast<const void*>(address));
  return std::string(text) + ", far from any array";
}

std::string name_near(const char* address) {
  constexpr ptrdiff_t near = 1 << 20;
  std::lock_guard lock(map_mutex);
  Region* below = region_below(address);
  auto above = regions().upper_bound(address);
  ptrdiff_t past = below ? address - (below->begin + below->size) : near;
  ptrdiff_t before = above != regions().end() ? above->second->begin - address : near;
  if (past < near && past <= before) {
    return below->name;
  }
  return before < near ? above->second->name : "";
}

void for_each_region(void (*visit)(Region&)) {
  std::lock_guard lock(map_mutex);
  for (auto& entry : regions()) {
    visit(*entry.second);
  }
}

bool is_constant_memory(const char* address) {
  for (const Range& range : constants) {
    if (range.holds(address)) {
      return true;
    }
  }
  return false;
}

bool is_host_stack(const char* address) {
  return host_stack.holds(address);
}

// The launching thread's stack: kernel arguments lie there. Looked up once per OS thread.
void remember_host_stack() {
  thread_local Range own{nullptr, nullptr};
  if (own.begin == nullptr) {
    pthread_attr_t attributes;
    void* low = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &low, &size);
      pthread_attr_destroy(&attributes);
    }
    own = {static_cast<char*>(low), static_cast<char*>(low) + size};
  }
  host_stack = own;
}

// The globals of the module that holds the kernel: __device__ and __constant__ variables.
void map_module_of(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0) {
    return;
  }
  auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  for (uintptr_t known : known_modules) {
    if (known == base) {
      return;
    }
  }
  known_modules.push_back(base);
  dl_iterate_phdr(add_segments, &base);
}

void name_region(const void* pointer, const std::string& name) {
  std::lock_guard lock(map_mutex);
  Region* region = region_below(static_cast<const char*>(pointer));
  if (region != nullptr && static_cast<const char*>(pointer) < region->begin + region->size) {
    region->name = name;
  }
}

void* device_alloc(size_t size) {
  constexpr size_t guard = 4096;
  size_t rounded = (size + 255) / 256 * 256;
  auto* base = static_cast<char*>(aligned_alloc(256, rounded + 2 * guard));
  if (base == nullptr) {
    return nullptr;
  }
  char* pointer = base + guard;
  if (options.poison) {
    fill_with_poison(pointer, rounded);
  }
  add_region(pointer, size, "cudaMalloc memory", options.poison);
  return pointer;
}

bool device_free(void* pointer) {
  constexpr size_t guard = 4096;
  if (pointer == nullptr) {
    return true;
  }
  if (!remove_region(pointer)) {
    return false;
  }
  free(static_cast<char*>(pointer) - guard);
  return true;
}

void note_host_memory(const void* pointer, size_t size) {
  auto* address = static_cast<const char*>(pointer);
  if (!options.check || address == nullptr || size == 0) {
    return;
  }
  if (find_region(address, size) == nullptr) {
    add_region(pointer, size, "a tensor", false);
  }
}

}  // namespace simt

extern "C" {

void simt_memory_add(const void* pointer, size_t size, const char* name, int poisoned) {
  simt::add_region(pointer, size, name, poisoned != 0);
}

void simt_memory_remove(const void* pointer) {
  simt::remove_region(pointer);
}

// Makes `size` bytes count as never written: what a kernel does not write then shows as NaN, and
// reading it is a finding.
void simt_alloc_poison(void* pointer, size_t size) {
  simt::fill_with_poison(pointer, size);
  simt::Region* region = simt::find_region(static_cast<char*>(pointer), size);
  if (region != nullptr) {
    region->poisoned = true;
    simt::forget_cells(*region, static_cast<char*>(pointer) - region->begin, size);
  }
}

}  // extern "C"
