// SPDX-License-Identifier: Apache-2.0
// ucclEpGroupSetExpertMap.
#include "base/error.hpp"
#include "device/kernels/kernels.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/tensor.hpp"
#include "host/boundary/views.hpp"
#include "host/group/group.hpp"
#include "host/group/plan.hpp"
#include "ucclep/device/layout/arguments.hpp"

namespace ucclep {
namespace {

void add_near_ranks(ExpertMapArgs& args, const ucclEpComm& comm) {
  const topology::RankPlan& own = comm.topology.of(comm.rank());
  for (int rank = 0; rank < comm.nranks(); ++rank) {
    const topology::RankPlan& other = comm.topology.of(rank);
    if (other.domain == own.domain) args.domain.add(static_cast<uint32_t>(rank));
    if (other.node == own.node) args.node.add(static_cast<uint32_t>(rank));
  }
}

// Both tensors, or none.
void add_map(ExpertMapArgs& args, const ucclEpGroup& group, const ucclEpTensor_t* physical,
             const ucclEpTensor_t* copies) {
  if (physical == nullptr && copies == nullptr) return;
  if (physical == nullptr || copies == nullptr) {
    fail(ucclEpInvalidArgument, "{} is NULL and {} is not: pass both tensors, or NULL for both to take the map away",
         physical == nullptr ? "logical_to_physical" : "copies",
         physical == nullptr ? "copies" : "logical_to_physical");
  }
  const SizeRule experts = exactly(group.config.num_logical_experts, "the group's num_logical_experts");
  TensorView table = required_tensor(physical, "logical_to_physical");
  table.dtype({ucclEpInt32}).shape({experts, at_least(1, "room for a copy")}).adjacent_elements();
  TensorView counts = required_tensor(copies, "copies");
  counts.dtype({ucclEpInt32}).shape({experts}).adjacent_elements();
  args.physical = view_of(table);
  args.copies = view_of(counts);
  args.logical = static_cast<uint32_t>(table.size(0));
  // No more than num_experts entries can be a logical expert's copies.
  args.most = static_cast<uint32_t>(std::min<int64_t>(table.size(1), group.config.num_experts));
}

}  // namespace
}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpGroupSetExpertMap(ucclEpGroup_t group, const ucclEpTensor_t* logical_to_physical,
                                       const ucclEpTensor_t* copies, ucclEpStream_t stream) {
  return guarded("ucclEpGroupSetExpertMap", group, [&] {
    ucclEpGroup& g = usable(group);
    checked_stream(*g.comm, stream);
    ExpertMapArgs args{};
    add_map(args, g, logical_to_physical, copies);
    args.group = g.device;
    args.nearest = g.config.replica_choice == UCCLEP_REPLICA_NEAREST;
    add_near_ranks(args, *g.comm);
    launch(g, kernels::set_expert_map, plan_expert_map(g.comm->traits, g.shape()), args, stream);
  });
}
