// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block of an LL dispatch.
#pragma once
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/ll/headers.hpp"
#include "ucclep/device/ll/inbox.hpp"
#include "ucclep/device/protocol/exchange.hpp"
#include "ucclep/device/protocol/header.hpp"
#include "ucclep/device/protocol/routing.hpp"
#include "ucclep/device/rows/stage.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace ll {

// What a block shares besides the stages of its warps (BlockTableLayout).
struct BlockTables {
  uint32_t* sets;
  Inbox inbox;
  uint32_t* scratch;  // [BlockTableLayout::max_warps]
  static_assert(block_scratch <= BlockTableLayout::max_warps);

  static UCCLEP_FN BlockTables of(const Stage& stage, const LlDispatchArgs& args) {
    char* const base = stage.beyond();
    const BlockTableLayout& at = args.tables;
    return {reinterpret_cast<uint32_t*>(base),
            {reinterpret_cast<HeaderFacts*>(base + at.facts),
             at.tokens != at.bases ? reinterpret_cast<uint16_t*>(base + at.tokens) : nullptr,
             at.bases != at.scratch ? reinterpret_cast<uint32_t*>(base + at.bases) : nullptr},
            reinterpret_cast<uint32_t*>(base + at.scratch)};
  }

  // Where rows are found by headers.
  static UCCLEP_FN HeaderTable headers_of(const Stage& stage, const LlDispatchArgs& args) {
    return {stage.beyond(), args.tables};
  }

  // For the block that counts: where the inbox will be, if there is room.
  UCCLEP_FN HeaderWords header_words(const HandleMemory& memory) const {
    if (inbox.bases == nullptr) return HeaderWords::of(memory);
    return HeaderWords::in(memory.shape.ranks, reinterpret_cast<uint32_t*>(inbox.facts), inbox.bases);
  }
};
static_assert(sizeof(HeaderFacts) == BlockTableLayout::fact_bytes);

}  // namespace ll
}  // namespace UCCLEP_SIMT_NAMESPACE
