// SPDX-License-Identifier: Apache-2.0
// What a handle of TILES says (ucclEpTiles_t), copied from its device, and compared with what it must say.
#pragma once
#include <vector>

#include "conformance/scenario.hpp"

namespace ucclep::test {

struct TileWords {
  TileWords(ucclEpComm_t comm, ucclEpHandle_t handle, const Scenario& scenario);

  // Of each row of the reference, where it lies at a rank, or -1: after its dispatch has ended well, and none was
  // dropped.
  std::vector<int64_t> places(const Contents& contents, const Scenario& scenario, int rank) const;
  // Rows lie in the outputs of the dispatch.
  void check_addresses(const ucclEpDispatchOutputs_t& outputs, const std::vector<int64_t>& places) const;

  int64_t count(uint32_t word) const;  // of tile_ready

  ucclEpTiles_t at = UCCLEP_TILES_INIT;
  std::vector<uint32_t> ready, done;
  std::vector<int32_t> final, expert;
  std::vector<int64_t> first_row, src_info;
  std::vector<float> weights;
  std::vector<uint64_t> row_at, scales_at;
};

}  // namespace ucclep::test
