// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/best_effort.hpp"
#include "base/kept.hpp"
#include "base/log.hpp"
#include "base/near_node.hpp"
#include "bootstrap/agreement.hpp"
#include "host/api/group.hpp"
#include "host/api/process_end.hpp"
#include "host/api/stats_file.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/boundary/text_out.hpp"
#include "host/context/communicator.hpp"
#include "host/context/open_device.hpp"
#include "host/context/teardown.hpp"
#include "host/group/group.hpp"
#include "host/group/masks.hpp"
#include "host/group/peer_loss.hpp"
#include "host/memory/window_table.hpp"
#include "host/network/network.hpp"
#include "topology/json.hpp"
#include "topology/text.hpp"

namespace ucclep {
namespace {

void check_asked(const ucclEpCommConfig_t& asked) {
  if (asked.timeout_ms < 0)
    fail(ucclEpInvalidArgument, "config.timeout_ms is {}, expected 0 or more", asked.timeout_ms);
  if (asked.device_index < UCCLEP_DEVICE_INDEX_CURRENT) {
    fail(ucclEpInvalidArgument, "config.device_index is {}, expected UCCLEP_DEVICE_INDEX_CURRENT or an index",
         asked.device_index);
  }
  if (asked.ranks_per_node < 0)
    fail(ucclEpInvalidArgument, "config.ranks_per_node is {}, expected 0 or more", asked.ranks_per_node);
  if (asked.ranks_per_domain < 0) {
    fail(ucclEpInvalidArgument, "config.ranks_per_domain is {}, expected 0 or more", asked.ranks_per_domain);
  }
  if (asked.proxy_threads < 0)
    fail(ucclEpInvalidArgument, "config.proxy_threads is {}, expected 0 or more", asked.proxy_threads);
}

// Ranks that share a GPU share its SMs: a kernel waits for kernels of the others, so all must be resident at once.
void share_out_sms(ucclEpComm& comm) {
  const auto sharers = static_cast<unsigned>(comm.topology.sharers_of_gpu(comm.rank()).size());
  if (sharers == 1) return;
  comm.shares_device = true;
  comm.traits.num_sms = std::max(1u, comm.traits.num_sms / sharers);
  log::info("comm", "{} ranks share {}: each uses {} SMs", sharers, comm.traits.name, comm.traits.num_sms);
}

// What its GPU, proxies and NICs share in host memory lies near the GPU, and so near the NICs that the rank uses.
void place_host_memory(ucclEpComm& comm) {
  const int node = comm.topology.numa_node_of_gpu(comm.rank());
  if (node < 0) return;
  const NearNode trial(node);
  if (trial.prefers()) {
    comm.device->place_host_memory(node);
    log::info("comm", "{} is near NUMA node {}: host memory is allocated there", comm.traits.name, node);
  } else {
    log::info("comm", "{} is near NUMA node {}, but host memory is not allocated there: {}", comm.traits.name, node,
              trial.why_not());
  }
}

void prepare_network(ucclEpComm& comm, Deadline deadline) {
  const NetworkMemory memory = choose_network_memory(comm, deadline);
  comm.traits.nics_reach = comm.traits.nics_reach || memory.in_device();
  comm.network = std::make_unique<CommNetwork>(comm, memory);
}

void watch(ucclEpComm& comm) {
  FaultLog* faults = comm.faults.get();
  comm.device->on_fault(
      [faults](const Error& fault) { faults->raise(fault.code(), "kernel", "device", -1, fault.what()); });
  comm.bootstrap->on_peer_loss([&comm, faults](int rank, const std::string& message) {
    if (mask_dead(comm, rank, message)) return;
    faults->raise(ucclEpRemoteError, "communicator", "liveness", rank, message);
  });
  comm.bootstrap->on_notification([&comm](int rank, const std::string& text) { handle_peer_loss(comm, rank, text); });
}

std::string sizes_text(const std::vector<int>& sizes) {
  std::string text;
  for (const int size : sizes) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text;
}

// Everything of init but how the ranks find each other. join(socket_ifname, deadline, agreement) makes the Bootstrap.
template <class Join>
ucclEpComm_t init(const char* function, const ucclEpCommConfig_t* given, int nranks, Join&& join) {
  check_magic(given, "config");  // fails alone and at once
  auto comm = std::make_unique<ucclEpComm>();
  ucclEpCommConfig_t asked = UCCLEP_COMM_CONFIG_INIT;
  Agreement agreement(function);
  agreement.attempt([&] { comm->config = Config::from_environment(); });
  agreement.attempt([&] {
    asked = read_struct(given, "config");
    check_asked(asked);
    comm->configured_timeout_ms = asked.timeout_ms;
  });
  Deadline deadline = comm->deadline();
  comm->bootstrap = join(comm->config.socket_ifname, deadline, agreement);
  log::set_rank(comm->rank());
  topology::RankFacts facts;
  agreement.attempt([&] {
    if (agreement.failed()) return;
    comm->transport = asked_transport(comm->config, asked);
    comm->device = open_device(comm->config.device.value_or(asked.device), asked.device_index, comm->rank());
    comm->errors = static_cast<DeviceErrors*>(comm->device->alloc_host(sizeof(DeviceErrors)));
    // Behind the word itself stands that it is none of a group with masks; then the claims of the records.
    comm->abort_word = static_cast<uint32_t*>(comm->device->alloc(4 * sizeof(uint32_t)));
    await_record(comm->errors->fatal, comm->abort_word + 2);
    await_record(comm->errors->data, comm->abort_word + 3);
    if (!comm->config.trace_file.empty()) {
      comm->trace = std::make_unique<Trace>(comm->config.trace_file, comm->rank(), *comm->device, deadline);
    }
    if (!comm->config.stats_dir.empty()) comm->stats = std::make_unique<StatsFile>(comm->config.stats_dir);
    comm->windows = std::make_unique<WindowTable>(*comm->device, static_cast<uint32_t>(comm->nranks()));
    facts = facts_of_this_rank(comm->config, asked, comm->device->traits());
  });
  agreement.field("nranks", nranks)
      .field("transport", comm->transport)
      .field("UCCLEP_NODES", sizes_text(comm->config.nodes));
  if (comm->device) {
    agreement.field("device", comm->device->traits().kind);
    agreement.field("the wave size of the device", comm->device->traits().wave);
  }
  agreement.settle(*comm->bootstrap, deadline);
  comm->topology = exchange_topology(*comm->bootstrap, facts, comm->config.nodes, deadline);
  comm->transport = agreed_transport(*comm->bootstrap, comm->topology, comm->transport, facts, deadline);
  comm->faults = std::make_unique<FaultLog>(comm->errors, comm->rank(), [raw = comm.get()] { stop_kernels(*raw); });
  comm->traits = comm->device->traits();
  comm->traits.whole_bytes = comm->topology.plan.whole_bytes();
  share_out_sms(*comm);
  place_host_memory(*comm);
  if (comm->topology.plan.domains.size() > 1) prepare_network(*comm, deadline);
  watch(*comm);
  watch_process_end();
  keep_errors_of(comm.get());
  comm->enlist(ObjectKind::comm, comm.get());
  if (comm->stats) comm->stats->start(*comm);
  log::info("comm", "rank {} of {} on {}, timeout {} ms", comm->rank(), comm->nranks(), comm->traits.name,
            comm->timeout_ms());
  log::info("topology", "{}", place_text(comm->topology.ranks, comm->topology.plan, comm->rank()));
  return comm.release();
}

constexpr const char* comm_went_on = "ucclEpCommDestroy continued after an error";

// Copies that the caller left in flight use memory that goes now, and unmapping waits for nothing.
void drain_streams(ucclEpComm& comm, Deadline until) {
  std::vector<ucclEpStream_t> streams(comm.streams.begin(), comm.streams.end());
  streams.push_back(nullptr);
  for (ucclEpStream_t stream : streams) {
    best_effort("comm", comm_went_on, [&] {
      if (comm.device->is_capturing(stream)) return;
      if (comm.device->stream_synchronize(stream, until.remaining_ms()) == ucclEpSuccess) return;
      comm.in_use = true;
      log::warn("comm", "the work on a stream did not end: the memory of the communicator is not freed");
    });
  }
}

// Before the ranks meet: none frees memory that another one has mapped.
void free_streams_and_windows(ucclEpComm& comm) {
  Device& device = *comm.device;
  comm.graphs.clear();
  comm.windows->clear();
  for (ucclEpStream_t stream : comm.streams) best_effort("comm", comm_went_on, [&] { device.stream_destroy(stream); });
  for (ucclEpEvent_t event : comm.events) best_effort("comm", comm_went_on, [&] { device.event_destroy(event); });
}

void destroy(ucclEpComm* comm) {
  const Deadline deadline = comm->deadline();
  Teardown teardown(*comm, "ucclEpCommDestroy", deadline);
  comm->stats.reset();
  while (!comm->groups.empty()) destroy_group(comm->groups.back(), teardown);
  comm->network.reset();
  drain_streams(*comm, comm->faults->fatal() ? deadline.with_grace() : deadline);
  if (!comm->in_use) free_streams_and_windows(*comm);
  teardown.meets([&] { comm->bootstrap->barrier_living(deadline); });
  comm->bootstrap->on_peer_loss({});
  comm->bootstrap->on_notification({});
  comm->bootstrap->close(earlier(Deadline::after_ms(Deadline::grace_ms), deadline.with_grace()));
  Device& device = *comm->device;
  device.on_fault({});
  comm->withdraw();
  forget_errors_of(comm);
  if (comm->in_use) return keep_for_ever(std::shared_ptr<ucclEpComm>(comm));
  comm->device_memory.clear();
  for (void* memory : comm->host_memory) best_effort("comm", comm_went_on, [&] { device.free_host(memory); });
  delete comm;
}

}  // namespace

}  // namespace ucclep

ucclEpComm::ucclEpComm() = default;

ucclEpComm::~ucclEpComm() {
  if (errors) ucclep::best_effort("comm", "error records were not freed", [this] { device->free_host(errors); });
  if (abort_word) ucclep::best_effort("comm", "the abort word was not freed", [this] { device->free(abort_word); });
}

using namespace ucclep;

ucclEpResult_t ucclEpGetUniqueId(ucclEpUniqueId* id) {
  return guarded("ucclEpGetUniqueId", nullptr, [&] {
    require(id, "id");
    *id = open_rendezvous(Config::from_environment().socket_ifname);
  });
}

ucclEpResult_t ucclEpCommInitRank(ucclEpComm_t* comm, int nranks, ucclEpUniqueId id, int rank,
                                  const ucclEpCommConfig_t* config) {
  return guarded("ucclEpCommInitRank", nullptr, [&] {
    require(comm, "comm");
    *comm = init("ucclEpCommInitRank", config, nranks, [&](const std::string& ifname, Deadline& deadline, Agreement&) {
      return Bootstrap::join(id, rank, nranks, ifname, deadline);
    });
  });
}

ucclEpResult_t ucclEpCommInitBootstrap(ucclEpComm_t* comm, int nranks, int rank, const ucclEpBootstrap_t* bootstrap,
                                       const ucclEpCommConfig_t* config) {
  return guarded("ucclEpCommInitBootstrap", nullptr, [&] {
    require(comm, "comm");
    const ucclEpBootstrap_t callback = read_struct(bootstrap, "bootstrap");
    if (callback.allgather == nullptr) fail(ucclEpInvalidArgument, "bootstrap.allgather is NULL");
    *comm = init("ucclEpCommInitBootstrap", config, nranks,
                 [&](const std::string& ifname, Deadline& deadline, Agreement& agreement) {
                   return Bootstrap::join(callback, rank, nranks, ifname, deadline, agreement);
                 });
  });
}

ucclEpResult_t ucclEpCommDestroy(ucclEpComm_t comm) {
  return guarded_destroying("ucclEpCommDestroy", comm, [&] {
    refuse_destruction_in_capture(*comm);
    destroy(comm);
  });
}

ucclEpResult_t ucclEpCommAbort(ucclEpComm_t comm) {
  return guarded_beside("ucclEpCommAbort", comm, true, [&] {
    require(comm, "comm");
    abort_comm(*comm, fmt::format("rank {} called ucclEpCommAbort", comm->rank()), "");
  });
}

ucclEpResult_t ucclEpCommCount(ucclEpComm_t comm, int* count) {
  return guarded("ucclEpCommCount", comm, [&] {
    require(comm, "comm");
    require(count, "count");
    *count = comm->nranks();
  });
}

ucclEpResult_t ucclEpCommUserRank(ucclEpComm_t comm, int* rank) {
  return guarded("ucclEpCommUserRank", comm, [&] {
    require(comm, "comm");
    require(rank, "rank");
    *rank = comm->rank();
  });
}

ucclEpResult_t ucclEpCommGetInfo(ucclEpComm_t comm, ucclEpCommInfo_t* info) {
  return guarded("ucclEpCommGetInfo", comm, [&] {
    require(comm, "comm");
    check_out_struct(info, "info");
    ucclEpCommInfo_t facts = UCCLEP_COMM_INFO_INIT;
    const DeviceTraits& traits = comm->traits;
    facts.rank = comm->rank();
    facts.nranks = comm->nranks();
    facts.device = traits.kind;
    facts.device_index = traits.index;
    const ExchangedTopology& topology = comm->topology;
    const topology::RankPlan& own = topology.of(comm->rank());
    const std::vector<topology::Domain>& domains = topology.plan.domains;
    facts.node = own.node;
    facts.num_nodes = static_cast<int>(topology.plan.nodes.size());
    facts.domain_size = static_cast<int>(domains[static_cast<size_t>(own.domain)].ranks.size());
    if (domains.size() > 1) facts.proxy_threads = static_cast<int>(own.proxies.size());
    const auto copy = [](char* to, size_t space, const std::string& from) {
      std::strncpy(to, from.c_str(), space - 1);
    };
    copy(facts.transport, sizeof facts.transport, domains.size() == 1 ? "shared memory" : comm->transport);
    copy(facts.nics, sizeof facts.nics, topology.nic_names(comm->rank()));
    copy(facts.node_name, sizeof facts.node_name, comm->bootstrap->host_name(comm->rank()));
    copy(facts.device_name, sizeof facts.device_name, traits.name);
    for (ucclEpGroup_t group : comm->groups) facts.window_bytes += window_bytes(*group);
    write_struct(info, facts, "info");
  });
}

ucclEpResult_t ucclEpCommGetStats(ucclEpComm_t comm, ucclEpStats_t* stats) {
  return guarded_beside("ucclEpCommGetStats", comm, false, [&] {
    require(comm, "comm");
    check_out_struct(stats, "stats");
    const ucclEpStats_t none = UCCLEP_STATS_INIT;
    write_struct(stats, comm->network ? comm->network->statistics() : none, "stats");
  });
}

ucclEpResult_t ucclEpCommGetTopology(ucclEpComm_t comm, char* json, size_t* len) {
  return guarded("ucclEpCommGetTopology", comm, [&] {
    require(comm, "comm");
    write_text(to_json(comm->topology.ranks, comm->topology.plan), json, len, "json");
  });
}

ucclEpResult_t ucclEpCommGetAsyncError(ucclEpComm_t comm, ucclEpAsyncError_t* error) {
  return guarded_beside("ucclEpCommGetAsyncError", comm, true, [&] {
    require(comm, "comm");
    write_struct(error, comm->faults->current(), "error");
  });
}

ucclEpResult_t ucclEpCommClearAsyncError(ucclEpComm_t comm) {
  return guarded("ucclEpCommClearAsyncError", comm, [&] {
    require(comm, "comm");
    comm->faults->clear_data();
  });
}
