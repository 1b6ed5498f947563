// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process need no descriptors: they publish an object under (communicator, rank, object
// id) and the others take a reference. Object ids are the caller's: the same on all ranks, counted per communicator.
#pragma once
#include <cstdint>
#include <memory>

#include "base/token.hpp"

namespace ucclep {

struct SharedObjectKey {
  Token comm_id;
  int rank = 0;
  uint64_t object = 0;
  auto operator<=>(const SharedObjectKey&) const = default;
};

// Withdraws the object when it goes; references that others took stay valid.
class Publication {
 public:
  Publication() = default;
  explicit Publication(const SharedObjectKey& key) : key_(key), published_(true) {}
  Publication(Publication&& other) noexcept : key_(other.key_), published_(other.published_) {
    other.published_ = false;
  }
  Publication& operator=(Publication&& other) noexcept;
  ~Publication() { withdraw(); }
  void withdraw() noexcept;

 private:
  SharedObjectKey key_;
  bool published_ = false;
};

[[nodiscard]] Publication publish(const SharedObjectKey& key, std::shared_ptr<void> object);
// Null if it is not there: publish, then a barrier, then lookup.
std::shared_ptr<void> lookup(const SharedObjectKey& key);

}  // namespace ucclep
