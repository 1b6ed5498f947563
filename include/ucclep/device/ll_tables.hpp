// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block of an LL dispatch.
#pragma once
#include "ucclep/device/ll_inbox.hpp"
#include "ucclep/device/stage.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// What a block shares besides the stages of its warps.
struct BlockTables {
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) {
    return TokenSetShape::of(shape).bytes(shape) + round_up(sizeof(HeaderFacts) * uint64_t{shape.ranks}, 16) +
           InboxShape::of(shape).bytes() + sizeof(uint32_t) * most_warps;
  }
  static constexpr uint32_t most_warps = 16;  // of a block, on any device: the host computes bytes for all of them
  static_assert(block_scratch <= most_warps);
  uint32_t* sets;
  Inbox inbox;
  uint32_t* scratch;  // [most_warps]

  static UCCLEP_FN BlockTables of(const Stage& stage, const LlDispatchArgs& args) {
    const GroupShape& shape = args.group.shape;
    char* const base = stage.beyond();
    char* facts = base + TokenSetShape::of(shape).bytes(shape);
    char* inbox = facts + round_up(sizeof(HeaderFacts) * uint64_t{shape.ranks}, 16);
    const InboxShape tables = InboxShape::of(shape);
    return {reinterpret_cast<uint32_t*>(base), Inbox::at(inbox, reinterpret_cast<HeaderFacts*>(facts), tables),
            reinterpret_cast<uint32_t*>(inbox + tables.bytes())};
  }
};

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
