// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/views.hpp"

#include <string>

#include "base/error.hpp"
#include "host/boundary/structs.hpp"

namespace ucclep {

View view_of(const TensorView& t) {
  View view;
  if (!t.given()) return view;
  const int last = t.ndim() - 1;
  view.data = t.as<char>();
  view.element_bytes = static_cast<uint32_t>(t.element_bytes());
  view.element = t.stride_bytes(last);
  if (last >= 1) view.inner = t.stride_bytes(last - 1);
  if (last >= 2) view.outer = t.stride_bytes(last - 2);
  return view;
}

View rows_view_of(const TensorView& t) {
  View view;
  if (!t.given()) return view;
  const int last = t.ndim() - 1;
  view.data = t.as<char>();
  view.element_bytes = static_cast<uint32_t>(t.element_bytes());
  view.inner = t.stride_bytes(last);
  if (last >= 1) view.outer = t.stride_bytes(last - 1);
  return view;
}

bool is_byte_row(ucclEpDataType_t dtype) {
  return dtype == ucclEpFloat8e4m3 || dtype == ucclEpFloat8e5m2 || dtype == ucclEpFloat4e2m1x2;
}

CounterViews counter_views(const ucclEpCounters_t* given, const char* name, const GroupShape& shape) {
  const ucclEpCounters_t counters = read_struct(given, name);
  const int64_t local = shape.local_experts(), ranks = shape.ranks;
  CounterViews views{};
  std::string path;
  const auto counter = [&](const ucclEpTensor_t* tensor, const char* field, std::initializer_list<SizeRule> rules) {
    path = std::string(name) + "." + field;
    TensorView t = optional_tensor(tensor, path.c_str());
    t.dtype({ucclEpInt32, ucclEpInt64}).shape(rules).adjacent_elements().no_overlap();
    return view_of(t);
  };
  const SizeRule per_expert = exactly(local, "local experts"), per_rank = exactly(ranks, "ranks");
  views.tokens_per_expert = counter(counters.tokens_per_expert, "tokens_per_expert", {per_expert});
  views.tokens_per_expert_unpadded =
      counter(counters.tokens_per_expert_unpadded, "tokens_per_expert_unpadded", {per_expert});
  views.tokens_per_rank = counter(counters.tokens_per_rank, "tokens_per_rank", {per_rank});
  views.tokens_per_expert_rank =
      counter(counters.tokens_per_expert_rank, "tokens_per_expert_rank", {per_expert, per_rank});
  views.recv_total = counter(counters.recv_total, "recv_total", {exactly(1, "one total")});
  views.expert_offsets = counter(counters.expert_offsets, "expert_offsets",
                                 {SizeRule{local, local + 1, "local experts, or one more for the total"}});
  if (counters.expert_offsets) views.num_expert_offsets = static_cast<uint32_t>(counters.expert_offsets->sizes[0]);
  views.recv_total_host = counters.recv_total_host;
  if (reinterpret_cast<uintptr_t>(counters.recv_total_host) % sizeof(int64_t) != 0) {
    fail(ucclEpInvalidArgument, "{}.recv_total_host is not aligned to 8 bytes", name);
  }
  return views;
}

}  // namespace ucclep
