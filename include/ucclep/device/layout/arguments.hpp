// SPDX-License-Identifier: Apache-2.0
// What the host passes to kernels by value, and what host and kernels compute from it.
#pragma once
#include <cstdint>
#include "ucclep/device/arch/qualifiers.hpp"

#include "ucclep/device/layout/handle.hpp"
#include "ucclep/device/layout/objects.hpp"
#include "ucclep/device/layout/views.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {

// How a launch divides shared memory. piece_bytes is a multiple of 3840: of 256 (a quantisation group of bf16), of 16,
// and of the 120 bytes that a 128-byte line carries; so is half of it, but for the group.
struct StageShape {
  static constexpr uint32_t piece_unit = 3840;
  static constexpr uint32_t slots = 4;
  static constexpr uint32_t scratch_bytes = 512;  // a meta line, or pointers and weights of up to 32 rows
  static constexpr uint32_t scales_bytes = 512;   // of a row that is quantised
  static constexpr uint32_t barriers = 8;
  static constexpr uint32_t barrier_bytes = 8 * barriers;
  static constexpr uint32_t turn_bytes = 64;  // of HT (ht/zero_copy.hpp)
  static UCCLEP_HD constexpr uint64_t bytes_per_warp(uint32_t piece_bytes) {
    return round_up(uint64_t{slots} * piece_bytes + scratch_bytes + scales_bytes + barrier_bytes + turn_bytes, 128);
  }
};

// Waves [first, end) of `of` that a launch is about; of 1: it is about all rows.
struct WaveRange {
  uint32_t of = 1, first = 0, end = 1;

  UCCLEP_HD constexpr bool begins() const { return first == 0; }
  UCCLEP_HD constexpr bool ends() const { return end == of; }
};

// ---- LL

// Where the tables of a block of an LL dispatch lie in its shared memory, behind the stages. Larger groups have no
// tables of arrivals: they read the headers where they lie, again for every row.
struct BlockTableLayout {
  uint32_t facts;           // HeaderFacts [R]; before them the token sets
  uint32_t present;         // u64 [R][B / 64 rounded up], where rows are found by headers
  uint32_t tokens, bases;   // u16 [R][B rounded up]; u32 [E]. Without a table the next one begins at the same place
  uint32_t scratch, bytes;  // u32 [max_warps]

  static constexpr uint32_t fact_bytes = 12;
  static constexpr uint32_t max_warps = HandleLayout::max_warps;  // of a block, on any device
  static constexpr uint32_t max_tokens = 8192, max_bases = 2048;
  static_assert(max_header_experts <= max_bases);  // those tables hold what headers say, too

  static UCCLEP_HD constexpr BlockTableLayout of(const GroupShape& shape) {
    const uint64_t tokens = round_up(shape.ll_tokens, 64) * shape.ranks;
    BlockTableLayout at{};
    at.facts = static_cast<uint32_t>(TokenSetShape::of(shape).bytes(shape));
    at.present = at.facts + static_cast<uint32_t>(round_up(fact_bytes * shape.ranks, 16));
    at.tokens = at.present + (shape.rows_by_headers() ? static_cast<uint32_t>(round_up(tokens / 8, 16)) : 0);
    at.bases = at.tokens + (tokens <= max_tokens ? 2 * static_cast<uint32_t>(tokens) : 0);
    at.scratch = at.bases + (shape.experts <= max_bases ? static_cast<uint32_t>(round_up(4 * shape.experts, 16)) : 0);
    at.bytes = at.scratch + 4 * max_warps;
    return at;
  }
};

struct LlDispatchArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;  // of this call, or what the Update left in the handle
  Settings settings;
  RowSource source;
  View topk_weights;  // f32 [T, K] or not given
  DispatchOutput output;
  CounterViews counters;
  BlockTableLayout tables;
  uint32_t piece_bytes;
  bool device_initiated;  // of a receive phase: the send phase was a user's kernel
  WaveRange waves;        // of a receive phase; a send phase sends all
};

// Which launches a receive phase of tiles has: `whole` is both of the others.
// receives: of a dispatch in phases, beside what else the group does. It touches no word of the group.
// joins: after it, in the order of the group's operations.
// takes_number: of a combine beside such a dispatch, in the order of the group's operations. Another launch sends,
// which touches no word of the group either.
namespace tile_launch {
inline constexpr WaveRange whole{}, receives{1, 0, 0}, joins{1, 1, 1}, takes_number{1, 0, 0};
}

// A launch that goes on when the blocks of another one, beside it, have begun: one that receives tiles, or sends back.
struct TileGateArgs {
  const uint32_t* resident;    // how many have
  uint32_t blocks;             // of that launch
  const uint32_t* abort_word;  // of the group
};

struct LlUpdateArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;
};

// ---- Combine, of both modes

// What LL looks at on its way comes first: a kernel fetches its arguments line by line, when it needs them.
struct CombineArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  View tokens;           // the experts' rows, laid out as dispatch's output
  uint64_t capacity;     // rows of `tokens` (HT) or of a slab (LL); rows at or past it count as zero
  uint32_t output_rows;  // T, as the host has it
  Zones zones;
  bool ranked;        // RANK_MAJOR
  bool weighted;      // products with weights: forward LL EXPERT_MAJOR
  bool late_weights;  // P7: those of this combine
  bool announced;     // with masks: READY and late weights have left in a launch before this one, and its repair has
                      // settled whom rows may count on (P12): who waits for weights keeps its rows from all others
  bool weights_back;  // backward, with weight_rows
  bool device_initiated;  // of a receive phase: the send phase was a user's kernel
  uint32_t row_bytes;
  Divisor ranks, batches;  // of the group; of a row in LINE form
  uint32_t piece_bytes;
  uint32_t partial_bytes;  // HT: of a row on its way home, behind which are its weights, if there are any
  Settings settings;
  View output;       // [T, H]
  View bias, bias2;  // [T, H] or not given
  View wait_ns;
  View topk_weights;  // f32 [T, K], if given here (LL EXPERT_MAJOR)
  View weight_rows;   // backward: f32, a row's weights as dispatch put them out. Their sums: f32 [T, K]
  View weights_out;
  WaveRange waves;  // of a launch that sends; end 0: the one that takes the number of a combine in waves, or of tiles
  uint32_t done_target;  // of tiles that are under way: as the caller gave it, but 1 for 0
};

// Percent of the blocks of an LL combine that send: they read and sum several rows for one that they send.
constexpr uint32_t ll_combine_sends = 70;

// May an LL combine go by ll/combine_small.hpp? It takes any number of rows, but gains where there is a warp for each
// batch of all that may come, should the peers have as many tokens as this rank. A warp has to see READY of all ranks
// at a look. Peers need not decide alike.
UCCLEP_HD constexpr bool is_small_batch(const CombineArgs& args, uint32_t blocks, uint32_t warps, uint32_t wave) {
  const uint64_t sending = uint64_t{blocks} * ll_combine_sends / 100 * warps,
                 batches = uint64_t{args.output_rows} * ceil_div(args.row_bytes, line_batch_bytes);
  return args.group.shape.ranks * batches <= sending && batches <= uint64_t{blocks} * warps - sending &&
         2 * args.group.shape.ranks <= wave && args.zones == Zones::slabs && !args.late_weights && !args.weights_back;
}

// ---- HT

struct HtUpdateArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  RoutingInput routing;
  Settings settings;
  Zones zones;
  CounterViews counters;
};

struct HtDispatchArgs {
  ucclEpDeviceGroup group;
  HandleView handle;
  Settings settings;
  RowSource source;
  View topk_weights;
  uint32_t tokens;  // T, as the host has it: rows of these tensors
  DispatchOutput output;
  ZeroCopyOffer offer;  // of the output
  View cumulative;      // int32 [L], added to
  View wait_ns;         // int64 [R], added to
  uint32_t piece_bytes;
  bool device_initiated;  // of a receive phase: the send phase was a user's kernel
  WaveRange waves;        // of a receive phase
};

struct HtCombineArgs : CombineArgs {
  ZeroCopyOffer offer;  // of the experts' rows
};

// ---- Others

struct RoutingCountsArgs {
  ucclEpDeviceGroup group;
  RoutingInput routing;
  View tokens_per_rank;            // [R], or not given
  View tokens_per_expert;          // [E]
  View is_token_in_rank;           // [T, R] bytes
  View tokens_per_logical_expert;  // [E_logical]
  uint32_t logical_experts;        // of the group's config
};

// A bit for each rank.
struct RankSet {
  uint64_t words[ceil_div(max_ranks, 64)];

  UCCLEP_HD constexpr bool has(uint32_t rank) const { return (words[rank / 64] >> rank % 64 & 1) != 0; }
  UCCLEP_HD constexpr void add(uint32_t rank) { words[rank / 64] |= uint64_t{1} << rank % 64; }
};

struct ExpertMapArgs {
  ucclEpDeviceGroup group;
  View physical;         // int32 [E_logical, C], of each logical expert its copies first. Not given: the map goes
  View copies;           // int32 [E_logical]
  uint32_t logical;      // E_logical
  uint32_t most;         // C
  bool nearest;          // replica_choice
  RankSet domain, node;  // ranks of this one's, itself among them
};

// Gets the words of a masked group: MaskUpdate, MaskQuery and MaskClear.
struct MaskArgs {
  ucclEpDeviceGroup group;
  int* out;                  // MaskQuery
  uint64_t next[num_kinds];  // MaskClear
  RankSet active;
};

}  // namespace ucclep

// A dispatch that a user's kernel runs (device/whole_operations.hpp), as the kernel is given it by value. How it is
// launched is for the user to read; the rest is the library's.
struct ucclEpDeviceDispatch {
  unsigned size = sizeof(ucclEpDeviceDispatch), magic = 0x55450015u;  // as of the C API
  unsigned abi = ucclep::device_abi;                                  // of the header that the caller was compiled with
  unsigned block_threads = 0;                                         // of a block, at most
  unsigned shared_bytes = 0;  // the first of a block's dynamic shared memory are the operation's while it runs
  unsigned forms = 0;         // code that can run it: 0 ll::AnyForm or ht::OneNode; 1 ll::LinesOnly, too; 2
                              // ll::AcrossDomains or ht::AcrossNodes
  union {                     // by the handle's mode
    ucclep::LlDispatchArgs ll;
    ucclep::HtDispatchArgs ht;
  };

  ucclEpDeviceDispatch() : ll{} {}
};

// The same of a combine.
struct ucclEpDeviceCombine {
  unsigned size = sizeof(ucclEpDeviceCombine), magic = 0x55450016u;
  unsigned abi = ucclep::device_abi;
  unsigned block_threads = 0;
  unsigned shared_bytes = 0, forms = 0;
  ucclep::HtCombineArgs args{};  // LL has no offer
};
