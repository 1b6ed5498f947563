// SPDX-License-Identifier: Apache-2.0
// Commands that cannot be carried out yet wait here, in a list for each destination and lane, so that they do not block
// their ring (P9). The lists share one pool, which has room for all commands that may wait at the same time. Nothing is
// allocated after construction.
#pragma once
#include <cstdint>
#include <vector>

#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {

class SendQueue {
 public:
  SendQueue(uint32_t lists, uint32_t capacity);

  bool push(uint32_t list, const Command& command);  // false: the pool is used up
  bool is_empty(uint32_t list) const { return lists_[list].first == none; }
  const Command& front(uint32_t list) const { return nodes_[lists_[list].first].command; }  // of one that is not empty
  void pop(uint32_t list);
  uint32_t size() const { return size_; }  // of all lists

 private:
  static constexpr uint32_t none = 0xffffffff;
  struct Node {
    Command command;
    uint32_t next = none;
  };
  struct List {
    uint32_t first = none, last = none;
  };

  std::vector<Node> nodes_;
  std::vector<List> lists_;
  uint32_t free_ = none;  // the first of those without a command
  uint32_t size_ = 0;
};

}  // namespace ucclep::proxy
