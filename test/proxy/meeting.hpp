// SPDX-License-Identifier: Apache-2.0
// Where ranks that are threads of a test meet.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

namespace ucclep::test {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class Meeting {
 public:
  explicit Meeting(uint32_t ranks) : parts_(ranks) {}
  std::vector<std::vector<std::byte>> allgather(uint32_t rank, std::span<const std::byte> mine);
  // The others meet without the rank, which brings nothing.
  void leave(uint32_t rank);
  void come_back();  // while nobody meets
  void give_up();
  bool given_up();

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<std::vector<std::byte>> parts_, all_;
  void move_on_if_all_are_here();

  uint32_t here_ = 0, gone_ = 0;
  uint64_t round_ = 0;
  bool given_up_ = false;
};

}  // namespace ucclep::test
