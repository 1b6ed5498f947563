// SPDX-License-Identifier: Apache-2.0
// The record of what went wrong on a communicator. Kernels leave theirs in device-mapped memory, the host (a lost peer,
// an abort, a diagnosed fault) adds its own; the first fatal one wins, ends the kernels in flight and every later
// operation.
#pragma once
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ucclep/device/layout/record.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

class FaultLog {
 public:
  // stop: tells kernels in flight to leave.
  FaultLog(DeviceErrors* errors, int rank, std::function<void()> stop)
      : errors_(errors), rank_(rank), stop_(std::move(stop)) {}

  // Any thread. Ignored if a fatal record is there already.
  void raise(ucclEpResult_t code, const char* operation, const char* phase, int peer, const std::string& message);
  // Any thread: a data record. Ignored if there is one already.
  void note(ucclEpResult_t code, const char* operation, const char* phase, int peer, const std::string& message);
  // Records of a third kind, each of a group's, while it lasts.
  void watch(const RecordSlot* slot);
  void unwatch(const RecordSlot* slot);
  // The fatal record if there is one, else one that is watched, else the data record, else code ucclEpSuccess.
  ucclEpAsyncError_t current() const;
  std::optional<ucclEpAsyncError_t> fatal() const;
  void throw_if_fatal() const;
  void clear_data();  // Error(ucclEpInvalidUsage) on a fatal record

 private:
  DeviceErrors* errors_;
  int rank_;
  std::function<void()> stop_;
  mutable std::mutex mutex_;
  std::optional<ucclEpAsyncError_t> raised_, noted_;
  std::vector<const RecordSlot*> watched_;
};

// Before kernels know of the slot. claim: a word of zeros in the memory of the device whose kernels write there.
void await_record(RecordSlot& slot, uint32_t* claim);
// There is a record, written to its end. Any thread.
bool is_complete(const RecordSlot& slot);

// The message of a kernel's record; exposed for tests.
ucclEpAsyncError_t describe(const ErrorRecord& record, int rank);

}  // namespace ucclep
