// SPDX-License-Identifier: Apache-2.0
// What a dispatch is asked to do, checked: ucclEpDispatch, and ucclEpCompleteDispatch, whose send phase was a user's
// kernel.
#pragma once
#include "host/boundary/structs.hpp"
#include "host/boundary/views.hpp"
#include "host/group/phases.hpp"
#include "host/operations/update.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {

struct DispatchCall {
  ucclEpHandle& handle;
  ucclEpDispatchInputs_t inputs;
  ucclEpDispatchOutputs_t outputs;
  ucclEpDispatchConfig_t config;
  bool device_initiated = false;  // by a user's kernel: no inputs, the rows are as the outputs take them
  TensorView topk_idx{}, tokens{}, out_tokens{}, out_scales{};
  ucclEpDataType_t dtype = ucclEpNoDataType;  // of the rows that are given
  int64_t num_tokens = 0, hidden = 0;
  int top_k = 0;
  bool weighted = false;
  Schedule schedule = Schedule::whole;
  Settings settings{};
  RowSource source{};
  View topk_weights{};
  DispatchOutput output{};
  CounterViews counters{};

  bool backward() const { return config.pass == UCCLEP_PASS_BACKWARD; }
  bool quantised() const { return config.quant == UCCLEP_QUANT_FP8_128; }
  // Its kernel knows no other form.
  bool in_lines() const { return handle.low_latency() && schedule == Schedule::whole && shape().rows_by_headers(); }
  const GroupShape& shape() const { return handle.group->shape(); }
};

// Checks all that the caller gave, and fills in what follows from it.
void check(DispatchCall& call);

}  // namespace ucclep
