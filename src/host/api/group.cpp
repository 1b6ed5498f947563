// SPDX-License-Identifier: Apache-2.0
#include "host/api/group.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "base/best_effort.hpp"
#include "base/hmac.hpp"
#include "base/log.hpp"
#include "bootstrap/agreement.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/context/open_device.hpp"
#include "host/group/group.hpp"
#include "host/group/group_shape.hpp"
#include "host/group/handle.hpp"
#include "host/group/masks.hpp"
#include "host/group/peer_loss.hpp"
#include "host/group/plan.hpp"
#include "host/memory/window_table.hpp"
#include "host/network/network.hpp"
#include "ucclep/device/layout/views.hpp"

namespace ucclep {
namespace {

void agree_on(Agreement& agreement, const ucclEpGroupConfig_t& config) {
  agreement.field("num_experts", config.num_experts)
      .field("top_k", config.top_k)
      .field("max_tokens_per_rank", config.max_tokens_per_rank)
      .field("ll_max_tokens_per_rank", config.ll_max_tokens_per_rank)
      .field("max_token_bytes", config.max_token_bytes)
      .field("max_recv_tokens_per_rank", config.max_recv_tokens_per_rank)
      .field("num_sms", config.num_sms)
      .field("enable_mask", config.enable_mask)
      .field("overflow", config.overflow)
      .field("num_signals", config.num_signals)
      .field("max_in_flight", config.max_in_flight)
      .field("window_bytes", config.window_bytes)
      .field("num_logical_experts", config.num_logical_experts)
      .field("replica_choice", config.replica_choice);
}

// As WindowLayout and kernels want it, of a communicator whose ranks may be in several domains.
GroupShape shape_on(const ucclEpComm& comm, const ucclEpGroupConfig_t& checked, const NodeShape& nodes) {
  GroupShape shape = shape_of(checked, comm.nranks(), comm.traits, nodes);
  if (shape.networked == 0 || shape.masked != 0) return shape;
  CopyShape copies{shape.experts, shape.top_k, shape.ll_tokens, network_row_bytes(shape, shape.token_bytes), {}};
  for (const topology::Domain& domain : comm.topology.plan.domains) {
    copies.node_sizes.push_back(static_cast<uint32_t>(domain.ranks.size()));
  }
  shape.node_copies = copies_by_node(comm.config.ll_copies, copies) ? 1 : 0;
  const CopyTimes times = copy_times(copies);
  log::info("group",
            "LL dispatch sends a row once to each {} (UCCLEP_LL_COPIES={}; predicted: to each rank {:.0f} us, "
            "to each node {:.0f} us)",
            shape.node_copies != 0 ? "node" : "rank", copies_name(comm.config.ll_copies), times.by_rank_us,
            times.by_node_us);
  if (shape.relay_stages != 0) {
    log::info("group", "HT relays stage rows in device memory, because rows arrive in host memory");
  }
  return shape;
}

std::string shape_hash(const GroupShape& shape) {
  static_assert(std::has_unique_object_representations_v<GroupShape>);  // no padding
  std::string text;
  const Mac hash = sha256({reinterpret_cast<const char*>(&shape), sizeof shape});
  for (size_t i = 0; i < 8; ++i) text += fmt::format("{:02x}", hash[i]);
  return text;
}

// In which form few rows of LL travel, and why.
std::string form_text(const GroupShape& shape) {
  return fmt::format(
      "stores of {} bytes arrive whole between all ranks: {}", shape.whole_bytes,
      shape.line_capacity != 0 ? fmt::format("LL has lines of {} bytes", shape.line_bytes) : "LL has no lines");
}

int timeout_ms(const ucclEpGroup& group) {
  return group.comm->timeout_ms(group.config.timeout_ms);
}

std::vector<char> workspace_image(const ucclEpGroup& group) {
  const GroupShape& shape = group.shape();
  const auto at = WorkspaceLayout::of(shape);
  std::vector<char> image(at.bytes);
  std::vector<void*> windows;
  for (const PeerMemory* memory : {&group.windows, &group.network_windows}) {
    for (const auto& window : memory->of) windows.push_back(window ? window->data() : nullptr);
  }
  std::memcpy(image.data() + at.windows, static_cast<const void*>(windows.data()), windows.size() * sizeof(void*));
  if (group.mask_words) {
    const std::string masks = mask_image(group);
    std::memcpy(image.data() + at.masks, masks.data(), masks.size());
  }
  if (!group.network) return image;
  std::memcpy(image.data() + at.network, &group.network->view(), sizeof(NetworkView));
  const std::vector<uint32_t> nodes = node_words(group.comm->topology.plan, shape.masked != 0);
  std::memcpy(image.data() + at.tables + NetworkTables::of(shape).nodes, nodes.data(), nodes.size() * sizeof(uint32_t));
  return image;
}

void fill_device(ucclEpGroup& group) {
  ucclEpDeviceGroup& d = group.device;
  const auto at = WorkspaceLayout::of(group.shape());
  d.rank = group.comm->rank();
  d.state = reinterpret_cast<GroupState*>(group.workspace.data());
  d.windows = reinterpret_cast<char* const*>(group.workspace.data() + at.windows);
  d.mine = static_cast<char*>(group.windows.of[static_cast<size_t>(d.rank)]->data());
  d.channel = reinterpret_cast<ChannelState*>(group.workspace.data() + at.channel);
  if (group.network) d.network = reinterpret_cast<NetworkView*>(group.workspace.data() + at.network);
  d.errors = group.comm->errors;
  d.abort_word = group.comm->abort_word;
  if (group.mask_words) {
    d.masks = reinterpret_cast<GroupMasks*>(group.workspace.data() + at.masks);
    d.abort_word = &d.masks->leave;
    await_record(group.mask_words->evicted, &d.masks->evicted_claim);
  }
  d.user_windows = group.comm->windows->addresses();
  d.user_window_bytes = group.comm->windows->sizes(0);
  if (group.trace) d.trace = group.trace->entries();
  d.timeout_ns = static_cast<uint64_t>(timeout_ms(group)) * 1000000;
  d.reports_dropped = group.config.overflow == UCCLEP_OVERFLOW_ERROR ? 1 : 0;
}

// Of the network: with masks what concerns one peer is its loss.
proxy::FaultSink faults_of(ucclEpGroup& group) {
  if (group.config.enable_mask == 0) return {};
  return [&group](const proxy::Fault& fault) {
    if (fault.peer < 0 || fault.code == ucclEpInternalError) return raise_network_fault(*group.comm, fault);
    if (fault.code == ucclEpTimeout) return mask_lost(group, fault.peer, false, fault.message);
    lose_connection(group, fault.peer, fault.message);
  };
}

ucclEpGroupConfig_t with_environment(ucclEpGroupConfig_t config, const Config& environment) {
  config.window_bytes = environment.window_bytes.value_or(config.window_bytes);
  return config;
}

ucclEpGroup_t create_group(ucclEpComm& comm, const ucclEpGroupConfig_t* given) {
  static std::atomic<uint64_t> groups = 0;
  auto group = std::make_unique<ucclEpGroup>(comm);
  group->serial = ++groups;
  group->device = {};
  std::shared_ptr<SharedMemory> own;
  const Deadline deadline = comm.deadline();  // the group's own limit is of its operations, which wait for less
  Agreement agreement("ucclEpGroupCreate");
  ucclEpGroupConfig_t asked = UCCLEP_GROUP_CONFIG_INIT;
  agreement.attempt([&] {
    refuse_in_capture(comm);
    check_reach(comm);
  });
  agreement.attempt([&] { asked = with_environment(read_struct(given, "config"), comm.config); });
  agree_on(agreement, asked);
  // Who waits less than the others would mask a rank that only waits longer.
  agreement.field("timeout_ms with enable_mask", asked.enable_mask != 0 ? comm.timeout_ms(asked.timeout_ms) : 0);
  agreement.field("UCCLEP_LL_COPIES", copies_name(comm.config.ll_copies));
  agreement.attempt([&] {
    const NodeShape nodes = node_shape(comm.topology.plan, asked.enable_mask != 0);
    group->config = checked_config(asked, comm.nranks(), comm.traits, nodes);
    group->device.shape = shape_on(comm, group->config, nodes);
    check_launchable(comm.traits, group->device.shape);
    check_window_bytes(group->config, group->device.shape);
    group->device.layout = WindowLayout::of(group->device.shape);
    if (agreement.failed()) return;
    own = comm.device->share(group->device.layout.bytes);
  });
  // Ranks whose versions, devices or networks lead to other places in a window would write where nobody looks.
  agreement.field("the bytes of a group's window", group->device.layout.bytes);
  agreement.field("the bytes of a group's network window", group->device.layout.network_bytes);
  agreement.field("the bytes of a store that arrive whole", group->device.shape.whole_bytes);
  agreement.field("the hash of a group's shape", shape_hash(group->device.shape));
  agreement.settle(*comm.bootstrap, deadline);
  group->number = comm.next_object++;
  group->windows = exchange_memory(comm, std::move(own), "ucclEpGroupCreate", deadline, group->device.layout.bytes);
  NetworkWindow of_network;
  if (comm.network) {
    of_network = share_network_window(comm, comm.network->memory(), group->device.layout.network_bytes, deadline);
    group->network_windows =
        exchange_memory(comm, of_network.memory, "ucclEpGroupCreate", deadline, group->device.layout.network_bytes);
  }

  Agreement resources("ucclEpGroupCreate");
  resources.attempt([&] {
    if (comm.network) {
      group->network = std::make_unique<GroupNetwork>(comm, group->shape(), group->device.layout, of_network,
                                                      timeout_ms(*group), faults_of(*group));
    }
    if (group->config.enable_mask != 0) group->mask_words = make_mask_words(*comm.device);
    const size_t bytes = WorkspaceLayout::of(group->shape()).bytes;
    group->workspace = Workspace(*comm.device, group->config, bytes, workspace_image(*group), deadline);
    if (comm.trace) group->trace = std::make_unique<GroupTrace>(*comm.trace, *comm.device);
    fill_device(*group);
  });
  resources.settle(*comm.bootstrap, deadline);
  if (group->network) group->network->connect(deadline);
  log::info(
      "group",
      "created a group with {} experts, top-{}, B {} / {} (LL), {}, windows of {} bytes, network windows of {} bytes{}",
      group->config.num_experts, group->config.top_k, group->config.max_tokens_per_rank,
      group->config.ll_max_tokens_per_rank, form_text(group->shape()), group->device.layout.bytes,
      group->device.layout.network_bytes, comm.network ? " in " + of_network.where.text() : "");
  if (group->mask_words) comm.faults->watch(&group->mask_words->evicted);
  group->enlist(ObjectKind::group, &comm);
  const std::lock_guard lock(comm.groups_mutex);
  comm.groups.push_back(group.get());
  return group.release();
}

// Without a communicator: domains of the sizes in UCCLEP_NODES, or one.
NodeShape assumed_nodes(const std::vector<int>& sizes, int nranks, bool apart) {
  if (sizes.size() < 2) return {};
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (sum != nranks) {
    fail(ucclEpInvalidArgument, "the sizes of UCCLEP_NODES add up to {} ranks, but config.nranks is {}", sum, nranks);
  }
  return node_shape(sizes, apart);
}

// Of a rank that no communicator has placed: every proxy thread that there may be.
constexpr size_t assumed_proxies = 4;

ucclEpGroupLimits_t limits_of(const ucclEpComm* comm, const ucclEpGroupConfig_t& asked) {
  if (comm) check_reach(*comm);
  const int nranks = comm ? comm->nranks() : asked.nranks;
  if (!comm && (nranks < 1 || nranks > static_cast<int>(max_ranks))) {
    fail(ucclEpInvalidArgument, "config.nranks is {}, expected 1 to {} when comm is NULL", nranks, max_ranks);
  }
  const Config environment = comm ? comm->config : Config::from_environment();
  const DeviceTraits traits =
      comm ? comm->traits
           : expected_traits(environment.device.value_or(UCCLEP_DEVICE_AUTO), UCCLEP_DEVICE_INDEX_CURRENT);
  const bool apart = asked.enable_mask != 0;
  const NodeShape nodes =
      comm ? node_shape(comm->topology.plan, apart) : assumed_nodes(environment.nodes, nranks, apart);
  const ucclEpGroupConfig_t config = checked_config(with_environment(asked, environment), nranks, traits, nodes);
  const GroupShape shape = comm ? shape_on(*comm, config, nodes) : shape_of(config, nranks, traits, nodes);
  check_launchable(traits, shape);
  check_window_bytes(config, shape);
  ucclEpGroupLimits_t limits = UCCLEP_GROUP_LIMITS_INIT;
  const WindowLayout layout = WindowLayout::of(shape);
  uint64_t on_device = WorkspaceLayout::of(shape).bytes + round_up(layout.bytes, traits.window_granularity);
  if (shape.networked != 0) {
    const size_t threads = comm ? comm->topology.of(comm->rank()).proxies.size() : assumed_proxies;
    const bool gpu = traits.kind != UCCLEP_DEVICE_HOST,
               in_device = comm ? comm->network->memory().in_device() : gpu && traits.nics_reach;
    uint64_t on_host = network_host_bytes(shape, traits, threads);
    (gpu ? on_host : on_device) += layout.channel_bytes;
    (gpu && !in_device ? on_host : on_device) +=
        in_device ? round_up(layout.network_bytes, traits.window_granularity) : layout.network_bytes;
    limits.host_bytes = static_cast<int64_t>(on_host);
  }
  limits.device_bytes = static_cast<int64_t>(on_device);
  limits.max_top_k = max_top_k;
  limits.max_experts = max_experts_of(traits, shape.ranks, nodes);
  limits.max_tokens_per_rank = max_tokens;
  limits.max_token_bytes = INT32_MAX / 2;
  limits.max_ranks = max_ranks_of(traits);
  limits.epoch_bits = 64;
  limits.tokens_per_round = shape.ht_tokens;
  limits.whole_bytes = shape.whole_bytes;
  return limits;
}

constexpr const char* group_went_on = "ucclEpGroupDestroy continued after an error";

// Kernels in flight use the memory that goes now. They end: all their waits are bounded, and watch the abort word.
void drain(ucclEpGroup& group, Deadline deadline) {
  ucclEpComm& comm = *group.comm;
  const auto ends_by = [&](Deadline until) { return group.work.wait(until) == ucclEpSuccess; };
  best_effort("group", group_went_on, [&] {
    if (ends_by(deadline)) return;
    comm.faults->raise(ucclEpTimeout, "ucclEpGroupDestroy", "drain", -1,
                       "an operation of the group did not end in time");
    if (ends_by(deadline.with_grace())) return;
    comm.in_use = true;
    log::warn("group", "an operation still runs: the memory of the group and of its communicator is not freed");
  });
}

}  // namespace

void destroy_group(ucclEpGroup_t group, Teardown& teardown) {
  group->withdraw();
  ucclEpComm& comm = *group->comm;
  const Deadline deadline = teardown.deadline();
  drain(*group, deadline);
  teardown.meets([&] {
    if (group->network) group->network->stop(group->mask_words && has_masked(*group), deadline);
    comm.bootstrap->barrier_living(deadline);  // a peer may still read this rank's window until then
  });
  std::vector<proxy::Transfer> transfers;
  best_effort("group", "the trace lacks what was sent over the network", [&] {
    if (group->network) transfers = group->network->end();
  });
  if (group->trace) group->trace->write(transfers);
  while (!group->handles.empty()) destroy_handle(group->handles.back());
  if (group->mask_words) comm.faults->unwatch(&group->mask_words->evicted);
  {
    const std::lock_guard lock(comm.groups_mutex);
    comm.groups.erase(std::find(comm.groups.begin(), comm.groups.end(), group));
  }
  if (comm.in_use) return comm.kept.push_back(group);
  delete group;
}

}  // namespace ucclep

using namespace ucclep;

ucclEpResult_t ucclEpGroupQuery(ucclEpComm_t comm, const ucclEpGroupConfig_t* config, ucclEpGroupLimits_t* limits) {
  return guarded("ucclEpGroupQuery", comm, [&] {
    check_out_struct(limits, "limits");
    write_struct(limits, limits_of(comm, read_struct(config, "config")), "limits");
  });
}

ucclEpResult_t ucclEpGroupCreate(ucclEpGroup_t* group, ucclEpComm_t comm, const ucclEpGroupConfig_t* config) {
  return guarded("ucclEpGroupCreate", comm, [&] {
    require(group, "group");
    check_magic(config, "config");
    *group = create_group(usable(comm), config);
  });
}

ucclEpResult_t ucclEpGroupDestroy(ucclEpGroup_t group) {
  return guarded_destroying("ucclEpGroupDestroy", group, [&] {
    refuse_destruction_in_capture(*group->comm);
    Teardown teardown(*group->comm, "ucclEpGroupDestroy", deadline_of(*group));
    destroy_group(group, teardown);
  });
}

ucclEpResult_t ucclEpGroupGetDevice(ucclEpGroup_t group, ucclEpDeviceGroup* out) {
  return guarded("ucclEpGroupGetDevice", group, [&] {
    const ucclEpGroup& g = usable(group);
    check_device_struct(out);
    *out = g.device;
  });
}
