// Findings of the checks, and how the host reads them (C API, one JSON object each).
#include <cstdio>
#include <cstring>
#include <mutex>
#include <tuple>

#include "internal.h"

namespace simt {

namespace {

constexpr size_t max_findings = 64;

struct Entry {
  Finding finding;
  std::string kernel;
  uint3 block;
  uint3 thread;
};

std::mutex mutex;
std::vector<Entry> errors;
std::vector<Entry> warnings;
std::string current_kernel;

bool earlier(const Entry& a, const Entry& b) {
  auto key = [](const Entry& e) {
    return std::tuple(e.block.z, e.block.y, e.block.x, e.thread.z, e.thread.y, e.thread.x);
  };
  return key(a) < key(b);
}

void append_escaped(std::string& out, const std::string& text) {
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      char code[8];
      snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += static_cast<char>(c);
    }
  }
}

void append_field(std::string& out, const char* name, const std::string& text) {
  out += '"';
  out += name;
  out += "\": \"";
  append_escaped(out, text);
  out += "\", ";
}

std::string triple(uint3 v) {
  return "[" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + "]";
}

std::string to_json(const Entry& entry) {
  const Finding& finding = entry.finding;
  std::string out = "{";
  append_field(out, "kind", finding.kind);
  append_field(out, "severity", finding.severity == Severity::error ? "error" : "warning");
  append_field(out, "message", finding.message);
  append_field(out, "kernel", entry.kernel);
  append_field(out, "array", finding.array);
  out += "\"block\": " + triple(entry.block) + ", ";
  out += "\"thread\": " + triple(entry.thread) + ", ";
  out += "\"bytes\": " + std::to_string(finding.bytes) + "}";
  return out;
}

int copy_json(const std::vector<Entry>& entries, int index, char* buffer, size_t size) {
  std::lock_guard lock(mutex);
  if (index < 0 || index >= static_cast<int>(entries.size())) {
    return -1;
  }
  std::string json = to_json(entries[index]);
  if (size > 0) {
    size_t count = std::min(size - 1, json.size());
    memcpy(buffer, json.data(), count);
    buffer[count] = 0;
  }
  return static_cast<int>(json.size());
}

}  // namespace

void set_kernel_name(const char* name) {
  std::string text = name;
  if (text.size() >= 2 && text.front() == '(' && text.back() == ')') {
    text = text.substr(1, text.size() - 2);
  }
  current_kernel = text;
}

const std::string& kernel_name() {
  return current_kernel;
}

void report_at(const Finding& finding, uint3 block, uint3 thread) {
  std::lock_guard lock(mutex);
  std::vector<Entry>& entries = finding.severity == Severity::error ? errors : warnings;
  Entry entry{finding, current_kernel, block, thread};
  for (Entry& known : entries) {
    bool same = strcmp(known.finding.kind, finding.kind) == 0 &&
                known.finding.array == finding.array && known.kernel == entry.kernel;
    if (same) {
      if (earlier(entry, known)) {
        known = entry;
      }
      return;
    }
  }
  if (entries.size() < max_findings) {
    entries.push_back(entry);
  }
}

void report(const Finding& finding) {
  report_at(finding, context.block_index, context.thread_index);
}

}  // namespace simt

extern "C" {

int simt_diag_count() {
  std::lock_guard lock(simt::mutex);
  return static_cast<int>(simt::errors.size());
}

// Writes entry `index` as a JSON object, cut to `size` bytes with the final zero, and returns its
// full length; -1 when there is no such entry.
int simt_diag_json(int index, char* buffer, size_t size) {
  return simt::copy_json(simt::errors, index, buffer, size);
}

int simt_warning_count() {
  std::lock_guard lock(simt::mutex);
  return static_cast<int>(simt::warnings.size());
}

int simt_warning_json(int index, char* buffer, size_t size) {
  return simt::copy_json(simt::warnings, index, buffer, size);
}

void simt_diag_clear() {
  std::lock_guard lock(simt::mutex);
  simt::errors.clear();
  simt::warnings.clear();
}

}  // extern "C"
