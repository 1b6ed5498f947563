// SPDX-License-Identifier: Apache-2.0
// A queue of the doubles of NICs. It has its room from the start: nothing is allocated while messages move.
#pragma once
#include <cstddef>
#include <vector>

namespace ucclep::test {

template <class Entry>
class Ring {
 public:
  explicit Ring(size_t room) : entries_(room) {}
  bool push(const Entry& entry) {
    if (full()) return false;
    entries_[(first_ + count_++) % entries_.size()] = entry;
    return true;
  }
  Entry& front() { return entries_[first_]; }
  void pop() {
    first_ = (first_ + 1) % entries_.size();
    --count_;
  }
  void clear() { first_ = count_ = 0; }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == entries_.size(); }
  size_t size() const { return count_; }
  size_t room() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace ucclep::test
