// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <cstring>

#include "device/host/runtime.hpp"
#include "device/host/schedule.hpp"

#if defined(UCCLEP_TSAN)
extern "C" {
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
}
#endif

namespace ucclep::executor {

// A copy that was issued and is not complete.
struct PendingCopy {
  void* to;
  const void* from;
  uint32_t bytes;
  uint64_t* barrier;  // of a load; nullptr: a store
  uint64_t one_in;    // how often it makes a step when it may
  char* held;         // the data, once the source has been read
};

// The copies of one warp and who makes them. Four agents, since they know of different things. Those that access global
// memory know of what lanes have acquired before acquire_then_bulk: the one that reads what a load brings, and the one
// that writes stores. The one that reads what a store takes knows of what went through smem_to_bulk. The one that
// writes what a load brings knows of what the lanes did before they issued the load. And different waits wait for loads
// and for stores. No memory of the heap: whoever allocates is not whoever frees, for a sanitizer.
struct WarpBulk {
  static constexpr size_t max_copies = 4096 / sizeof(PendingCopy);
  static constexpr size_t max_held = size_t{1} << 20;

  Fiber load_reader;
  Fiber load_writer;
  Fiber store_reader;
  Fiber store_writer;
  Pages list{max_copies * sizeof(PendingCopy)};
  Pages hold{max_held};
  size_t count = 0;
  size_t held = 0;
  char issued = 0;   // tags: the lanes before the writer of loads,
  char loaded = 0;   // both of a load before the lanes that waited,
  char read = 0;     // the reads of stores,
  char written = 0;  // and their writes before them

  std::array<Fiber*, 4> agents() { return {&load_reader, &load_writer, &store_reader, &store_writer}; }
  PendingCopy* copies() { return reinterpret_cast<PendingCopy*>(list.data()); }
};

struct BulkState {
  std::vector<WarpBulk> warps;
  // Tags, of all warps: what the lanes of the block did,
  char handed = 0;    // and loads that ended, before what stores read next,
  char acquired = 0;  // before what copies access next in global memory
};

BulkDeleter::BulkDeleter() = default;
void BulkDeleter::operator()(BulkState* state) const {
  delete state;
}

namespace {

// A barrier's word: how many loads it has had, and whether the last one was waited for.
constexpr uint64_t load_pending = 1;
constexpr uint64_t one_load = 2;

WarpBulk& bulk_of(Warp& warp) {
  return warp.block->bulk->warps[warp.index];
}

[[noreturn]] void misuse(const char* what) {
  complain({.trouble = Trouble::bulk_misuse, .detail = what});
}

// A copy whose holding place is no access in the eyes of ThreadSanitizer; it is told of the other side.
void copy_unseen(void* to, const void* from, uint32_t bytes) {
#if defined(UCCLEP_TSAN)
  auto* target = static_cast<volatile uint64_t*>(to);
  const auto* source = static_cast<const volatile uint64_t*>(from);
  for (uint32_t i = 0; i < bytes / sizeof(uint64_t); ++i) target[i] = source[i];
#else
  std::memcpy(to, from, bytes);
#endif
}

void note_read([[maybe_unused]] const void* from, [[maybe_unused]] uint32_t bytes) {
#if defined(UCCLEP_TSAN)
  __tsan_read_range(const_cast<void*>(from), bytes);
#endif
}

void note_write([[maybe_unused]] void* to, [[maybe_unused]] uint32_t bytes) {
#if defined(UCCLEP_TSAN)
  __tsan_write_range(to, bytes);
#endif
}

// The steps of a copy are done by an agent, in the place of whatever fibre runs now.
void read_source(WarpBulk& bulk, PendingCopy& copy, Fiber& runs_now) {
  if (copy.held != nullptr) return;
  copy.held = bulk.hold.data() + bulk.held;
  bulk.held += copy.bytes;
  const bool is_store = copy.barrier == nullptr;
  assume_identity(is_store ? bulk.store_reader : bulk.load_reader);
  note_read(copy.from, copy.bytes);
  copy_unseen(copy.held, copy.from, copy.bytes);
  if (is_store) order_before(&bulk.read);
  assume_identity(runs_now);
}

void write_destination(WarpBulk& bulk, PendingCopy& copy, Fiber& runs_now) {
  read_source(bulk, copy, runs_now);
  const bool is_store = copy.barrier == nullptr;
  assume_identity(is_store ? bulk.store_writer : bulk.load_writer);
  copy_unseen(copy.to, copy.held, copy.bytes);
  note_write(copy.to, copy.bytes);
  if (is_store) order_before(&bulk.written);
  assume_identity(runs_now);
  note_store();
}

void forget(WarpBulk& bulk, size_t index) {
  bulk.copies()[index] = bulk.copies()[--bulk.count];
  if (bulk.count == 0) bulk.held = 0;
}

template <class Wanted>
void write_all(WarpBulk& bulk, Fiber& runs_now, Wanted wanted) {
  for (size_t i = 0; i < bulk.count;) {
    if (!wanted(bulk.copies()[i])) {
      ++i;
      continue;
    }
    write_destination(bulk, bulk.copies()[i], runs_now);
    forget(bulk, i);
  }
}

void defer(Lane& me, const PendingCopy& copy) {
  WarpBulk& bulk = bulk_of(*me.in);
  if (copy.bytes > WarpBulk::max_held) misuse("a bulk copy has more than a megabyte");
  if (bulk.count == WarpBulk::max_copies || bulk.held + copy.bytes > WarpBulk::max_held) {
    write_all(bulk, me.fiber, [](const PendingCopy&) { return true; });
  }
  // Some are done soon, others when they are waited for: both find mistakes.
  PendingCopy& pending = bulk.copies()[bulk.count++] = copy;
  pending.one_in = me.in->block->worker->random() % 2 == 0 ? 8 : 8192;
  BulkState& state = *me.in->block->bulk;
  const bool is_store = copy.barrier == nullptr;
  assume_identity(is_store ? bulk.store_writer : bulk.load_reader);
  order_after(&state.acquired);
  assume_identity(is_store ? bulk.store_reader : bulk.load_writer);
  order_after(is_store ? &state.handed : &bulk.issued);
  assume_identity(me.fiber);
}

void check(const void* shared, const void* global, uint32_t bytes) {
  const Lane& me = self();
  const auto* begin = static_cast<const char*>(me.shared);
  const auto* at = static_cast<const char*>(shared);
  if (((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global) | bytes) & 15) != 0) {
    misuse("a bulk copy has addresses or a size that are not multiples of 16");
  }
  if (at < begin || at + bytes > begin + me.in->block->launch->shape.shared_bytes) {
    misuse("a bulk copy goes beyond the block's shared memory");
  }
}

}  // namespace

void begin_bulk(Block& block) {
  if (!block.deferred) return;
  if (block.bulk == nullptr) block.bulk.reset(new BulkState);
  if (block.bulk->warps.size() < block.warps.size()) block.bulk->warps.resize(block.warps.size());
  for (WarpBulk& bulk : block.bulk->warps) {
    for (Fiber* agent : bulk.agents()) {
      create_identity(*agent);
      assume_identity(*agent);
      order_after(&block.launch->begun);
      order_after(block.lanes);
    }
  }
  assume_identity(block.worker->scheduler);
}

void end_bulk(Block& block) {
  if (!block.deferred) return;
  for (WarpBulk& bulk : block.bulk->warps) {
    for (Fiber* agent : bulk.agents()) {
      assume_identity(*agent);
      order_before(block.launch->order);
      order_before(block.lanes);
    }
    assume_identity(block.worker->scheduler);
    for (Fiber* agent : bulk.agents()) destroy_identity(*agent);
    bulk.count = 0;
    bulk.held = 0;
  }
}

void advance_bulk(Block& block) {
  Lane& me = self();
  Worker& worker = *block.worker;
  for (WarpBulk& bulk : block.bulk->warps) {
    for (size_t i = 0; i < bulk.count;) {
      PendingCopy& copy = bulk.copies()[i];
      if (worker.random() % copy.one_in != 0) {
        ++i;
      } else if (copy.held == nullptr) {
        read_source(bulk, copy, me.fiber);
        ++i;
      } else {
        write_destination(bulk, copy, me.fiber);
        forget(bulk, i);
      }
    }
  }
}

void fence_bulk(Block& block, Verb verb) {
  order_before(verb == Verb::acquire_then_bulk ? &block.bulk->acquired : &block.bulk->handed);
}

void finish_bulk(Lane& me) {
  Warp& warp = *me.in;
  if (warp.loads_pending != 0) misuse("its warp ends before it has waited for a bulk_load");
  if (warp.stores_unread) misuse("its warp ends before it has waited until a bulk_store was read");
  if (warp.block->deferred) write_all(bulk_of(warp), me.fiber, [](const PendingCopy&) { return true; });
}

void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  Lane& me = self();
  Warp& warp = *me.in;
  const bool deferred = warp.block->deferred;
  if (me.lane == 0) check(shared, global, bytes);
  if (deferred) {
    order_before(&bulk_of(warp).issued);
    rendezvous(me, Verb::bulk_load);
  } else {
    order_warp(Verb::bulk_load);
  }
  if (me.lane != 0) return;
  if ((*barrier & load_pending) != 0) misuse("a bulk_load uses a barrier whose last load was not waited for");
  *barrier += one_load | load_pending;
  ++warp.loads_pending;
  ++warp.block->events;
  if (deferred) {
    defer(me, {shared, global, bytes, barrier, 1, nullptr});
  } else {
    std::memcpy(shared, global, bytes);
    order_before(warp.values);
  }
}

void bulk_wait_loaded(uint64_t* barrier, uint32_t phase) {
  Lane& me = self();
  Warp& warp = *me.in;
  const bool deferred = warp.block->deferred;
  if (me.lane == 0) {
    if (*barrier < one_load || ((*barrier / one_load - 1) & 1) != phase) {
      misuse("bulk_wait_loaded waits for another phase than that of the barrier's last load");
    }
    if ((*barrier & load_pending) != 0) {
      *barrier -= load_pending;
      --warp.loads_pending;
    }
    if (deferred) {
      WarpBulk& bulk = bulk_of(warp);
      write_all(bulk, me.fiber, [barrier](const PendingCopy& copy) { return copy.barrier == barrier; });
      for (Fiber* agent : {&bulk.load_reader, &bulk.load_writer}) {
        assume_identity(*agent);
        order_before(&bulk.loaded);
        order_before(&warp.block->bulk->handed);
      }
      assume_identity(me.fiber);
    }
  }
  rendezvous(me, Verb::bulk_wait_loaded);
  order_after(deferred ? static_cast<void*>(&bulk_of(warp).loaded) : warp.values);
}

void bulk_store(bool active, void* global, const void* shared, uint32_t bytes) {
  Lane& me = self();
  Warp& warp = *me.in;
  rendezvous(me, Verb::bulk_store);
  if (!active) return;
  check(shared, global, bytes);
  warp.stores_unread = true;
  ++warp.block->events;
  if (warp.block->deferred) {
    defer(me, {global, shared, bytes, nullptr, 1, nullptr});
  } else {
    std::memcpy(global, shared, bytes);
    note_store();
  }
}

void bulk_wait_read() {
  Lane& me = self();
  Warp& warp = *me.in;
  if (!warp.block->deferred) {
    order_warp(Verb::bulk_wait_read);
    warp.stores_unread = false;
    return;
  }
  rendezvous(me, Verb::bulk_wait_read);
  WarpBulk& bulk = bulk_of(warp);
  for (size_t i = 0; i < bulk.count; ++i) {
    if (bulk.copies()[i].barrier == nullptr) read_source(bulk, bulk.copies()[i], me.fiber);
  }
  warp.stores_unread = false;
  order_after(&bulk.read);
}

void bulk_wait_written() {
  Lane& me = self();
  Warp& warp = *me.in;
  warp.stores_unread = false;
  if (!warp.block->deferred) return order_warp(Verb::bulk_wait_written);
  rendezvous(me, Verb::bulk_wait_written);
  WarpBulk& bulk = bulk_of(warp);
  write_all(bulk, me.fiber, [](const PendingCopy& copy) { return copy.barrier == nullptr; });
  order_after(&bulk.read);
  order_after(&bulk.written);
}

}  // namespace ucclep::executor
