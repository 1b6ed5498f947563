// SPDX-License-Identifier: Apache-2.0
#include "proxy/send_queue.hpp"

#include <utility>

namespace ucclep::proxy {

SendQueue::SendQueue(uint32_t lists, uint32_t capacity) : nodes_(capacity), lists_(lists) {
  for (uint32_t i = capacity; i-- > 0;) nodes_[i].next = std::exchange(free_, i);
}

bool SendQueue::push(uint32_t list, const Command& command) {
  if (free_ == none) return false;
  const uint32_t at = std::exchange(free_, nodes_[free_].next);
  nodes_[at] = {command, none};
  List& to = lists_[list];
  (to.first == none ? to.first : nodes_[to.last].next) = at;
  to.last = at;
  ++size_;
  return true;
}

void SendQueue::pop(uint32_t list) {
  List& from = lists_[list];
  const uint32_t at = std::exchange(from.first, nodes_[from.first].next);
  nodes_[at].next = std::exchange(free_, at);
  --size_;
}

}  // namespace ucclep::proxy
