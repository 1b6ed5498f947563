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

// The address of a row: of a tensor of two leading dimensions.
uint64_t address(const ucclEpTensor_t& tensor, int64_t row, int64_t slab) {
  const int64_t element = tensor.dtype == ucclEpFloat32 || tensor.dtype == ucclEpInt32      ? 4
                          : tensor.dtype == ucclEpBfloat16 || tensor.dtype == ucclEpFloat16 ? 2
                          : tensor.dtype == ucclEpInt64                                     ? 8
                                                                                            : 1;
  const bool packed = tensor.strides[0] == 0 && tensor.strides[1] == 0 && tensor.strides[2] == 0;
  const int64_t inner = packed ? tensor.sizes[2] : tensor.strides[1], outer = packed ? slab * inner : tensor.strides[0];
  return reinterpret_cast<uint64_t>(tensor.data) +
         static_cast<uint64_t>((row / slab * outer + row % slab * inner) * element);
}

}  // namespace

TileWords::TileWords(ucclEpComm_t comm, ucclEpHandle_t handle) {
  ok(ucclEpHandleGetTiles(handle, &at), "ucclEpHandleGetTiles");
  int64_t experts = 0;
  const auto copy = [&](auto& to, const auto* from, int64_t count) {
    to.resize(static_cast<size_t>(count));
    ok(ucclEpMemcpy(comm, to.data(), from, to.size() * sizeof to[0], nullptr), "ucclEpMemcpy");
    ok(ucclEpStreamSynchronize(comm, nullptr), "ucclEpStreamSynchronize");
  };
  copy(ready, at.tile_ready, at.tiles);
  copy(done, at.tile_done, at.tiles);
  copy(expert, at.tile_expert, at.tiles);
  for (const int32_t one : expert) experts = std::max(experts, int64_t{one} + 1);
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
  const int64_t slab = scenario.slab_rows(), tile_rows = at.capacity / at.tiles;
  require(tile_rows == scenario.tile_rows && at.capacity == scenario.local_experts() * slab &&
              final.size() == static_cast<size_t>(scenario.local_experts()),
          "the handle has " + std::to_string(at.tiles) + " tiles of " + std::to_string(tile_rows) + " rows");
  std::vector<std::map<int64_t, reference::Slot>> expected(final.size());  // by src_info
  for (const reference::Slot& slot : contents.placed(rank).slots) {
    expected[static_cast<size_t>(slot.expert)].emplace(int64_t{slot.source} << 32 | slot.token, slot);
  }
  std::vector<int64_t> places(static_cast<size_t>(scenario.local_experts() * scenario.ranks * scenario.max_rows()), -1);
  for (int e = 0; e < scenario.local_experts(); ++e) {
    const auto l = static_cast<size_t>(e);
    std::map<int64_t, reference::Slot>& rows = expected[l];
    const auto count = static_cast<int64_t>(rows.size());
    require(first_row[l] == e * slab, of_expert(rank, e) + "first_row is " + std::to_string(first_row[l]));
    require(final[l] == count,
            of_expert(rank, e) + "rows_final is " + std::to_string(final[l]) + ", expected " + std::to_string(count));
    for (int64_t t = 0; t < slab / tile_rows; ++t) {
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
  const auto slab = static_cast<int64_t>(outputs.tokens->sizes[1]);
  for (const int64_t place : places) {
    if (place < 0) continue;
    const auto row = static_cast<size_t>(place);
    const uint64_t scales = outputs.scales != nullptr ? address(*outputs.scales, place, slab) : 0;
    require(row_at[row] == address(*outputs.tokens, place, slab) && scales_at[row] == scales,
            "row " + std::to_string(row) + " has the addresses of another one");
  }
}

}  // namespace ucclep::test
