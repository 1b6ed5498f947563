// SPDX-License-Identifier: Apache-2.0
#include "host/network/network.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/attempt.hpp"
#include "base/best_effort.hpp"
#include "host/context/communicator.hpp"
#include "host/memory/window_table.hpp"
#include "proxy/immediate.hpp"
#include "proxy/serializer.hpp"

namespace ucclep {
namespace {

// Where rows for nodes are sent from and land, and sums of HT, by node and block (ucclep/device/nodes.hpp).
void add_relays(proxy::Places& places, const GroupShape& shape, const WindowLayout& w, const NodeTable& nodes,
                uint32_t self) {
  const uint32_t own = nodes.node_of(self), count = shape.nodes.nodes, blocks = shape.nodes.blocks();
  const auto area = [](uint64_t offset, uint64_t bytes, uint32_t in_slot) {
    return proxy::Area{0, offset, bytes * in_slot, bytes};
  };
  proxy::KindPlaces& dispatch = places.between_nodes(Kind::dispatch);
  dispatch.rows_from = area(w.relay_out, w.relay_rows, count);
  dispatch.rows_to = area(w.relay_in, w.relay_rows, blocks);
  proxy::KindPlaces& combine = places.between_nodes(Kind::combine);
  combine.rows_from = area(w.sums_out, w.sums_rows, blocks);
  combine.rows_to = area(w.sums_in, w.sums_rows, count);
  for (uint32_t peer = 0; peer < shape.ranks; ++peer) {
    dispatch.from_block.push_back(nodes.node_of(peer));
    dispatch.to_block.push_back(nodes.block_of(self, nodes.node_of(peer)));
    combine.from_block.push_back(nodes.block_of(peer, own));
    combine.to_block.push_back(own);
  }
}

proxy::Places places_of(const GroupShape& shape, const WindowLayout& w, const NodeTable& nodes, uint32_t self) {
  proxy::Places places;
  proxy::KindPlaces& dispatch = places.kinds[static_cast<uint32_t>(Kind::dispatch)];
  dispatch.row_bytes = static_cast<uint32_t>(network_row_bytes(shape, shape.token_bytes));
  dispatch.rows_from = {0, w.out_rows, w.net_rows_of_rank * shape.ranks, w.net_rows_of_rank};
  dispatch.rows_to = {0, w.in_rows, w.net_rows_of_rank * shape.ranks, w.net_rows_of_rank};
  proxy::KindPlaces& combine = places.kinds[static_cast<uint32_t>(Kind::combine)];
  combine.row_bytes = static_cast<uint32_t>(shape.token_bytes);
  combine.rows_from = {0, w.out_back, w.net_back_of_rank * shape.ranks, w.net_back_of_rank};
  combine.rows_to = {0, w.in_back, w.net_back_of_rank * shape.ranks, w.net_back_of_rank};
  add_relays(places, shape, w, nodes, self);
  for (uint32_t i = 0; i < 2 * num_kinds; ++i) {
    proxy::KindPlaces& to = places.kinds[i];
    const auto kind = static_cast<Kind>(i % num_kinds);
    const uint64_t slot_bytes = w.header_bytes * shape.ranks;
    to.header_from = {0, w.out_header(shape, kind, 0, 0), slot_bytes, w.header_bytes};
    to.header_to = {0, w.in_header(shape, kind, 0, 0), slot_bytes, w.header_bytes};
    to.header_bytes = static_cast<uint32_t>(w.header_bytes);
    if (kind == Kind::update) continue;  // which has no rows
    const auto between = RowsBetweenNodes::of(shape, kind);
    if (i >= num_kinds) to.row_bytes = between.bytes;
    to.rows = i < num_kinds ? shape.ll_tokens : between.rows;
    to.rows_per_chunk = rows_of_chunk(to.rows, to.row_bytes, max_chunks);
  }
  return places;
}

// A ring of each sort for each thread, and room for what all warps of an operation, and the threads of the block that
// ends it, push at once, and relays in kernels of users; and for all messages of the channel that may be under way,
// which wait for no room.
proxy::RingsShape rings_of(const GroupShape& shape, const DeviceTraits& traits, size_t threads) {
  const auto log2 = static_cast<uint32_t>(std::bit_width(threads - 1));
  const unsigned warps = traits.num_sms * (traits.max_block / traits.wave);
  const unsigned of_operation = warps * std::min(shape.top_k, shape.ranks) + traits.max_block + shape.ranks;
  return {log2, log2, of_operation + channel_window * shape.ranks, 0};
}

// Of the channel: signals, and barriers of teams.
uint32_t rows_of_words(const GroupShape& shape) {
  return shape.signals + num_teams;
}

uint64_t words_bytes(const GroupShape& shape) {
  const uint64_t of_channel = (1 + uint64_t{rows_of_words(shape)}) * shape.ranks;
  return sizeof(uint64_t) * (Arrivals::words(shape.ranks, shape.in_flight) + of_channel);
}

proxy::ChannelPlaces channel_of(const GroupShape& shape, const WindowLayout& layout, const SharedMemory& window,
                                uint64_t* words) {
  return {rows_of_words(shape),
          static_cast<std::byte*>(window.host_data()),
          layout.messages,
          layout.signal_messages,
          layout.staged_out,
          layout.staged_in,
          {words, words + shape.ranks}};
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

// living: who is gone brings nothing.
proxy::Allgather allgather_of(ucclEpComm& comm, bool living, Deadline deadline) {
  return [&comm, living, deadline](std::span<const std::byte> mine) {
    const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size());
    std::vector<std::vector<std::byte>> all(static_cast<size_t>(comm.nranks()));
    if (living) {
      for (const auto& [rank, one] : comm.bootstrap->collect_living(text, deadline)) {
        all[static_cast<size_t>(rank)] = bytes_of(one);
      }
    } else {
      std::ranges::transform(comm.bootstrap->collect(text, deadline), all.begin(), bytes_of);
    }
    return all;
  };
}

proxy::Exchange exchange_of(ucclEpComm& comm, bool living, Deadline deadline) {
  return [&comm, living, deadline](const std::vector<std::vector<std::byte>>& mine) {
    std::vector<std::string> texts;
    texts.reserve(mine.size());
    for (const std::vector<std::byte>& one : mine) {
      texts.emplace_back(reinterpret_cast<const char*>(one.data()), one.size());
    }
    std::vector<std::vector<std::byte>> all(mine.size());
    std::ranges::transform(comm.bootstrap->exchange(texts, living, deadline), all.begin(), bytes_of);
    return all;
  };
}

void add(ucclEpStats_t& sum, const ucclEpStats_t& part) {
  sum.commands += part.commands;
  sum.messages += part.messages;
  sum.bytes_sent += part.bytes_sent;
  sum.bytes_received += part.bytes_received;
  sum.ring_full_stalls += part.ring_full_stalls;
  sum.credit_stalls += part.credit_stalls;
  sum.nic_stalls += part.nic_stalls;
  sum.reorder_depth_max = std::max(sum.reorder_depth_max, part.reorder_depth_max);
}

}  // namespace

// Ranks that lost nothing themselves would else wait for this one until their time is up.
void raise_network_fault(ucclEpComm& comm, const proxy::Fault& fault) {
  comm.faults->raise(fault.code, fault.operation, "network", fault.peer, fault.message);
  comm.bootstrap->abort(fault.message);
}

proxy::Engine& CommNetwork::engine() {
  if (engine_ != nullptr) return *engine_;
  proxy::EngineConfig config;
  config.rank = static_cast<uint32_t>(comm_.rank());
  for (const topology::Proxy& proxy : comm_.topology.of(comm_.rank()).proxies) config.cpus.push_back(proxy.cpu);
  config.nics = nics_of(comm_);
  by_nics_ = !config.nics.front().name.empty();
  config.faults = [&comm = comm_](const proxy::Fault& fault) { raise_network_fault(comm, fault); };
  engine_ = std::make_unique<proxy::Engine>(std::move(config));
  return *engine_;
}

std::vector<std::vector<uint32_t>> CommNetwork::connections() const {
  const topology::Plan& plan = comm_.topology.plan;
  const int self = comm_.rank();
  std::vector<std::vector<uint32_t>> connections(plan.ranks.size());
  for (int peer = 0; peer < comm_.nranks(); ++peer) {
    if (comm_.topology.of(peer).domain == comm_.topology.of(self).domain) continue;
    std::vector<uint32_t>& to_peer = connections[static_cast<size_t>(peer)];
    if (by_nics_) {
      for (const auto& [mine, theirs] : topology::connections(plan, self, peer)) {
        to_peer.push_back(static_cast<uint32_t>(mine));
      }
    }
    if (to_peer.empty()) to_peer.push_back(0);
  }
  return connections;
}

ucclEpStats_t CommNetwork::statistics() const {
  const std::lock_guard lock(mutex_);
  ucclEpStats_t sum = ended_;
  for (const GroupNetwork* group : groups_) group->add_to(sum);
  return sum;
}

NetworkDepths CommNetwork::depths() const {
  const std::lock_guard lock(mutex_);
  NetworkDepths sum;
  for (const GroupNetwork* group : groups_) group->add_to(sum);
  return sum;
}

void CommNetwork::check_window(const SharedMemory& memory) const {
  try {
    nic_region(*comm_.device, memory_, memory);
  } catch (const Error& error) {
    fail(error.code(), "{}; set UCCLEP_NETWORK_MEMORY=host to copy puts through host memory", error.what());
  }
}

void CommNetwork::add_window(uint32_t id, const SharedMemory& memory, Deadline deadline) {
  for (GroupNetwork* group : groups_) group->add_window(id, memory, deadline);
}

void CommNetwork::settle(Deadline deadline) const {
  for (const GroupNetwork* group : groups_) {
    best_effort("network", "cannot wait for the puts of kernels", [&] { group->settle(deadline); });
  }
}

void CommNetwork::remove_window(uint32_t id) {
  for (GroupNetwork* group : groups_) group->remove_window(id);
}

void CommNetwork::add(GroupNetwork& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(&group);
}

void CommNetwork::remove(const GroupNetwork& group) {
  const std::lock_guard lock(mutex_);
  if (std::erase(groups_, &group) != 0) group.add_to(ended_);
}

void GroupNetwork::FreeHost::operator()(uint64_t* words) const {
  best_effort("network", "the memory of a group was not freed", [&] { device->free_host(words); });
}

GroupNetwork::GroupNetwork(ucclEpComm& comm, const GroupShape& shape, const WindowLayout& layout,
                           const NetworkWindow& window, int timeout_ms, proxy::FaultSink faults)
    : comm_(comm),
      goes_on_(faults != nullptr),
      channel_(comm.device->share_pinned(layout.channel_bytes)),
      rows_(nic_region(*comm.device, window.where, *window.memory)),
      rings_shape_(rings_of(shape, comm.traits, comm.topology.of(comm.rank()).proxies.size())),
      rings_(*comm.device, rings_shape_, static_cast<uint64_t>(timeout_ms) * 1'000'000, comm.abort_word),
      words_bytes_(words_bytes(shape)),
      words_(static_cast<uint64_t*>(comm.device->alloc_host(words_bytes_)), {comm.device.get()}) {
  comm.network->engine();  // what it lacks, is said before anything is connected
  spec_.shape.rank = static_cast<uint32_t>(comm.rank());
  spec_.shape.ranks = shape.ranks;
  spec_.shape.in_flight = shape.in_flight;
  const std::vector<uint32_t> words = node_words(comm.topology.plan, shape.masked != 0);
  const NodeTable nodes{words.data(), shape.ranks, shape.nodes.nodes, shape.nodes.turns};
  spec_.shape.places = places_of(shape, layout, nodes, spec_.shape.rank);
  uint64_t* const of_channel = words_.get() + Arrivals::words(shape.ranks, shape.in_flight);
  spec_.shape.channel = channel_of(shape, layout, *channel_, of_channel);
  spec_.shape.credits.in_flight = shape.in_flight;
  spec_.shape.credits.messages = channel_window;
  spec_.shape.timeout_ms = static_cast<uint32_t>(timeout_ms);
  spec_.shape.traced = comm.trace != nullptr;
  spec_.rings = &rings_;
  spec_.words = Arrivals::in(words_.get(), shape.ranks, shape.in_flight);
  spec_.windows = {rows_.memory, nic_region(*comm.device, {}, *channel_).memory};
  spec_.flush = flush_of(*comm.device, comm.network->memory());  // also of what is put into windows of the user's
  spec_.connections = comm.network->connections();
  spec_.faults = std::move(faults);
  if (shape.stages_puts != 0) spec_.copies = [&device = *comm.device] { return device.copy_queue(); };
  view_.fifo = rings_.fifo();
  view_.arrivals = spec_.words;
  view_.channel = spec_.shape.channel.words;
  view_.channel_window = static_cast<char*>(channel_->data());
  for (uint32_t kind = 0; kind < std::size(view_.rows_per_chunk); ++kind) {
    view_.rows_per_chunk[kind] = spec_.shape.places.kinds[kind].rows_per_chunk;
  }
}

GroupNetwork::~GroupNetwork() {
  comm_.network->remove(*this);
}

void GroupNetwork::connect(Deadline deadline) {
  proxies_ = comm_.network->engine().attach(
      spec_, {allgather_of(comm_, goes_on_, deadline), exchange_of(comm_, goes_on_, deadline)});
  comm_.network->add(*this);
  comm_.windows->for_each([&](uint32_t id, const SharedMemory& memory) { add_window(id, memory, deadline); });
}

void GroupNetwork::add_window(uint32_t id, const SharedMemory& memory, Deadline deadline) {
  const auto allgather = allgather_of(comm_, goes_on_, deadline);
  if (spec_.copies) {
    const auto error = attempt([&] { proxies_->keep_window(id, memory.data(), memory.bytes()); });
    proxy::agree(allgather, spec_.shape.rank, error ? &*error : nullptr);
    return;
  }
  proxy::Serializer out;
  auto error = attempt([&] {
    const NicRegion region = nic_region(*comm_.device, comm_.network->memory(), memory);
    for (const transport::Key& key : proxies_->offer_window(id, region.memory)) out.bytes(&key, sizeof key);
  });
  try {
    const auto offers = proxy::agree(allgather, spec_.shape.rank, error ? &*error : nullptr, out.data());
    error = attempt([&] {
      std::vector<std::vector<transport::Key>> keys(offers.size());
      for (uint32_t rank = 0; rank < offers.size(); ++rank) {
        proxy::Deserializer in(offers[rank], rank);
        while (!in.done()) keys[rank].push_back(in.object<transport::Key>());
      }
      proxies_->import_window(id, keys);
    });
    proxy::agree(allgather, spec_.shape.rank, error ? &*error : nullptr);
  } catch (const Error&) {
    best_effort("network", "a window was not released", [&] { proxies_->forget_window(id); });
    throw;
  }
}

// With masks some of it may be for a rank that has lost this one, and will not say that it is there.
void GroupNetwork::settle(Deadline deadline) const {
  proxies_->settle(goes_on_ ? earlier(Deadline::after_ms(spec_.shape.timeout_ms), deadline) : deadline);
}

void GroupNetwork::stop(bool has_lost, Deadline deadline) {
  if (goes_on_) {
    const auto all = comm_.bootstrap->allgather_living(has_lost, deadline);
    if (std::ranges::any_of(all, [](const auto& one) { return one.second; })) return proxies_->quiesce();
  } else {
    comm_.bootstrap->barrier(deadline);  // who has gone returns no credits: that would take the whole time
  }
  proxies_->stop(deadline, allgather_of(comm_, goes_on_, deadline));
}

std::vector<proxy::Transfer> GroupNetwork::end() {
  if (proxies_ != nullptr) {
    proxies_->quiesce();  // peers end as well, and whoever went on alone may be the last
    const std::vector<proxy::Transfer> latest = proxies_->end();
    transfers_.insert(transfers_.end(), latest.begin(), latest.end());
  }
  return std::exchange(transfers_, {});
}

std::optional<uint64_t> GroupNetwork::renewal() const {
  const uint64_t renewals = renewals_.load(std::memory_order_relaxed);
  return renewals % 2 == 0 ? std::optional(renewals) : std::nullopt;
}

bool GroupNetwork::lose(int rank) {
  const std::lock_guard lock(lost_mutex_);
  return lost_.insert(rank).second;
}

void GroupNetwork::renew(const Renewal& renewal, Deadline deadline) {
  renewals_.fetch_add(1, std::memory_order_relaxed);
  comm_.network->remove(*this);  // its counts are kept
  // Nobody closes a connection before all have ceased to mind what they lose.
  proxies_->quiesce();
  comm_.bootstrap->barrier_living(deadline);
  transfers_ = end();
  proxies_.reset();
  {
    const std::lock_guard lock(lost_mutex_);
    lost_.clear();
  }
  rings_ =
      proxy::CommandRings(*comm_.device, rings_shape_, uint64_t{spec_.shape.timeout_ms} * 1'000'000, comm_.abort_word);
  view_.fifo = rings_.fifo();
  spec_.shape.first = renewal.first;
  std::fill_n(words_.get(), words_bytes_ / sizeof(uint64_t), uint64_t{0});
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    std::fill_n(spec_.words.consumed_of(static_cast<Kind>(kind), 0), spec_.shape.ranks, renewal.first[kind]);
  }
  const std::vector<std::vector<uint32_t>> connections = comm_.network->connections();
  for (size_t rank = 0; rank < connections.size(); ++rank) {
    spec_.connections[rank] = renewal.living[rank] ? connections[rank] : std::vector<uint32_t>{};
  }
  connect(deadline);
  renewals_.fetch_add(1, std::memory_order_relaxed);
}

void GroupNetwork::add_to(ucclEpStats_t& sum) const {
  const proxy::GroupStatistics counts = proxies_->statistics();
  ucclEpStats_t part = UCCLEP_STATS_INIT;
  part.commands = counts.commands;
  part.messages = counts.chunks + counts.headers + counts.words + counts.channel;
  part.bytes_sent = counts.bytes;
  part.bytes_received = counts.bytes_in;
  part.ring_full_stalls = rings_.stalls();
  part.credit_stalls = counts.credit_stalls;
  part.nic_stalls = counts.nic_stalls;
  part.reorder_depth_max = counts.deepest;
  add(sum, part);
}

void GroupNetwork::add_to(NetworkDepths& sum) const {
  sum.commands_waiting += rings_.waiting();
  sum.in_flight_max = std::max(sum.in_flight_max, proxies_->statistics().max_in_flight);
}

NodeShape node_shape(const std::vector<int>& sizes, bool apart) {
  if (sizes.size() < 2) return {};
  if (apart) return {static_cast<uint32_t>(std::accumulate(sizes.begin(), sizes.end(), 0)), 1, 1};
  const auto [min, max] = std::ranges::minmax(sizes);
  return {static_cast<uint32_t>(sizes.size()), static_cast<uint32_t>(max), static_cast<uint32_t>(ceil_div(max, min))};
}

NodeShape node_shape(const topology::Plan& plan, bool apart) {
  std::vector<int> sizes;
  sizes.reserve(plan.domains.size());
  for (const topology::Domain& domain : plan.domains) sizes.push_back(static_cast<int>(domain.ranks.size()));
  return node_shape(sizes, apart);
}

std::vector<uint32_t> node_words(const topology::Plan& plan, bool apart) {
  const size_t ranks = plan.ranks.size(), nodes = apart ? ranks : plan.domains.size();
  std::vector<uint32_t> words(2 * ranks), members;
  for (size_t node = 0; node < nodes; ++node) {
    words.push_back(static_cast<uint32_t>(members.size()));
    const std::vector<int> of_node = apart ? std::vector<int>{static_cast<int>(node)} : plan.domains[node].ranks;
    for (size_t i = 0; i < of_node.size(); ++i) {
      words[static_cast<size_t>(of_node[i])] = static_cast<uint32_t>(node);
      words[ranks + static_cast<size_t>(of_node[i])] = static_cast<uint32_t>(i);
      members.push_back(static_cast<uint32_t>(of_node[i]));
    }
  }
  words.push_back(static_cast<uint32_t>(members.size()));
  words.insert(words.end(), members.begin(), members.end());
  return words;
}

uint64_t network_host_bytes(const GroupShape& shape, const DeviceTraits& traits, size_t proxy_threads) {
  return proxy::CommandRings::host_bytes(rings_of(shape, traits, proxy_threads)) + words_bytes(shape);
}

void check_reach(const ucclEpComm& comm) {
  const ExchangedTopology& topology = comm.topology;
  if (topology.plan.domains.size() == 1 && topology.plan.machines.size() == 1) return;
  for (int rank = 0; rank < comm.nranks(); ++rank) {
    if (topology.of(rank).domain == topology.of(comm.rank()).domain && !comm.bootstrap->same_node(rank)) {
      fail(ucclEpNotSupported,
           "ranks {} and {} are in one domain, but on two machines: set ranks_per_domain so that each domain is within "
           "one machine",
           comm.rank(), rank);
    }
  }
}

}  // namespace ucclep
