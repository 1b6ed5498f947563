// SPDX-License-Identifier: Apache-2.0
// Routing of a handle, as HandleUpdate and a dispatch that carries topk_idx share it.
#pragma once
#include "host/boundary/tensor.hpp"
#include "host/group/handle.hpp"
#include "ucclep/device/layout/views.hpp"

namespace ucclep {

TensorView checked_topk_idx(const ucclEpTensor_t* tensor, const char* name, int64_t max_tokens,
                            const GroupShape& shape);
RoutingInput routing_input(const TensorView& topk_idx);
RoutingInput kept_routing(const ucclEpHandle& handle);  // LL: the ids of the last Update

Zones zones_of(const ucclEpHandle& handle);
// LL: rows of an expert in a tensor of received rows.
SizeRule slab_rows(const ucclEpHandle& handle);

// HT: of so many rows those that the group keeps.
int64_t rows_kept(const ucclEpHandle& handle, int64_t rows);
// What the handle itself contributes to the settings that ranks must agree on.
Settings handle_settings(const ucclEpHandle& handle, int top_k);

// What dispatch and combine configs have in common.
void check_operation(const ucclEpHandle& handle, Kind kind, int send_only, int pass, int num_sms);

// recv_total_host is -1 from the call on.
void announce_total(const CounterViews& counters);
void update_ht(ucclEpHandle& handle, const RoutingInput& routing, CounterViews counters, int num_sms,
               ucclEpStream_t stream);
void note_update(ucclEpHandle& handle, const RoutingInput& routing);

}  // namespace ucclep
