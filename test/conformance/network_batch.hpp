// SPDX-License-Identifier: Apache-2.0
// Several routings of one scenario at once between virtual nodes, in each of the manners in which operations are
// called.
#pragma once
#include <deque>
#include <vector>

#include "conformance/zero_copy.hpp"

namespace ucclep::test {

// in_windows: tensors lie in windows of the user's, on some ranks whole, on others with a half or not at all.
enum class Manner { whole, phases, backward, backward_in_phases, in_windows };
inline constexpr unsigned all_manners = 5;

inline bool has_phases(Manner manner) {
  return manner == Manner::phases || manner == Manner::backward_in_phases;
}
inline bool goes_back(Manner manner) {
  return manner == Manner::backward || manner == Manner::backward_in_phases;
}

// Each on a handle of its own, enqueued in one go, so that their operations overlap on the network. All ranks make the
// same draw.
class Batch {
 public:
  Batch(const Rank& rank, ucclEpComm_t comm, const std::vector<Handle>& handles, const Scenario& scenario,
        uint64_t first_seed);
  // Every rank in phases, or ranks of which each decides for itself.
  void split(uint64_t draw);
  // Collective.
  void register_windows(uint64_t draw);
  void enqueue(ucclEpStream_t stream);
  // After the stream was synchronised. A record of dropped rows is forgotten.
  void check();

 private:
  void update(size_t i, ucclEpStream_t stream);
  void enqueue_phases(ucclEpStream_t stream);
  void complete_all(size_t first, ucclEpStream_t stream);

  const Rank& rank_;
  ucclEpComm_t const comm_;
  const std::vector<Handle>& handles_;
  const Scenario scenario_;
  std::vector<uint64_t> seeds_;
  std::deque<Exchange> exchanges_;
  std::deque<Windows> windows_;  // go before the tensors do
  bool split_ = false;
};

}  // namespace ucclep::test
