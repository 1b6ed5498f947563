// SPDX-License-Identifier: Apache-2.0
// What a kernel needs to know of a group and of a handle: plain structs that are passed to kernels by value. They stay
// valid until their owner is destroyed. ucclEpGroupGetDevice and ucclEpHandleGetDevice fill them for user kernels.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/layout/trace.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

// Which operation of a kind was the last to end here, and how far the next has: where blocks that leave add their
// shares, all shares together are one operation. So no block waits to hear whether it was the last (P3).
struct EndedWord {
  static constexpr uint32_t share_bits = 20;
  static constexpr uint64_t whole = uint64_t{1} << share_bits;  // more than a grid has blocks

  static UCCLEP_HD constexpr uint64_t of(uint64_t seq) { return seq << share_bits; }
  static UCCLEP_HD constexpr uint64_t seq(uint64_t word) { return word >> share_bits; }
  static UCCLEP_HD constexpr uint64_t share(uint32_t block, uint32_t blocks) {
    return block == 0 ? whole - (blocks - 1) : 1;
  }
};

// What blocks take by turns (protocol/turns.hpp): to send rows, to send metas, to pass on or add up what others sent,
// to take in a round that peers wait for, to copy headers that came by the network.
enum class Turn : uint32_t { rows, metas, relays, arrivals, headers };
constexpr uint32_t num_turns = 5;  // kinds of turns

// The turns that warps of one index have taken in the running operation. Each of its rounds has one for each block of
// the grid, and each block takes one more, in vain. On a line of its own, as the warps of all blocks begin with theirs
// at once.
struct alignas(128) TurnWord {
  static constexpr uint32_t max_blocks = 1u << 15;
  static_assert(uint64_t{max_rounds} * max_blocks < 1u << 31, "turns of all rounds, and those in vain, have 32 bits");
  uint32_t taken[num_turns];
};

// Where a logical expert's copies are in the list of an expert map: count of them, from `first` on.
struct ExpertCopies {
  uint32_t first;  ///< index in the list
  uint32_t count;  ///< number of copies
};

// The group's words in device memory. Every block reads the kind's word at entry. Behind them: u64 [blocks that may
// route tokens], the HT Update whose counts a block has left (ht/routing.hpp). They are the group's, because memory of
// a handle may come from a handle of another group, whose Updates have the same numbers. Then the expert map.
struct GroupState {
  uint64_t ended[num_kinds];  // EndedWord of each kind
  // Of each kind, blocks that have ended the operation under way, and of these, from bit 32 on, those that gave up.
  uint64_t exited[num_kinds];
  GridBarrier barrier;
  uint32_t pending[num_kinds];  // a bit for each slot whose operation has been sent, and not received yet
                                // (protocol/phases.hpp)
  uint32_t logical_experts;     // of the expert map; 0: there is none
  // An operation in rounds takes a number for each (Op::seq). Records and traces count operations: `skipped` is by how
  // many numbers the operations that have ended took more than one; `sent_as` has those of pending operations, by slot.
  uint64_t skipped[num_kinds];
  uint64_t sent_as[num_kinds][max_in_flight];
  // Each kind has its own: the receive phase of a dispatch of tiles may run beside operations of other kinds.
  TurnWord turns[num_kinds][HandleLayout::max_warps];

  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) {
    return sizeof(GroupState) + 8 * max_routing_blocks + (sizeof(ExpertCopies) + 4) * uint64_t{shape.experts};
  }
  UCCLEP_HD uint64_t* counted() { return reinterpret_cast<uint64_t*>(this + 1); }
  // [E], of which the logical experts are the first. No physical expert is there twice: there are at most as many.
  UCCLEP_HD ExpertCopies* expert_copies() { return reinterpret_cast<ExpertCopies*>(counted() + max_routing_blocks); }
  // [E] physical experts: the list.
  UCCLEP_HD uint32_t* physical_experts(const GroupShape& shape) {
    return reinterpret_cast<uint32_t*>(expert_copies() + shape.experts);
  }
};

// Of an operation, what a kernel does (protocol/phases.hpp).
enum class Phases { whole, send, receive };

// Signals to a peer: that no lane has stored there yet, and that some lane has (channel.hpp).
struct SignalCount {
  uint64_t pending, sent;
};

// Messages to a peer in another domain: the last number that was taken, the last of a put, and the last of which this
// device knows that it is placed (layout/message.hpp).
struct MessageLine {
  uint64_t sent, puts, placed;
};

// What a rank knows of its own part of the channel, in device memory.
struct ChannelState {
  uint64_t barriers[num_teams];  // the last one of each team

  UCCLEP_HD SignalCount* counts() { return reinterpret_cast<SignalCount*>(this + 1); }  // [signals][ranks]
  // [ranks], of a networked group
  UCCLEP_HD MessageLine* lines(const GroupShape& shape) {
    return reinterpret_cast<MessageLine*>(counts() + uint64_t{shape.signals} * shape.ranks);
  }
  static UCCLEP_HD constexpr uint64_t bytes(const GroupShape& shape) {
    return sizeof(ChannelState) +
           (sizeof(SignalCount) * shape.signals + sizeof(MessageLine) * shape.networked) * shape.ranks;
  }
};

// The ranks that meet at a barrier: those whose memory this rank reaches, or all of the communicator.
enum Team : uint32_t { domain = 0, world = 1 };

// What all ranks of one operation must agree on. It travels in every header, so a difference is named, field and rank.
struct Settings {
  uint32_t hidden = 0;       // elements of a row; of an HT Update, the most tokens of an operation
  uint32_t scale_bytes = 0;  // per row; of an HT Update no_row
  uint32_t top_k = 0;
  uint32_t mode = 0, layout = 0;
  uint32_t dtype = 0, output_dtype = 0, scale_dtype = 0;
  uint32_t quant = 0, round_scale = 0, pass = 0;
  uint32_t alignment_log2 = 0;
  uint32_t weights_at_dispatch = 0, weights_at_combine = 0;
  uint32_t node_copies = 0;  // of an LL dispatch: a row goes to a node once. Rows of user kernels go to each rank
  uint32_t waves = 1;        // of the handle
  uint32_t by_rows = 0;      // a kernel sends tiles: the settings come ahead of the header, and metas with their rows

  static constexpr uint32_t no_row = 0xffffffffu;

  UCCLEP_HD constexpr uint64_t low() const { return uint64_t{hidden} | uint64_t{scale_bytes} << 32; }
  UCCLEP_HD constexpr uint64_t high() const {
    return uint64_t{top_k} | uint64_t{mode} << 8 | uint64_t{layout} << 12 | uint64_t{dtype} << 16 |
           uint64_t{output_dtype} << 24 | uint64_t{scale_dtype} << 32 | uint64_t{quant} << 40 |
           uint64_t{round_scale} << 42 | uint64_t{pass} << 43 | uint64_t{alignment_log2} << 44 |
           uint64_t{weights_at_dispatch} << 52 | uint64_t{weights_at_combine} << 53 | uint64_t{node_copies} << 54 |
           uint64_t{waves} << 55 | uint64_t{by_rows} << 61;
  }
};

struct SettingsDifference {
  Field field = Field::none;
  uint32_t mine = 0, theirs = 0;
};

// The first field in which two packed settings differ.
UCCLEP_HD constexpr SettingsDifference difference(uint64_t my_low, uint64_t my_high, uint64_t low, uint64_t high) {
  struct Bits {
    Field field;
    uint32_t shift, width;
  };
  constexpr Bits fields[] = {{Field::top_k, 0, 8},
                             {Field::mode, 8, 4},
                             {Field::layout, 12, 4},
                             {Field::dtype, 16, 8},
                             {Field::output_dtype, 24, 8},
                             {Field::scale_dtype, 32, 8},
                             {Field::quant, 40, 2},
                             {Field::round_scale, 42, 1},
                             {Field::pass, 43, 1},
                             {Field::expert_alignment, 44, 8},
                             {Field::weights_at_dispatch, 52, 1},
                             {Field::weights_at_combine, 53, 1},
                             {Field::node_copies, 54, 1},
                             {Field::waves, 55, 6},
                             {Field::by_rows, 61, 1}};
  for (const Bits& f : fields) {
    const uint64_t mask = (uint64_t{1} << f.width) - 1;
    const auto mine = static_cast<uint32_t>(my_high >> f.shift & mask),
               theirs = static_cast<uint32_t>(high >> f.shift & mask);
    if (mine != theirs) return {f.field, mine, theirs};
  }
  if (static_cast<uint32_t>(my_low) != static_cast<uint32_t>(low)) {
    return {low >> 32 == Settings::no_row ? Field::max_tokens : Field::hidden, static_cast<uint32_t>(my_low),
            static_cast<uint32_t>(low)};
  }
  if (my_low != low) return {Field::scale_bytes, static_cast<uint32_t>(my_low >> 32), static_cast<uint32_t>(low >> 32)};
  return {};
}

// Of a tensor's element. dtype: a ucclEpDataType_t.
UCCLEP_HD constexpr uint32_t element_bytes(uint32_t dtype) {
  if (dtype == ucclEpInt64) return 8;
  if (dtype == ucclEpFloat32 || dtype == ucclEpInt32) return 4;
  return dtype == ucclEpBfloat16 || dtype == ucclEpFloat16 ? 2 : 1;
}

// A tensor as kernels see it: strides in bytes. `outer` is the expert slab or source rank where a layout has one, else
// unused; `inner` the row; `element` the step inside a row. data NULL: not given.
struct View {
  char* data = nullptr;
  int64_t outer = 0, inner = 0, element = 0;
  uint32_t element_bytes = 0;

  UCCLEP_HD char* at(int64_t o, int64_t i) const { return data + o * outer + i * inner; }
  UCCLEP_HD char* at(int64_t o, int64_t i, int64_t e) const { return at(o, i) + e * element; }
};

// A handle as kernels see it.
struct HandleView {
  int mode, layout, expert_ids;
  uint32_t expert_alignment, tokens;  // tokens: of an operation, at most
  uint32_t rounds;                    // of an operation of HT, at most
  uint32_t stamp;                     // HandleState::updated of its routings
  uint32_t waves;                     // that its config says, 1 or more
  uint32_t tile_rows;                 // 0: it has no tiles
  char* memory;                       // HandleState first
  HandleLayout offsets;
};

struct NetworkView;  // layout/network_view.hpp
struct GroupMasks;   // layout/masks.hpp

inline constexpr unsigned device_abi = 38;  // changes with any of the structs below

}  // namespace ucclep

// A group, as a kernel is given it by value. A default one is what ucclEpGroupGetDevice wants to fill, and likewise
// below. {size, magic, abi} say what the caller was compiled with. Kernels of users read rank; all else is the
// library's.
struct ucclEpDeviceGroup {
  unsigned size = sizeof(ucclEpDeviceGroup), magic = 0x55450017u;  // as of the C API
  unsigned abi = ucclep::device_abi;                               // of the header that the caller was compiled with
  int rank = 0;                                                    // this rank
  ucclep::GroupShape shape{};                                      // what the group's config says
  ucclep::WindowLayout layout{};                                   // where things lie in its windows
  // [ranks], device memory: every rank's window as it is mapped here; NULL: only the network reaches the rank. In a
  // networked group the windows of the network follow, [ranks]
  char* const* windows = nullptr;
  char* mine = nullptr;                    // this rank's own, which nobody has to look up
  ucclep::GroupState* state = nullptr;     // device memory
  ucclep::DeviceErrors* errors = nullptr;  // host memory
  uint32_t* abort_word = nullptr;  // device memory: every wait polls it. 0: go on. Behind it: GroupMasks::masked
  uint64_t timeout_ns = 0;         // of every wait
  // [id * ranks + peer], device memory: ranges of ucclEpWindowRegister as mapped here
  char* const* user_windows = nullptr;
  const uint64_t* user_window_bytes = nullptr;  // the same for their sizes; 0: no window has had the id
  ucclep::ChannelState* channel = nullptr;      // device memory
  ucclep::NetworkView* network = nullptr;       // device memory; NULL: all ranks reach each other's windows
  ucclep::TraceEntry* trace = nullptr;          // [num_kinds][trace_depth], host memory; NULL: nobody asks
  ucclep::GroupMasks* masks = nullptr;          // device memory; NULL: a peer that misses its deadline is an error
  uint32_t again = 0;                           // 1: the second run of an operation, in a group with masks
  uint32_t reports_dropped = 0;                 // 1: a dispatch of HT leaves a record of rows that do not fit
};

// A handle, with its group, as a kernel is given it by value. Its fields are the library's.
struct ucclEpDeviceHandle {
  unsigned size = sizeof(ucclEpDeviceHandle), magic = 0x55450013u;  // as of the C API
  unsigned abi = ucclep::device_abi;                                // of the header that the caller was compiled with
  ucclEpDeviceGroup group;                                          // that it was made on
  ucclep::HandleView view{};                                        // of the handle itself
  char* copies = nullptr;                                           // HT EXPERT_MAJOR, device memory: CopyTables
};

// A window, as a kernel is given it by value.
struct ucclEpDeviceWindow {
  unsigned size = sizeof(ucclEpDeviceWindow), magic = 0x55450014u;  // as of the C API
  unsigned abi = ucclep::device_abi;                                // of the header that the caller was compiled with
  uint32_t id = 0;                                                  // the same on all ranks
  int rank = 0, ranks = 0;                                          // this rank, and how many there are
  uint64_t bytes = 0;                                               // of this rank's range; a peer's may differ
  char* data = nullptr;                                             // this rank's range
  // [ranks], device memory: every rank's range as it is mapped here; NULL: of another domain
  char* const* peers = nullptr;
  const uint64_t* peer_bytes = nullptr;  // [ranks], device memory: their sizes
};
