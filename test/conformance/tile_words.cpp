// SPDX-License-Identifier: Apache-2.0
#include "conformance/tile_words.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace ucclep::test {
namespace {

std::string of_expert(int rank, int expert) {
  return "rank " + std::to_string(rank) + ", local expert " + std::to_string(expert) + ": ";
}

// The address of a row of a tensor of one or two leading dimensions. slab: rows of the inner one.
uint64_t address(const ucclEpTensor_t& tensor, int64_t row, int64_t slab) {
  const int64_t element = tensor.dtype == ucclEpFloat32 || tensor.dtype == ucclEpInt32      ? 4
                          : tensor.dtype == ucclEpBfloat16 || tensor.dtype == ucclEpFloat16 ? 2
                          : tensor.dtype == ucclEpInt64                                     ? 8
                                                                                            : 1;
  const int last = tensor.ndim - 1;
  const bool packed = tensor.strides[0] == 0 && tensor.strides[1] == 0 && tensor.strides[2] == 0;
  const int64_t inner = packed ? tensor.sizes[last] : tensor.strides[last - 1];
  const int64_t outer = last == 1 ? 0 : packed ? slab * inner : tensor.strides[0];
  return reinterpret_cast<uint64_t>(tensor.data) +
         static_cast<uint64_t>((row / slab * outer + row % slab * inner) * element);
}

// An expert's rows: the first one, how many come, and where those of the next one may begin.
struct TileZone {
  int64_t first, rows, end;
};
std::vector<TileZone> zones_of(const Contents& contents, const Scenario& scenario, int rank) {
  const reference::Counters counts = reference::counters(contents.world(), scenario.shape(), rank);
  std::vector<TileZone> zones;
  for (size_t l = 0; l < counts.tokens_per_expert_unpadded.size(); ++l) {
    const int64_t slab = static_cast<int64_t>(l) * scenario.slab_rows();
    const int64_t first = scenario.ll() ? slab : counts.expert_offsets[l];
    const int64_t end = scenario.ll() ? slab + scenario.slab_rows() : counts.expert_offsets[l + 1];
    zones.push_back({first, counts.tokens_per_expert_unpadded[l], end});
  }
  return zones;
}

}  // namespace

TileWords::TileWords(ucclEpComm_t comm, ucclEpHandle_t handle, const Scenario& scenario) {
  ok(ucclEpHandleGetTiles(handle, &at), "ucclEpHandleGetTiles");
  const int64_t experts = scenario.local_experts();
  const auto copy = [&](auto& to, const auto* from, int64_t count) {
    to.resize(static_cast<size_t>(count));
    ok(ucclEpMemcpy(comm, to.data(), from, to.size() * sizeof to[0], nullptr), "ucclEpMemcpy");
    ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  };
  copy(ready, at.tile_ready, at.tiles);
  copy(done, at.tile_done, at.tiles);
  copy(expert, at.tile_expert, at.tiles);
  copy(final, at.rows_final, experts);
  copy(first_row, at.first_row, experts);
  copy(src_info, at.src_info, at.capacity);
  copy(weights, at.weights, at.capacity);
  copy(row_at, at.row_at, at.capacity);
  copy(scales_at, at.scales_at, at.capacity);
}

int64_t TileWords::count(uint32_t word) const {
  return std::count(ready.begin(), ready.end(), word);
}

std::vector<int64_t> TileWords::places(const Contents& contents, const Scenario& scenario, int rank) const {
  const int64_t tile_rows = at.capacity / at.tiles;
  const std::vector<TileZone> zones = zones_of(contents, scenario, rank);
  require(tile_rows == scenario.tile_rows && at.capacity >= zones.back().end &&
              (!scenario.ll() || at.capacity == zones.back().end),
          "the handle has " + std::to_string(at.tiles) + " tiles of " + std::to_string(tile_rows) + " rows");
  std::vector<std::map<int64_t, reference::Slot>> expected(final.size());  // by src_info
  int64_t rows_of_reference = 0;
  for (const reference::Slot& slot : contents.placed(rank).slots) {
    expected[static_cast<size_t>(slot.expert)].emplace(int64_t{slot.source} << 32 | slot.token, slot);
    rows_of_reference = std::max(rows_of_reference, slot.row + 1);
  }
  for (auto t = zones.back().end / tile_rows; t < at.tiles; ++t) {
    const auto tile = static_cast<size_t>(t);
    require(ready[tile] == 2 && expert[tile] == -1,
            "tile " + std::to_string(t) + ", of no expert, is " + std::to_string(ready[tile]));
  }
  std::vector<int64_t> places(static_cast<size_t>(rows_of_reference), -1);
  for (int e = 0; e < scenario.local_experts(); ++e) {
    const auto l = static_cast<size_t>(e);
    std::map<int64_t, reference::Slot>& rows = expected[l];
    const auto count = static_cast<int64_t>(rows.size());
    require(first_row[l] == zones[l].first, of_expert(rank, e) + "first_row is " + std::to_string(first_row[l]));
    require(final[l] == count,
            of_expert(rank, e) + "rows_final is " + std::to_string(final[l]) + ", expected " + std::to_string(count));
    for (int64_t t = 0; t < (zones[l].end - zones[l].first) / tile_rows; ++t) {
      const auto tile = static_cast<size_t>(first_row[l] / tile_rows + t);
      const uint32_t word = t * tile_rows < count ? 1 : 2;
      require(ready[tile] == word && expert[tile] == e, of_expert(rank, e) + "tile " + std::to_string(t) + " is " +
                                                            std::to_string(ready[tile]) + ", expected " +
                                                            std::to_string(word));
    }
    for (int64_t place = 0; place < count; ++place) {
      const auto row = static_cast<size_t>(first_row[l] + place);
      const auto found = rows.find(src_info[row]);
      require(found != rows.end(), of_expert(rank, e) + "row " + std::to_string(place) + " is of rank " +
                                       std::to_string(src_info[row] >> 32) + ", token " +
                                       std::to_string(src_info[row] & 0xffffffff) +
                                       ", which does not come here, or is there twice");
      const float weight = scenario.pass == UCCLEP_PASS_BACKWARD
                               ? 1.0f
                               : reference::received_weight(contents.world(), found->second, rank);
      require(weights[row] == weight, of_expert(rank, e) + "row " + std::to_string(place) + " has weight " +
                                          std::to_string(weights[row]) + ", expected " + std::to_string(weight));
      places[static_cast<size_t>(found->second.row)] = static_cast<int64_t>(row);
      rows.erase(found);
    }
  }
  return places;
}

void TileWords::check_addresses(const ucclEpDispatchOutputs_t& outputs, const std::vector<int64_t>& places) const {
  const ucclEpTensor_t& tokens = *outputs.tokens;
  const int64_t slab = std::max<int64_t>(1, tokens.sizes[tokens.ndim - 2]);
  for (const int64_t place : places) {
    if (place < 0) continue;
    const auto row = static_cast<size_t>(place);
    const uint64_t scales = outputs.scales != nullptr ? address(*outputs.scales, place, slab) : 0;
    require(row_at[row] == address(*outputs.tokens, place, slab) && scales_at[row] == scales,
            "row " + std::to_string(row) + " has the addresses of another one");
  }
}

}  // namespace ucclep::test
