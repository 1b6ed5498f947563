// SPDX-License-Identifier: Apache-2.0
// The expert map of a group (ucclEpGroupSetExpertMap): checked, and then copied to where ExpertIds
// (protocol/routing.hpp) find it. Local to the rank.
//
// | who releases               | who acquires                                 | what is ordered |
// |----------------------------|----------------------------------------------|-----------------------------------------|
// | the end of set_expert_map  | a launch that reads ids of the caller: its   | the whole map: on other streams by | |
// |   begin, in the order of the stream          |   events of the caller                  |
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/arguments.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/protocol/operation.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// The caller's tensors.
struct GivenMap {
  const ExpertMapArgs& args;

  UCCLEP_FN int32_t copies(uint32_t expert) const {
    return *reinterpret_cast<const int32_t*>(args.copies.at(0, 0, expert));
  }
  UCCLEP_FN int32_t physical(uint32_t expert, uint32_t copy) const {
    return *reinterpret_cast<const int32_t*>(args.physical.at(0, expert, copy));
  }
};

// Lane verb: why a map is not taken.
UCCLEP_COLD_FN void report_map(const Op op, Field field, uint32_t expert, int64_t got) {
  ErrorRecord record = record_of(op, ucclEpInvalidArgument, Phase::copies, -1);
  record.field = field;
  record.expected = expert;
  record.got = static_cast<uint64_t>(got);
  report_data(op.group.errors, record);
}

// Lane verb: may a logical expert have such copies. seen: [E], how often the map has each physical expert so far.
UCCLEP_FN bool check_copies(const Op& op, const GivenMap& given, uint32_t expert, uint32_t* seen) {
  const int32_t copies = given.copies(expert);
  if (copies < 1 || static_cast<uint32_t>(copies) > given.args.most) {
    report_map(op, Field::copies, expert, copies);
    return false;
  }
  for (uint32_t c = 0; c < static_cast<uint32_t>(copies); ++c) {
    const int32_t physical = given.physical(expert, c);
    if (physical < 0 || static_cast<uint32_t>(physical) >= op.group.shape.experts) {
      report_map(op, Field::physical_expert, expert, physical);
      return false;
    }
    if (fetch_add_relaxed<Scope::gpu>(seen + physical, 1u) != 0) {
      report_map(op, Field::repeated_expert, expert, physical);
      return false;
    }
  }
  return true;
}

// Block verb: may the map be taken.
UCCLEP_FN bool check_map(const Op& op, const GivenMap& given, uint32_t* seen) {
  for (uint32_t p = thread_id(); p < op.group.shape.experts; p += block_size()) seen[p] = 0;
  sync_block();
  bool bad = false;
  for (uint32_t e = thread_id(); e < given.args.logical; e += block_size()) {
    bad = !check_copies(op, given, e, seen) || bad;
  }
  return !sync_block_or(bad);
}

// Lane verb: the copies of a logical expert that tokens of this rank take by turns, of those from `first` on in the
// list: all, or the first of the nearest where some are near.
UCCLEP_FN ExpertCopies choose_copies(const GivenMap& given, uint32_t expert, uint32_t first) {
  const ExpertMapArgs& args = given.args;
  const auto count = static_cast<uint32_t>(given.copies(expert));
  constexpr uint32_t far = 3;
  uint32_t nearest = far, chosen = 0;
  for (uint32_t c = 0; args.nearest && c < count; ++c) {
    const uint32_t rank = args.group.shape.rank_of(static_cast<uint32_t>(given.physical(expert, c)));
    const uint32_t distance = rank == static_cast<uint32_t>(args.group.rank) ? 0
                              : args.domain.has(rank)                        ? 1
                              : args.node.has(rank)                          ? 2
                                                                             : far;
    if (distance < nearest) nearest = distance, chosen = c;
  }
  return nearest == far ? ExpertCopies{first, count} : ExpertCopies{first + chosen, 1};
}

// Block verb: the group's map becomes this one.
UCCLEP_FN void take_map(const GivenMap& given, uint32_t* scratch) {
  const ExpertMapArgs& args = given.args;
  GroupState& state = *args.group.state;
  uint32_t carry = 0;
  for (uint32_t begin = 0; begin < args.logical; begin += block_size()) {
    const uint32_t expert = begin + thread_id();
    const uint32_t count = expert < args.logical ? static_cast<uint32_t>(given.copies(expert)) : 0;
    uint32_t total = 0;
    const uint32_t first = carry + block_scan_exclusive(count, scratch, &total);
    carry += total;
    if (expert >= args.logical) continue;
    for (uint32_t c = 0; c < count; ++c) {
      state.physical_experts(args.group.shape)[first + c] = static_cast<uint32_t>(given.physical(expert, c));
    }
    state.expert_copies()[expert] = choose_copies(given, expert, first);
  }
  if (thread_id() == 0) state.logical_experts = args.logical;
}

// Block verb of a grid of one block. A map that is not taken leaves the one before.
UCCLEP_FN void set_expert_map(const ExpertMapArgs& args) {
  const Op op{args.group, Kind::update, Operation::expert_map, 0, 0};
  if (!args.copies.data) {
    if (thread_id() == 0) args.group.state->logical_experts = 0;
    return;
  }
  auto* const scratch = static_cast<uint32_t*>(shared_memory());
  const GivenMap given{args};
  if (check_map(op, given, scratch + block_scratch)) take_map(given, scratch);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
