// SPDX-License-Identifier: Apache-2.0
// P15: how many bytes of a GPU's store arrive whole at a peer: a reader that sees some of them sees all. It depends on
// what joins the two GPUs. docs/protocol.md names the sources.
#pragma once
#include <string_view>

namespace ucclep {

struct WholeStores {
  unsigned linked = 0;     // within one GPU, and by NVLink or xGMI
  unsigned over_pcie = 0;  // and by an unknown link
};

constexpr WholeStores whole_stores_of(std::string_view maker) {
  if (maker == "NVIDIA") return {128, 16};
  return {8, 8};
}

}  // namespace ucclep
