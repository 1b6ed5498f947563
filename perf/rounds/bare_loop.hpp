// SPDX-License-Identifier: Apache-2.0
// The rows of a rank alone, in one launch of as many rounds: each once to a peer and back, with the kernels of
// ceiling_perf.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "endpoint.hpp"
#include "rounds/kernels/arguments.hpp"
#include "rounds/launcher.hpp"
#include "windows.hpp"

namespace ucclep::perf {

class BareLoop {
 public:
  // Is there one for this shape and these ranks? It sums bf16, and stores into memory of all ranks.
  static bool exists(const Endpoint& endpoint);
  // Collective, as the destructor is unless a rank has failed. group: of the endpoint's handle.
  BareLoop(Endpoint& endpoint, Launcher& launcher, const ucclEpDeviceGroup& group);

  // Takes rows and routing of the iteration.
  void prepare();
  void launch();
  Tally verify();

 private:
  size_t most_rows() const;  // that a rank receives, or gets back
  size_t row_bytes() const { return endpoint_.shape().combine_row_bytes(); }
  size_t landed_row_bytes() const;
  size_t landing_bytes() const { return most_rows() * landed_row_bytes(); }
  ucclEpTensor_t allocate_landings();
  void find_peers();
  CeilingCopyArgs common_args(uint64_t epoch) const;

  Endpoint& endpoint_;
  Launcher& launcher_;
  const ucclEpTensor_t landings_;
  const Windows window_;
  std::byte *input_, *received_, *places_, *origins_, *late_, *barrier_;
  std::vector<char*> peers_;
  CeilingLimit limit_;
  uint32_t received_rows_ = 0;
  uint64_t next_epoch_ = 1;
};

}  // namespace ucclep::perf
