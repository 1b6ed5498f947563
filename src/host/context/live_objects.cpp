// SPDX-License-Identifier: Apache-2.0
#include "host/context/live_objects.hpp"

#include <pthread.h>

#include <array>
#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/fork.hpp"

namespace ucclep {
namespace {

struct LiveEntry {
  ObjectKind kind;
  ucclEpComm_t comm;
  uint32_t process;      // fork_depth() of its maker
  bool ending = false;   // a thread has the right to destroy it
  uint32_t holders = 0;  // HeldComm
};

// A part of the list has a lock of its own: ranks that are threads do not wait for each other.
struct LiveShard {
  std::mutex mutex;
  std::unordered_map<const void*, LiveEntry> entries;
};

class LiveList {
 public:
  LiveList() {
    // The locks are held over a fork, so that the child finds a consistent list.
    pthread_atfork([] { instance().for_each([](LiveShard& shard) { shard.mutex.lock(); }); }, unlock, unlock);
  }
  static LiveList& instance();

  LiveShard& shard_of(const void* object) {
    const uint64_t mixed = reinterpret_cast<uintptr_t>(object) * uint64_t{0x9e3779b97f4a7c15};
    return shards_[mixed >> 60];
  }
  template <class Each>
  void for_each(Each&& each) {
    for (LiveShard& shard : shards_) each(shard);
  }

 private:
  static void unlock() {
    instance().for_each([](LiveShard& shard) { shard.mutex.unlock(); });
  }
  std::array<LiveShard, 16> shards_;
};

// Never destroyed: calls may come while the process exits.
LiveList& live_list = *new LiveList;

LiveList& LiveList::instance() {
  return live_list;
}

// act(entry) under the lock, if the object is listed.
template <class Act>
void with_entry(const void* object, Act&& act) {
  LiveShard& shard = live_list.shard_of(object);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.entries.find(object);
  if (found != shard.entries.end()) act(found->second);
}

FoundObject found_as(const LiveEntry& entry, ObjectKind kind) {
  if (entry.process != fork_depth()) return {Life::of_parent};
  if (entry.kind != kind) return {Life::other_kind};
  if (entry.ending) return {Life::ending};
  return {Life::alive, entry.comm};
}

struct KindWords {
  const char *argument, *word;
};
constexpr KindWords words_of(ObjectKind kind) {
  constexpr std::array<KindWords, 4> words{
      {{"comm", "communicator"}, {"group", "group"}, {"handle", "handle"}, {"window", "window"}}};
  return words[static_cast<size_t>(kind)];
}

// Refuses new calls, and waits for those of other threads that hold the object. False: it is not listed.
bool await_holders(const void* object) {
  constexpr auto interval = std::chrono::microseconds(50);  // they hold it for moments
  for (;; std::this_thread::sleep_for(interval)) {
    bool listed = false, held = false;
    with_entry(object, [&](LiveEntry& entry) {
      listed = entry.ending = true;
      held = entry.holders != 0;
    });
    if (!held) return listed;
  }
}

// The memory of objects that are gone, oldest first from `next` on.
struct RetiredMemory {
  std::mutex mutex;
  std::array<void*, 256> blocks{};
  size_t next = 0;
};

}  // namespace

void LiveObject::enlist(ObjectKind kind, ucclEpComm_t comm) const {
  LiveShard& shard = live_list.shard_of(this);
  const std::lock_guard lock(shard.mutex);
  shard.entries.insert_or_assign(this, LiveEntry{kind, comm, fork_depth()});
}

void LiveObject::withdraw() const noexcept {
  LiveShard& shard = live_list.shard_of(this);
  for (;;) {
    if (!await_holders(this)) return;
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.entries.find(this);
    if (found->second.holders != 0) continue;  // a call that may be made until the end came in between
    shard.entries.erase(found);
    return;
  }
}

[[gnu::noinline]] void* LiveObject::operator new(size_t bytes) {
  return ::operator new(bytes);
}

void LiveObject::operator delete(void* memory) noexcept {
  constinit static PerProcess<RetiredMemory> of_process;
  RetiredMemory& retired = of_process.get();
  const std::lock_guard lock(retired.mutex);
  ::operator delete(std::exchange(retired.blocks[retired.next], memory));
  retired.next = (retired.next + 1) % retired.blocks.size();
}

FoundObject find_object(GivenObject given) noexcept {
  if (given.address == nullptr) return {Life::none};
  FoundObject found;
  with_entry(given.address, [&](const LiveEntry& entry) { found = found_as(entry, given.kind); });
  return found;
}

void check_life(GivenObject given, Life life) {
  const auto [argument, word] = words_of(given.kind);
  switch (life) {
    case Life::none:
    case Life::alive:
      return;
    case Life::ending:
      fail(ucclEpInvalidArgument, "{} {} is being destroyed by another thread", argument, given.address);
    case Life::other_kind:
      fail(ucclEpInvalidArgument, "{} {} is an object of another kind, not a {}", argument, given.address, word);
    case Life::of_parent:
      fail(ucclEpInvalidUsage, "{} {} belongs to the process that forked this one: a child may only destroy it",
           argument, given.address);
    case Life::unknown:
      fail(ucclEpInvalidArgument, "{} {} is not an existing {}: it was destroyed, or never created", argument,
           given.address, word);
  }
}

std::vector<ucclEpComm_t> live_comms(bool only_ending) {
  std::vector<ucclEpComm_t> comms;
  live_list.for_each([&](LiveShard& shard) {
    const std::lock_guard lock(shard.mutex);
    for (const auto& [object, entry] : shard.entries) {
      const Life life = found_as(entry, ObjectKind::comm).life;
      if (life == Life::ending || (life == Life::alive && !only_ending)) comms.push_back(entry.comm);
    }
  });
  return comms;
}

HeldComm::HeldComm(ucclEpComm_t comm, bool while_ending) noexcept {
  if (comm == nullptr) found_.life = Life::none;
  with_entry(comm, [&](LiveEntry& entry) {
    found_ = found_as(entry, ObjectKind::comm);
    if (found_.life == Life::ending && while_ending) found_ = {Life::alive, comm};
    if (found_.life == Life::alive) ++entry.holders;
  });
}

HeldComm::~HeldComm() {
  if (found_.life == Life::alive) {
    with_entry(found_.comm, [](LiveEntry& entry) { --entry.holders; });
  }
}

EndOfObject::EndOfObject(GivenObject given) : address_(given.address) {
  FoundObject found;
  with_entry(address_, [&](LiveEntry& entry) {
    found = found_as(entry, given.kind);
    if (found.life == Life::alive) entry.ending = true;
  });
  check_life(given, found.life);
  await_holders(address_);
}

EndOfObject::~EndOfObject() {
  with_entry(address_, [](LiveEntry& entry) { entry.ending = false; });
}

}  // namespace ucclep
