// SPDX-License-Identifier: Apache-2.0
// Compiled once per wave size.
#include "channel_kernels.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

using test::ChannelArgs;
using test::ChannelScope;
using test::message_byte;

namespace {

constexpr int ready = 0, taken = 1, told = 2;  // signals

// One scope works where only one may. The groups of lanes<N> in its warp come along, and name no_peer.
template <class Coop>
UCCLEP_FN bool is_first() {
  return block_id() == 0 && thread_id() < Coop::size();
}
template <class Coop>
UCCLEP_FN bool comes_along() {
  const uint32_t together = Coop::size() == 1 || Coop::size() > wave_size ? Coop::size() : wave_size;
  return block_id() == 0 && thread_id() < together;
}
template <class Coop>
UCCLEP_FN int named(uint32_t peer) {
  return is_first<Coop>() ? static_cast<int>(peer) : no_peer;
}
template <class Coop>
UCCLEP_FN uint32_t scopes_of_grid() {
  return block_size() / Coop::size() * grid_size();
}

UCCLEP_FN void count(const ChannelArgs& args, uint32_t which, uint64_t by) {
  if (by != 0) fetch_add_relaxed<Scope::system>(&args.result[which], by);
}

// A message for each peer lies in slot `to` of `out`, and lands in slot `from` of `in`.
template <class Coop>
UCCLEP_FN void write_message(const ChannelArgs& args, uint32_t round, int to) {
  if (to == no_peer) return;
  char* slot = args.out.data + static_cast<uint64_t>(to) * args.bytes;
  for (uint64_t i = Coop::rank(); i < args.bytes; i += Coop::size()) {
    slot[i] = static_cast<char>(message_byte(args.seed, round, args.group.rank, to, i));
  }
}
template <class Coop>
UCCLEP_FN void check_message_at(const ChannelArgs& args, uint32_t round, int from, int to) {
  const char* slot = args.in.peers[to] + static_cast<uint64_t>(from) * args.bytes;
  uint64_t wrong = 0;
  for (uint64_t i = Coop::rank(); i < args.bytes; i += Coop::size()) {
    wrong += static_cast<unsigned char>(slot[i]) != message_byte(args.seed, round, from, to, i);
  }
  count(args, 0, wrong);
}
template <class Coop>
UCCLEP_FN void check_message(const ChannelArgs& args, uint32_t round, int from) {
  check_message_at<Coop>(args, round, from, args.group.rank);
}

template <class Coop>
UCCLEP_FN void put_message(const ChannelArgs& args, int to) {
  put(Coop{}, args.group, to, args.in, static_cast<uint64_t>(args.group.rank) * args.bytes, args.out,
      to == no_peer ? 0 : static_cast<uint64_t>(to) * args.bytes, args.bytes);
}
template <class Coop>
UCCLEP_FN void put_signal_message(const ChannelArgs& args, int to, int id) {
  put_signal(Coop{}, args.group, to, args.in, static_cast<uint64_t>(args.group.rank) * args.bytes, args.out,
             to == no_peer ? 0 : static_cast<uint64_t>(to) * args.bytes, args.bytes, id);
}

// Row 1: put_signal. One scope sends to all; all wait for the sum over all senders, and tell that they have read.
template <class Coop, bool told_before_put = false>
UCCLEP_FN void exchange(const ChannelArgs& args) {
  const uint32_t ranks = args.group.shape.ranks, present = args.absent == no_peer ? ranks : ranks - 1;
  if (!comes_along<Coop>()) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    for (uint32_t i = 0; i < ranks; ++i) {
      const int to = named<Coop>((static_cast<uint32_t>(args.group.rank) + i) % ranks);
      write_message<Coop>(args, round, to);
      Coop::sync();
      if constexpr (told_before_put) signal(Coop{}, args.group, to, ready);
      if constexpr (told_before_put) put_message<Coop>(args, to);
      if constexpr (!told_before_put) put_signal_message<Coop>(args, to, ready);
    }
    bool ok = wait_signal(Coop{}, args.group, ready, uint64_t{round} * present);
    for (int from = 0; ok && from < static_cast<int>(ranks); ++from) {
      if (from != args.absent) check_message<Coop>(args, round, from);
    }
    for (uint32_t to = 0; to < ranks; ++to) signal(Coop{}, args.group, named<Coop>(to), taken);
    ok = ok && wait_signal(Coop{}, args.group, taken, uint64_t{round} * present);
    if (!ok && Coop::rank() == 0) count(args, 1, 1);
    if (!ok) return;
  }
}

// Row 2: barrier.
template <class Coop>
UCCLEP_FN void meet(const ChannelArgs& args) {
  const uint32_t ranks = args.group.shape.ranks;
  if (!comes_along<Coop>()) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    for (uint32_t to = 0; to < ranks; ++to) {
      write_message<Coop>(args, round, named<Coop>(to));
      Coop::sync();
      put_message<Coop>(args, named<Coop>(to));
    }
    bool ok = barrier(Coop{}, args.group, world);
    for (uint32_t i = 0; ok && i < ranks * ranks; ++i) {  // also what others put to others
      const int to = static_cast<int>(i / ranks);
      if (args.in.peers[to] != nullptr) check_message_at<Coop>(args, round, static_cast<int>(i % ranks), to);
    }
    ok = ok && barrier(Coop{}, args.group, domain) && barrier(Coop{}, args.group, world);  // all have read
    if (!ok && Coop::rank() == 0) count(args, 1, 1);
    if (!ok) return;
  }
}

// Row 1 again, over three ranks: the put goes to one, the signal to another, and that one tells the first.
template <class Coop>
UCCLEP_FN void tell_another(const ChannelArgs& args) {
  const auto behind = [&](uint32_t by) {
    return (static_cast<uint32_t>(args.group.rank) + by) % args.group.shape.ranks;
  };
  const uint32_t ranks = args.group.shape.ranks;
  if (!comes_along<Coop>()) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    write_message<Coop>(args, round, named<Coop>(behind(2)));
    Coop::sync();
    put_message<Coop>(args, named<Coop>(behind(2)));
    signal(Coop{}, args.group, named<Coop>(behind(3)), told);
    bool ok = wait_signal(Coop{}, args.group, told, round);  // of the rank behind(ranks - 3)
    signal(Coop{}, args.group, named<Coop>(behind(ranks - 1)), taken);
    ok = ok && wait_signal(Coop{}, args.group, taken, round);
    if (ok) check_message<Coop>(args, round, static_cast<int>(behind(ranks - 2)));
    ok = ok && barrier(Coop{}, args.group, world);
    if (!ok && Coop::rank() == 0) count(args, 1, 1);
    if (!ok) return;
  }
}

// Signals and barriers alone.
template <class Coop>
UCCLEP_FN void greet(const ChannelArgs& args) {
  const uint32_t ranks = args.group.shape.ranks;
  if (!comes_along<Coop>()) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    for (uint32_t to = 0; to < ranks; ++to) signal(Coop{}, args.group, named<Coop>(to), ready);
    bool ok = wait_signal(Coop{}, args.group, ready, uint64_t{round} * ranks) && barrier(Coop{}, args.group, world);
    if (ok && is_first<Coop>() && Coop::rank() == 0) {
      const uint64_t counted = channel::signal_sum(args.group, ready), least = uint64_t{round} * ranks;
      count(args, 0, counted < least || counted >= least + ranks);  // some may be a round ahead
    }
    if (!ok && Coop::rank() == 0) count(args, 1, 1);
    if (!ok) return;
  }
}

// Row 3 in two launches, between which the host tells: what the first has flushed the second finds.
template <class Coop>
UCCLEP_FN void put_all(const ChannelArgs& args) {
  for (uint32_t to = 0; comes_along<Coop>() && to < args.group.shape.ranks; ++to) {
    write_message<Coop>(args, args.rounds, named<Coop>(to));
    Coop::sync();
    put_message<Coop>(args, named<Coop>(to));
  }
}
template <class Coop>
UCCLEP_FN void put_and_flush(const ChannelArgs& args) {
  put_all<Coop>(args);
  if (comes_along<Coop>() && !flush(Coop{}, args.group) && Coop::rank() == 0) count(args, 1, 1);
}
UCCLEP_FN void check_all(const ChannelArgs& args) {
  for (uint32_t from = 0; block_id() == 0 && from < args.group.shape.ranks; ++from) {
    check_message<block>(args, args.rounds, static_cast<int>(from));
  }
}

// Row 3: flush. What tells the next rank is a word of the kernel's own, which orders nothing by itself.
template <class Coop>
UCCLEP_FN void flush_then_tell(const ChannelArgs& args) {
  const int ranks = static_cast<int>(args.group.shape.ranks), me = args.group.rank;
  const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
  const uint64_t words = static_cast<uint64_t>(ranks) * args.bytes;  // behind the messages
  auto* mine = reinterpret_cast<uint64_t*>(args.in.data + words);
  auto* theirs = reinterpret_cast<uint64_t*>(args.in.peers[next] + words);
  if (!comes_along<Coop>()) return;
  for (uint32_t round = 1; round <= args.rounds; ++round) {
    const uint64_t number = uint64_t{args.seed} << 32 | round;
    write_message<Coop>(args, round, is_first<Coop>() ? next : no_peer);
    Coop::sync();
    put_message<Coop>(args, is_first<Coop>() ? next : no_peer);
    bool ok = flush(Coop{}, args.group);
    if (is_first<Coop>() && Coop::rank() == 0) store_relaxed<Scope::system>(theirs, number);
    Coop::sync();
    const Wait wait = begin_wait(args.group.timeout_ns, args.group.abort_word);
    if (Coop::rank() == 0) ok = ok && wait_until(wait, [&] { return load_relaxed<Scope::system>(mine) >= number; });
    ok = channel::all_of<Coop>(ok) && flush(Coop{}, args.group);  // for its fence
    if (ok) check_message<Coop>(args, round, before);
    ok = ok && barrier(Coop{}, args.group, domain);
    if (!ok && Coop::rank() == 0) count(args, 1, 1);
    if (!ok) return;
  }
}

// Row 5: what came before the first signal is seen with the second. And all scopes of the grid signal at once: the
// counts are exact.
template <class Coop>
UCCLEP_FN void signal_at_once(const ChannelArgs& args) {
  const uint32_t ranks = args.group.shape.ranks, scopes = scopes_of_grid<Coop>();
  const bool along = comes_along<Coop>();
  if (along) {
    for (uint32_t to = 0; to < ranks; ++to) {
      write_message<Coop>(args, 1, named<Coop>(to));
      Coop::sync();
      put_signal_message<Coop>(args, named<Coop>(to), told);
      signal(Coop{}, args.group, named<Coop>(to), taken);
    }
  }
  for (uint32_t round = 0; round < args.rounds; ++round) {
    for (uint32_t to = 0; to < ranks; ++to) signal(Coop{}, args.group, static_cast<int>(to), ready);
  }
  sync_block();  // lanes of the warp that waits have signalled
  if (!along) return;
  bool ok = wait_signal(Coop{}, args.group, taken, ranks);
  for (uint32_t from = 0; ok && from < ranks; ++from) check_message<Coop>(args, 1, static_cast<int>(from));
  const uint64_t all = uint64_t{args.rounds} * scopes * ranks;
  ok = ok && wait_signal(Coop{}, args.group, ready, all);
  if (ok && Coop::rank() == 0) count(args, 0, channel::signal_sum(args.group, ready) != all);
  if (!ok && Coop::rank() == 0) count(args, 1, 1);
}

// Calls that are wrong leave a record and do nothing; a wait that nobody answers gives up.
template <class Coop>
UCCLEP_FN void call_wrong(const ChannelArgs& args) {
  if (!comes_along<Coop>()) return;
  put_signal(Coop{}, args.group, args.peer, args.in, 0, args.out, 0, args.bytes, args.signal);
}
template <class Coop>
UCCLEP_FN void wait_for_nobody(const ChannelArgs& args) {
  if (!comes_along<Coop>()) return;
  const bool ok =
      args.signal < 0 ? barrier(Coop{}, args.group, world) : wait_signal(Coop{}, args.group, args.signal, args.rounds);
  if (!ok && Coop::rank() == 0) count(args, 1, 1);
}

template <class Body>
UCCLEP_FN void in_scope(ChannelScope scope, Body&& body) {
  switch (scope) {
    case ChannelScope::thread:
      return body(thread{});
    case ChannelScope::lanes4:
      return body(lanes<4>{});
    case ChannelScope::warp:
      return body(warp{});
    case ChannelScope::block:
      return body(block{});
  }
}

}  // namespace

UCCLEP_KERNEL(channel_exchange, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { exchange<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_meet, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { meet<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_flush, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { flush_then_tell<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_tell_another, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { tell_another<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_greet, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { greet<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_put_all, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { put_all<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_put_and_flush, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { put_and_flush<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_check_all, ChannelArgs) {
  check_all(args);
}
UCCLEP_KERNEL(channel_at_once, ChannelArgs) {
  in_scope(args.scope, [&](auto coop) { signal_at_once<decltype(coop)>(args); });
}
UCCLEP_KERNEL(channel_wrong, ChannelArgs) {
  call_wrong<warp>(args);
}
UCCLEP_KERNEL(channel_nobody, ChannelArgs) {
  wait_for_nobody<warp>(args);
}
UCCLEP_KERNEL(channel_told_before_put, ChannelArgs) {
  exchange<warp, true>(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
