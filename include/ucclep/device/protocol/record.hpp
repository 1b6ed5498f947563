// SPDX-License-Identifier: Apache-2.0
// How a kernel leaves an error record (layout/record.hpp).
#pragma once
#include <cstdint>

#include "ucclep/device/layout/record.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// Keeps the first record: losers of the race leave it alone.
UCCLEP_FN void keep_first(RecordSlot* slot, const ErrorRecord& record) {
  const uint32_t number = load_acquire<Scope::system>(&slot->wanted);
  uint32_t claimed = number - 1;
  if (!compare_exchange<Scope::gpu>(slot->claim, claimed, number)) return;
  // Field by field: a copy of the whole would go by the stack of a lane.
  ErrorRecord& to = slot->record;
  to.code = record.code;
  to.operation = record.operation;
  to.phase = record.phase;
  to.peer = record.peer;
  to.field = record.field;
  to.epoch = record.epoch;
  to.waited_ns = record.waited_ns;
  to.expected = record.expected;
  to.got = record.got;
  store_release<Scope::system>(&slot->written, number);
}

// A record that is being written at this moment stays.
UCCLEP_FN void forget(RecordSlot* slot) {
  const uint32_t written = load_acquire<Scope::system>(&slot->written);
  if (written == load_relaxed<Scope::system>(&slot->wanted)) store_release<Scope::system>(&slot->wanted, written + 1);
}

UCCLEP_FN void report_data(DeviceErrors* errors, const ErrorRecord& record) {
  keep_first(&errors->data, record);
}

// The record is complete before anybody is told to leave.
UCCLEP_FN void report_fatal(DeviceErrors* errors, uint32_t* abort_word, const ErrorRecord& record) {
  keep_first(&errors->fatal, record);
  store_release<Scope::system>(abort_word, uint32_t{1});
}

}  // namespace UCCLEP_SIMT_NAMESPACE
