// SPDX-License-Identifier: Apache-2.0
// One text for the host and for GPUs, as the library's kernels are. A form says how a row is written and read; its
// parameters leave out what the protocol demands.
#include "gpu/litmus.hpp"
#include "ucclep/device/rows/line.hpp"

namespace UCCLEP_SIMT_NAMESPACE {
namespace litmus {

using test::LitmusArgs;

// A warp's end of a channel. The row and its announcement lie with the reader, the word that says it was read with the
// writer.
struct Channel {
  const LitmusArgs& args;
  uint32_t index;
  bool writes;
  unsigned char* at_writer;
  unsigned char* at_reader;
  unsigned char* stage;

  UCCLEP_FN uint64_t* published() const { return reinterpret_cast<uint64_t*>(at_reader + test::litmus_published); }
  UCCLEP_FN uint64_t* consumed() const { return reinterpret_cast<uint64_t*>(at_writer + test::litmus_consumed); }
  UCCLEP_FN unsigned char* row() const { return at_reader + test::litmus_row; }
  UCCLEP_FN unsigned char* row_at_writer() const { return at_writer + test::litmus_row; }
  UCCLEP_FN BulkBarrier* barrier() const { return reinterpret_cast<BulkBarrier*>(stage + test::litmus_barrier); }
  UCCLEP_FN uint64_t word(uint64_t round, uint32_t i) const {
    return round << 32 ^ uint64_t { index } << 16 ^ i;
  }
};

UCCLEP_FN Channel open_channel(const LitmusArgs& args) {
  const uint32_t index = block_id() * block::warps() + warp_id();
  const uint64_t offset = uint64_t{index} * test::litmus_channel_bytes;
  const uint32_t writer = index % 2;
  unsigned char* stage = static_cast<unsigned char*>(shared_memory()) + warp_id() * test::litmus_stage_bytes;
  return {args, index, writer == args.rank, args.windows[writer] + offset, args.windows[1 - writer] + offset, stage};
}

// Warp verbs. The first: until the word has reached a value, which lane 0 acquires. The second: until the warp says so.
UCCLEP_FN bool await_word(const Channel& channel, const uint64_t* word, uint64_t at_least) {
  bool came = true;
  if (lane_id() == 0) {
    const Wait wait = begin_wait(channel.args.limit_ns, channel.args.abort_word);
    came = wait_until(wait, [&] { return load_acquire<Scope::system>(word) >= at_least; });
  }
  return ballot(!came) == 0;
}
template <class Predicate>
UCCLEP_FN bool await_warp(const Channel& channel, Predicate&& arrived) {
  const Wait wait = begin_wait(channel.args.limit_ns, channel.args.abort_word);
  for (uint32_t polls = 1; !arrived(); ++polls) {
    if (polls % 32 == 0 && broadcast(uint32_t{lane_id() == 0 && (aborted(wait) || timed_out(wait))}, 0) != 0) {
      return false;
    }
    pause();
  }
  return true;
}

UCCLEP_FN void announce(uint64_t* word, uint64_t round) {
  sync_warp();
  if (lane_id() == 0) publish(word, round);
}

constexpr uint32_t vectors = test::litmus_row_bytes / 16;

// Plain accesses by the whole warp, to shared or global memory.
UCCLEP_FN void fill(const Channel& channel, unsigned char* row, uint64_t round) {
  for (uint32_t i = lane_id(); i < vectors; i += wave_size) {
    const uint64_t low = channel.word(round, 2 * i), high = channel.word(round, 2 * i + 1);
    store16(row + 16 * i, {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                           static_cast<uint32_t>(high >> 32)});
  }
}
UCCLEP_FN bool differs(const Channel& channel, const unsigned char* row, uint64_t round) {
  bool wrong = false;
  for (uint32_t i = lane_id(); i < vectors; i += wave_size) {
    const vec16 got = load16(row + 16 * i);
    wrong = wrong || (uint64_t{got.y} << 32 | got.x) != channel.word(round, 2 * i) ||
            (uint64_t{got.w} << 32 | got.z) != channel.word(round, 2 * i + 1);
  }
  return wrong;
}

// Every form: write and read give up by returning false; read says whether a word was wrong.

// (a) bulk store, complete, then publish. (d) the store goes into a slot whose reuse was just acquired.
template <bool waits_until_written, bool fences_the_slot>
struct BulkStore {
  static UCCLEP_FN bool write(const Channel& channel, uint64_t round) {
    fill(channel, channel.stage, round);
    smem_to_bulk();
    if (!await_word(channel, channel.consumed(), round - 1)) return false;
    if constexpr (fences_the_slot) {
      acquire_then_bulk();
    } else {
      sync_warp();
    }
    bulk_store(lane_id() == 0, channel.row(), channel.stage, test::litmus_row_bytes);
    if constexpr (waits_until_written) {
      bulk_wait_written();
    } else {
      bulk_wait_read();
    }
    announce(channel.published(), round);
    return true;
  }
  static UCCLEP_FN bool read(const Channel& channel, uint64_t round, bool& wrong) {
    if (!await_word(channel, channel.published(), round)) return false;
    sync_warp();
    wrong = differs(channel, channel.row(), round);
    return true;
  }
};

// (b) plain stores, published; acquired, then fetched by a bulk load, from the reader's window or from the writer's.
template <bool fences, bool pulls>
struct BulkLoad {
  static UCCLEP_FN unsigned char* row(const Channel& channel) {
    return pulls ? channel.row_at_writer() : channel.row();
  }
  static UCCLEP_FN bool write(const Channel& channel, uint64_t round) {
    if (!await_word(channel, channel.consumed(), round - 1)) return false;
    sync_warp();
    fill(channel, row(channel), round);
    announce(channel.published(), round);
    return true;
  }
  static UCCLEP_FN bool read(const Channel& channel, uint64_t round, bool& wrong) {
    if (!await_word(channel, channel.published(), round)) return false;
    if constexpr (fences) {
      acquire_then_bulk();
    } else {
      sync_warp();
    }
    bulk_load(channel.stage, row(channel), test::litmus_row_bytes, channel.barrier());
    bulk_wait_loaded(channel.barrier(), static_cast<uint32_t>(round - 1) & 1);
    wrong = differs(channel, channel.stage, round);
    return true;
  }
};

// (c) lines with an epoch in each. Without: only the epoch of the last line is looked at.
template <bool every_epoch>
struct Lines {
  static constexpr uint32_t count = test::litmus_row_bytes / line_bytes;
  static constexpr uint32_t packets = count * line_lanes;
  static UCCLEP_FN bool write(const Channel& channel, uint64_t round) {
    if (!await_word(channel, channel.consumed(), round - 1)) return false;
    fill(channel, channel.stage, round);
    sync_warp();
    line_store(reinterpret_cast<char*>(channel.row()), reinterpret_cast<const char*>(channel.stage),
               count * line_payload, round);
    sync_warp();
    return true;
  }
  // Whether packet i, which is in `seen`, is not what line_store makes of the row.
  static UCCLEP_FN bool is_wrong(const Channel& channel, uint64_t round, uint32_t i, const Packet& seen) {
    const uint32_t part = i % line_lanes;
    const uint32_t first = i / line_lanes * (line_payload / 8) + 2 * part;
    const bool last = part == line_lanes - 1;
    return seen.value != channel.word(round, first) || seen.epoch != (last ? round : channel.word(round, first + 1));
  }
  static UCCLEP_FN bool read(const Channel& channel, uint64_t round, bool& wrong) {
    const auto* row = reinterpret_cast<const Packet*>(channel.row());
    if (!every_epoch && !await_warp(channel, [&] { return load_packet(row + packets - 1).epoch == round; })) {
      return false;
    }
    for (uint32_t step = 0; step < packets; step += wave_size) {
      const uint32_t i = step + lane_id();
      const bool used = i < packets;
      Packet seen{};
      const auto look = [&] {
        if (used) seen = load_packet(row + i);
        const uint64_t epoch = shfl(seen.epoch, lane_id() | (line_lanes - 1));
        return ballot(used && epoch != round) == 0;
      };
      if (every_epoch) {
        if (!await_warp(channel, look)) return false;
      } else {
        look();
      }
      wrong = wrong || (used && is_wrong(channel, round, i, seen));
    }
    return true;
  }
};

// (c) packets of a value and its epoch. Without: two stores of 8 bytes, the epoch first.
template <bool whole>
struct Packets {
  static UCCLEP_FN bool write(const Channel& channel, uint64_t round) {
    if (!await_word(channel, channel.consumed(), round - 1)) return false;
    sync_warp();
    auto* row = reinterpret_cast<Packet*>(channel.row());
    for (uint32_t i = lane_id(); i < vectors; i += wave_size) {
      if constexpr (whole) {
        store_packet(row + i, channel.word(round, i), round);
      } else {
        store_relaxed<Scope::system>(&row[i].epoch, round);
        store_relaxed<Scope::system>(&row[i].value, channel.word(round, i));
      }
    }
    return true;
  }
  static UCCLEP_FN bool read(const Channel& channel, uint64_t round, bool& wrong) {
    const auto* row = reinterpret_cast<const Packet*>(channel.row());
    for (uint32_t step = 0; step < vectors; step += wave_size) {
      const uint32_t i = step + lane_id();
      Packet seen{0, round};
      const bool came = await_warp(channel, [&] {
        if (i < vectors) seen = load_packet(row + i);
        return ballot(seen.epoch != round) == 0;
      });
      if (!came) return false;
      wrong = wrong || (i < vectors && seen.value != channel.word(round, i));
    }
    return true;
  }
};

template <class Form>
UCCLEP_FN bool one_round(const Channel& channel, uint64_t round) {
  if (channel.writes) return Form::write(channel, round);
  bool wrong = false;
  if (!Form::read(channel, round, wrong)) return false;
  const bool violated = ballot(wrong) != 0;
  if (violated && lane_id() == 0) fetch_add_relaxed<Scope::gpu>(channel.args.violations, uint64_t{1});
  announce(channel.consumed(), round);
  return true;
}

template <class Form>
UCCLEP_FN void run(const LitmusArgs& args) {
  const Channel channel = open_channel(args);
  if (lane_id() == 0) bulk_barrier_init(channel.barrier());
  sync_block();
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    if (one_round<Form>(channel, round)) continue;
    if (lane_id() == 0) fetch_add_relaxed<Scope::gpu>(args.timed_out, uint64_t{1});
    return;
  }
}

}  // namespace litmus
}  // namespace UCCLEP_SIMT_NAMESPACE

namespace ucclep {

using test::LitmusArgs;

UCCLEP_KERNEL(litmus_bulk_store, LitmusArgs) {
  litmus::run<litmus::BulkStore<true, true>>(args);
}
UCCLEP_KERNEL(litmus_bulk_store_unwritten, LitmusArgs) {
  litmus::run<litmus::BulkStore<false, true>>(args);
}
UCCLEP_KERNEL(litmus_bulk_store_unfenced_slot, LitmusArgs) {
  litmus::run<litmus::BulkStore<true, false>>(args);
}
UCCLEP_KERNEL(litmus_bulk_load, LitmusArgs) {
  litmus::run<litmus::BulkLoad<true, false>>(args);
}
UCCLEP_KERNEL(litmus_bulk_load_unfenced, LitmusArgs) {
  litmus::run<litmus::BulkLoad<false, false>>(args);
}
UCCLEP_KERNEL(litmus_bulk_pull, LitmusArgs) {
  litmus::run<litmus::BulkLoad<true, true>>(args);
}
UCCLEP_KERNEL(litmus_bulk_pull_unfenced, LitmusArgs) {
  litmus::run<litmus::BulkLoad<false, true>>(args);
}
UCCLEP_KERNEL(litmus_lines, LitmusArgs) {
  litmus::run<litmus::Lines<true>>(args);
}
UCCLEP_KERNEL(litmus_lines_one_epoch, LitmusArgs) {
  litmus::run<litmus::Lines<false>>(args);
}
UCCLEP_KERNEL(litmus_packets, LitmusArgs) {
  litmus::run<litmus::Packets<true>>(args);
}
UCCLEP_KERNEL(litmus_packets_split, LitmusArgs) {
  litmus::run<litmus::Packets<false>>(args);
}

}  // namespace ucclep
