// SPDX-License-Identifier: Apache-2.0
// What a kernel says when something went wrong. Host memory that kernels can write: the first error of each kind is
// kept.
#pragma once
#include "ucclep/device/simt.hpp"

namespace ucclep {

enum class Operation : uint32_t { none = 0, update = 1, dispatch = 2, combine = 3, routing_counts = 4, channel = 5 };

// What was being waited for, or checked.
enum class Phase : uint32_t {
  none = 0,
  routing,
  consumed,
  header,
  settings,
  rows,
  weights,
  staging,
  grid,
  capacity,
  shape,
  tokens,
  ring,
  handle_mem,
  // of the channel
  argument,
  window,
  signal,
  barrier,
  // of masks
  mask,
  // of a user's kernel
  unrouted,
  // of the channel between domains
  placed
};

// Fields of Settings, to name the one that differs between ranks or does not fit.
enum class Field : uint32_t {
  none = 0,
  hidden,
  scale_bytes,
  top_k,
  mode,
  layout,
  dtype,
  output_dtype,
  scale_dtype,
  quant,
  round_scale,
  pass,
  expert_alignment,
  weights_at_dispatch,
  weights_at_combine,
  node_copies,
  // of a user's kernel
  tokens,
  threads,
  peer,
  signal
};

struct ErrorRecord {
  uint32_t state;  // 0 free, 1 being written, 2 complete
  int32_t code;    // ucclEpResult_t
  Operation operation;
  Phase phase;
  int32_t peer;  // -1: none
  Field field;
  uint64_t epoch, waited_ns, expected, got;
};

// A fatal record ends the communicator; a data record lets later operations go on (api: Faults).
struct DeviceErrors {
  ErrorRecord fatal, data;
};

}  // namespace ucclep

namespace UCCLEP_SIMT_NAMESPACE {

// Keeps the first record: losers of the race leave it alone.
UCCLEP_FN void keep_first(ErrorRecord* slot, const ErrorRecord& record) {
  uint32_t expected = 0;
  if (!compare_exchange<Scope::system>(&slot->state, expected, uint32_t{1})) return;
  slot->code = record.code;
  slot->operation = record.operation;
  slot->phase = record.phase;
  slot->peer = record.peer;
  slot->field = record.field;
  slot->epoch = record.epoch;
  slot->waited_ns = record.waited_ns;
  slot->expected = record.expected;
  slot->got = record.got;
  store_release<Scope::system>(&slot->state, uint32_t{2});
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
