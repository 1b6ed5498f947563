// SPDX-License-Identifier: Apache-2.0
// Who makes a lane's accesses, in ThreadSanitizer's eyes. A lane goes on as the lane of its number in the stream's
// launch before: all that this one did comes before the launch anyway, so nothing is hidden, and most lanes run for
// less time than it takes to make an identity and to end it.
#pragma once
#include <cstddef>
#include <vector>

#include "device/host/fiber.hpp"

namespace ucclep::executor {

// Of the lanes of one stream; of one launch at a time. Without -DUCCLEP_TSAN all of this is nothing.
class Identities {
 public:
  Identities() = default;
  ~Identities();
  Identities(const Identities&) = delete;
  Identities& operator=(const Identities&) = delete;

  void expect(size_t lanes);  // before a launch of so many

  // For lane `number` of the launch, which no other takes; until it has ended.
  void lend(size_t number, Fiber& lane);
  void give_back(size_t number, Fiber& lane);

 private:
  std::vector<Fiber> kept_;
};

}  // namespace ucclep::executor
