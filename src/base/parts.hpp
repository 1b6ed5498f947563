// SPDX-License-Identifier: Apache-2.0
// A range of memory given out in parts. It keeps its books elsewhere, and so touches none of the memory.
#pragma once
#include <cstddef>
#include <map>

namespace ucclep {

class Parts {
 public:
  // Each part begins at a multiple of the alignment, a power of two.
  Parts(void* data, size_t bytes, size_t alignment);

  // The smallest place that is large enough; null: there is none.
  void* take(size_t bytes);
  bool owns(const void* part) const { return used_.contains(as_key(part)); }
  void give(void* part) noexcept;  // one that it owns
  // Of the part in which the address lies, from there to its end; 0: in none.
  size_t bytes_from(const void* address) const;
  bool empty() const { return used_.empty(); }
  size_t rounded(size_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

 private:
  static char* as_key(const void* part) { return static_cast<char*>(const_cast<void*>(part)); }

  size_t alignment_;
  std::map<char*, size_t> free_;  // by address; none begins where another one ends
  std::map<char*, size_t> used_;
};

}  // namespace ucclep
