// SPDX-License-Identifier: Apache-2.0
// A row that crosses the network once for all ranks of a node, to the source's relay there (layout/nodes.hpp): {meta
// line, its place at the rank of each selection, row}. Of HT (ht/nodes/relay.hpp), and of LL (ll/relay.hpp).
#pragma once
#include <cstdint>

#include "ucclep/device/layout/network_view.hpp"
#include "ucclep/device/layout/nodes.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/simt/simt.hpp"
#include "ucclep/ucclep.h"

namespace UCCLEP_SIMT_NAMESPACE {
namespace network {

UCCLEP_FN char* table(const ucclEpDeviceGroup& group, uint64_t offset) {
  return reinterpret_cast<char*>(group.network + 1) + offset;
}
UCCLEP_FN NodeTable nodes_of(const ucclEpDeviceGroup& group) {
  const NodeShape& shape = group.shape.nodes;
  return {reinterpret_cast<const uint32_t*>(table(group, NetworkTables::of(group.shape).nodes)), group.shape.ranks,
          shape.nodes, shape.turns};
}

UCCLEP_FN NodeTable nodes_of(const Op& op) {
  return nodes_of(op.group);
}
UCCLEP_FN uint32_t own_node(const Op& op) {
  return nodes_of(op).node_of(op.me());
}

// Lane verb: tokens of a TokenSets that go to a node, all of them before `token`: the union of the sets of its ranks.
template <class Sets>
UCCLEP_FN uint32_t count_before(const Sets& sets, const NodeTable& nodes, uint32_t node, uint32_t token) {
  const uint32_t members = nodes.size_of(node), stop = sets.end;
  const uint32_t bits = (token < stop ? token : stop) - sets.first;
  uint32_t count = 0;
  for (uint32_t w = 0; w * 32 < bits; ++w) {
    uint32_t any = 0;
    for (uint32_t i = 0; i < members; ++i) any |= sets.set(nodes.member(node, i))[w];
    count += count_lanes(bits - w * 32 < 32 ? any & ((1u << bits % 32) - 1) : any);
  }
  return count;
}

// Warp verb, before build_meta: what stands in shared memory behind the body of the meta line. place: of lane k's
// selection.
UCCLEP_FN void write_places(const GroupShape& shape, char* meta, uint32_t place) {
  auto* places = reinterpret_cast<uint32_t*>(meta + MetaLayout::of(shape.top_k).bytes);
  if (lane_id() < (shape.top_k + 3) / 4 * 4) places[lane_id()] = place;
  if (lane_id() < 4) (places - 4)[lane_id()] = 0;
}

// Of such a row, lane k's selection: which rank of this node it is for, and the row's place there.
struct Addressee {
  bool mine = false;
  uint32_t rank = 0, place = 0;

  static UCCLEP_FN Addressee of(const Op& op, const char* row) {
    const GroupShape& shape = op.group.shape;
    const MetaLayout layout = MetaLayout::of(shape.top_k);
    const uint32_t k = lane_id();
    if (k >= shape.top_k) return {};
    const uint32_t expert = reinterpret_cast<const uint16_t*>(row + layout.experts)[k];
    const uint32_t place = reinterpret_cast<const uint32_t*>(row + layout.bytes)[k];
    if (expert == no_expert || place == no_place) return {};
    const uint32_t rank = shape.rank_of(expert);
    return {nodes_of(op.group).node_of(rank) == own_node(op), rank, place};
  }
};

}  // namespace network
}  // namespace UCCLEP_SIMT_NAMESPACE
