// SPDX-License-Identifier: Apache-2.0
// What a kernel says when something went wrong. Host memory that kernels can write: the first error of each kind is
// kept, until the host forgets it.
#pragma once
#include <cstdint>

namespace ucclep {

enum class Operation : uint32_t {
  none = 0,
  update = 1,
  dispatch = 2,
  combine = 3,
  routing_counts = 4,
  channel = 5,
  expert_map = 6
};

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
  placed,
  // of operations in phases
  pending,
  // of an Update, or of the caller's statistics
  counts,
  // of tensors that a rank exposes
  offer,
  // of consumers
  tiles,
  // of an expert map
  copies
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
  waves,
  max_tokens,
  round_tokens,
  // of a user's kernel
  tokens,
  threads,
  peer,
  signal,
  forms,
  by_rows,  // of Settings
  // of an expert map
  copies,
  physical_expert,
  repeated_expert
};

struct ErrorRecord {
  int32_t code;  // ucclEpResult_t
  Operation operation;
  Phase phase;
  int32_t peer;  // -1: none
  Field field;
  uint64_t epoch, waited_ns, expected, got;
};

// Records have numbers, from 1. Who writes one claims its number in the device's own memory: not every bus carries
// atomic operations into the host's.
//
// | who releases                        | who acquires                 | what is ordered                              |
// |-------------------------------------|------------------------------|----------------------------------------------|
// | kernel: store of `written` (system) | host: load of `written`      | the whole record before it is read           |
// | host: store of `wanted`             | kernel: load of it (system)  | the reading of a record before it is written |
struct RecordSlot {
  uint32_t* claim;  // device memory: the last number that somebody writes, or has written
  uint32_t wanted;  // the number of the next record; of the one that is here until it is forgotten
  uint32_t written;
  ErrorRecord record;
};

// A fatal record ends the communicator; a data record lets later operations go on (api: Faults).
struct DeviceErrors {
  RecordSlot fatal, data;
};

}  // namespace ucclep
