// SPDX-License-Identifier: Apache-2.0
// Which objects of the C API are alive. The C boundary asks before it touches what a caller gave: a pointer to an
// object that was destroyed, that another process made, or to anything else, is an error and nothing more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep {

enum class ObjectKind : uint8_t { comm, group, handle, window };

// Each object of the C API is one. It is listed from when it is complete until it ends.
class LiveObject {
 public:
  LiveObject(const LiveObject&) = delete;
  LiveObject& operator=(const LiveObject&) = delete;

  // comm: that it was made from; itself for a communicator.
  void enlist(ObjectKind kind, ucclEpComm_t comm) const;
  // From here on nobody finds it. Returns when the calls of other threads that hold it (HeldComm) have ended.
  void withdraw() const noexcept;

  // Memory of an object that is gone serves the next one only after many others: a pointer that was kept too long does
  // not name a new object.
  static void* operator new(size_t bytes);  // the global one, by a name that matches
  static void operator delete(void* memory) noexcept;

 protected:
  LiveObject() = default;
  ~LiveObject() { withdraw(); }
};

// What a caller gave as an object, which may be anything. Never dereferenced.
struct GivenObject {
  GivenObject(std::nullptr_t) {}
  GivenObject(ucclEpComm_t comm) : address(comm), kind(ObjectKind::comm) {}
  GivenObject(ucclEpGroup_t group) : address(group), kind(ObjectKind::group) {}
  GivenObject(ucclEpHandle_t handle) : address(handle), kind(ObjectKind::handle) {}
  GivenObject(ucclEpWindow_t window) : address(window), kind(ObjectKind::window) {}

  const void* address = nullptr;
  ObjectKind kind = ObjectKind::comm;
};

enum class Life : uint8_t {
  none,        // the caller gave NULL
  alive,       // what it needs is there
  ending,      // another thread destroys it
  other_kind,  // an object, but not of this kind
  of_parent,   // the process that forked this one made it
  unknown      // destroyed, or never an object
};

struct FoundObject {
  Life life = Life::unknown;
  ucclEpComm_t comm = nullptr;  // that it was made from, if it may be used
};
FoundObject find_object(GivenObject given) noexcept;

// Throws ucclEpInvalidArgument, or ucclEpInvalidUsage for an object of the parent, unless it is alive or NULL.
void check_life(GivenObject given, Life life);

// The communicators of this process, those included that are being destroyed, or only those.
std::vector<ucclEpComm_t> live_comms(bool only_ending);

// A communicator that another thread may destroy at the same time: what a call needs stays while this lives, which is
// for moments.
class HeldComm {
 public:
  // while_ending: the call needs nothing that goes before the communicator itself does, and may be made until then.
  HeldComm(ucclEpComm_t comm, bool while_ending) noexcept;
  ~HeldComm();
  HeldComm(const HeldComm&) = delete;
  HeldComm& operator=(const HeldComm&) = delete;
  FoundObject found() const { return found_; }

 private:
  FoundObject found_;
};

// The right to destroy an object, which one thread gets: from here on calls on it are refused, and those that hold it
// have ended. It is given back if the object is still there at the end.
class EndOfObject {
 public:
  explicit EndOfObject(GivenObject given);  // throws as check_life
  ~EndOfObject();
  EndOfObject(const EndOfObject&) = delete;
  EndOfObject& operator=(const EndOfObject&) = delete;

 private:
  const void* address_;
};

}  // namespace ucclep
