// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/endpoint.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "transport/error_message.hpp"

namespace ucclep::transport::verbs {
namespace {

// What address() gives; the numbers of all queue pairs follow, by the number that the endpoint has for the peer.
struct AddressHead {
  static constexpr uint64_t the_magic = 0x316272766c636375;  // "uccl" "vrb1"
  uint64_t magic = the_magic;
  Token endpoint;
  Port port;
  uint32_t peers = 0;
};

constexpr uint32_t signalled_every = 16;  // in a chain, beside its last: room comes back before its end

// A sequence number has 24 bits. Both directions of a connection begin with that of their sender.
uint32_t first_packet(const Token& token) {
  return uint32_t{token.bytes[0]} | uint32_t{token.bytes[1]} << 8 | uint32_t{token.bytes[2]} << 16;
}

bool is_local(ibv_wc_status status) {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_LOC_PROT_ERR ||
         status == IBV_WC_LOC_ACCESS_ERR;
}

Config granted(const Config& config, const Grant& grant) {
  Config fitting = config;
  fitting.sends = grant.sends;
  return fitting;
}

// A table refuses what is 0, and says it before anything is divided by it.
const Config& checked(const Config& config) {
  [[maybe_unused]] const SendTable refuses{config};
  return config;
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(const Library& library, Device device, const Config& config)
    : library_(library),
      device_(std::move(device)),
      grant_(grant(device_, checked(config))),
      port_(Port::of(device_, first_packet(token_))),
      timeout_(timeout_within(*device_.family, config.timeout_ms)),
      table_(granted(config, grant_)),
      peers_(config.peers),
      max_begun_(device_.family->max_messages > 0 ? std::min(device_.family->max_messages, grant_.sends)
                                                  : grant_.sends) {
  for (uint32_t i = 0; i < batch; ++i) {
    receives_[i] = {};
    receives_[i].wr_id = is_receive;
    receives_[i].next = i + 1 < batch ? &receives_[i + 1] : nullptr;
  }
  open(config);
}

void VerbsEndpoint::open(const Config& config) {
  const auto check = [&](const auto& object, const char* what) {
    if (object == nullptr) fail(ucclEpSystemError, "verbs {}: {}: {}", device_.name, what, errno_text(errno));
  };
  domain_ = Domain(library_.alloc_pd(device_.context.get()), {&library_});
  check(domain_, "cannot allocate a protection domain");
  queue_ = CompletionQueue(
      library_.create_cq(device_.context.get(), static_cast<int>(grant_.completions), nullptr, nullptr, 0),
      {&library_});
  check(queue_, "cannot create a completion queue");
  if (grant_.receives_a_peer == 0) {
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = grant_.receives;
    attributes.attr.max_sge = 1;
    shared_ = SharedReceives(library_.create_srq(domain_.get(), &attributes), {&library_});
    check(shared_, "cannot create a shared receive queue");
  }
  const uint32_t kinds = memory_kinds(library_, *device_.family);
  regions_.emplace(library_, *domain_, kinds, device_.family->relaxed_ordering, token_);
  traits_ = {.memory = kinds,
             .ordered = !device_.family->relaxed_ordering,
             .imm_bits = 32,
             .posted_receives = 1,
             .reports_source = 1,
             .reports_length = 1,
             .max_inline = 65536,
             .sends = grant_.sends,
             .receives = grant_.receives,
             .max_message = device_.port_attributes.max_msg_sz,
             .max_bytes = device_.family->max_bytes};
  connections_.reserve(config.peers);
  for (uint32_t peer = 0; peer < config.peers; ++peer) open_connection(peer);
  std::sort(by_number_.begin(), by_number_.end());
  if (shared_ != nullptr) post_receives(0, grant_.receives);
}

void VerbsEndpoint::open_connection(uint32_t peer) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue_.get();
  attributes.srq = shared_.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {grant_.depth, grant_.receives_a_peer, 1, 1, device_.family->inline_bytes};
  QueuePair pair(library_.create_qp(domain_.get(), &attributes), {&library_});
  if (pair == nullptr) {
    fail(ucclEpSystemError, "verbs {}: cannot create a queue pair for peer {}: {}", device_.name, peer,
         errno_text(errno));
  }
  traits_.max_inline = std::min(traits_.max_inline, attributes.cap.max_inline_data);
  by_number_.emplace_back(pair->qp_num, peer);
  Connection& connection = connections_.emplace_back(library_, device_, std::move(pair), grant_.depth);
  connection.accept();
  post_receives(peer, grant_.receives_a_peer);
}

Address VerbsEndpoint::address() const {
  AddressHead head;
  head.endpoint = token_;
  head.port = port_;
  head.peers = static_cast<uint32_t>(connections_.size());
  Address address(sizeof(head) + connections_.size() * sizeof(uint32_t));
  std::memcpy(address.data(), &head, sizeof(head));
  for (size_t peer = 0; peer < connections_.size(); ++peer) {
    const uint32_t number = connections_[peer].number();
    std::memcpy(address.data() + sizeof(head) + peer * sizeof(number), &number, sizeof(number));
  }
  return address;
}

void VerbsEndpoint::connect(uint32_t number, uint32_t self, std::span<const std::byte> address) {
  if (number >= peers_.size())
    fail(ucclEpInvalidArgument, "verbs: peer {} is out of range: the endpoint has {} peers", number, peers_.size());
  if (peers_[number]) fail(ucclEpInvalidUsage, "verbs: peer {} is connected already", number);
  AddressHead head;
  head.magic = 0;
  if (address.size() >= sizeof(head)) std::memcpy(&head, address.data(), sizeof(head));
  if (head.magic != AddressHead::the_magic || head.port.mtu < IBV_MTU_256 || head.port.mtu > IBV_MTU_4096 ||
      address.size() != sizeof(head) + head.peers * sizeof(uint32_t)) {
    fail(ucclEpInvalidArgument, "verbs: invalid peer address ({} bytes)", address.size());
  }
  if (self >= head.peers) {
    fail(ucclEpInvalidArgument, "verbs: peer {} does not list this endpoint ({}) among its {} peers", number, self,
         head.peers);
  }
  if (head.port.link_layer != port_.link_layer) {
    fail(ucclEpInvalidArgument,
         "verbs: this endpoint and peer {} cannot connect: one is on InfiniBand, the other on Ethernet", number);
  }
  uint32_t pair = 0;
  std::memcpy(&pair, address.data() + sizeof(head) + self * sizeof(pair), sizeof(pair));
  try {
    connections_[number].join(port_, head.port, pair, timeout_);
  } catch (const Error& error) {
    reopen(number);
    fail(error.code(), "{} (peer {})", error.what(), number);
  }
  peers_[number] = head.endpoint;
}

void VerbsEndpoint::disconnect(uint32_t number) {
  if (number >= peers_.size()) return;
  if (peers_[number]) {
    Connection& connection = connections_[number];
    connection.stop();
    // Before the reset, which some drivers let forget completions, and with them receives that were used up.
    drain(number);
    while (!connection.idle()) end_through(number, connection.first());
    peers_[number].reset();
    reopen(number);
  }
  table_.forget(number);
  remote_.remove_all_of(number);
}

void VerbsEndpoint::reopen(uint32_t peer) {
  connections_[peer].reset();
  connections_[peer].accept();
  post_receives(peer, grant_.receives_a_peer);
}

// What has arrived from others is kept for the next poll.
void VerbsEndpoint::drain(uint32_t gone) {
  std::array<Completion, batch> arrivals;
  uint32_t given = 0;
  while (read_queue(arrivals, &given) > 0) {
    for (const Completion& one : std::span(arrivals).first(given)) {
      if (one.peer != gone) early_.push_back(one);
    }
    given = 0;
  }
}

uint32_t VerbsEndpoint::import_region(uint32_t number, const Key& key) {
  if (number >= peers_.size() || !peers_[number]) {
    fail(ucclEpInvalidUsage, "verbs: cannot import a region of peer {}, which is not connected: connect the peer first",
         number);
  }
  VerbsKey own;
  std::memcpy(&own, key.bytes, sizeof(own));
  if (own.endpoint != *peers_[number])
    fail(ucclEpInvalidArgument, "verbs: cannot import a key that peer {} did not make", number);
  return remote_.add(number, own);
}

uint32_t VerbsEndpoint::post(uint32_t peer, std::span<const Operation> operations) noexcept {
  uint32_t taken = 0;
  while (taken < operations.size() && table_.take(peer, operations[taken])) ++taken;
  advance(peer);
  return taken;
}

uint32_t VerbsEndpoint::poll(std::span<Completion> out) noexcept {
  if (table_.watch()) {
    for (uint32_t peer = 0; peer < peers_.size(); ++peer) {
      if (peers_[peer] && table_.broken(peer)) connections_[peer].stop();
    }
  }
  uint32_t count = 0;
  while (early_told_ < early_.size() && count < out.size()) out[count++] = early_[early_told_++];
  if (early_told_ == early_.size()) {
    early_.clear();
    early_told_ = 0;
  }
  // In turns, so that neither keeps the other from a caller with little room.
  reports_first_ = !reports_first_;
  if (reports_first_) count += table_.report(out.subspan(count));
  read_queue(out.subspan(count), &count);
  // Each peer is the first in turn to get what is left of a family's limit.
  ++turn_;
  const auto peers = static_cast<uint32_t>(peers_.size());
  for (uint32_t i = 0; i < peers && table_.anything_waits(); ++i) advance((turn_ + i) % peers);
  return count + table_.report(out.subspan(count));
}

// Hands the NIC what waits for the peer, as far as there is room.
void VerbsEndpoint::advance(uint32_t number) noexcept {
  if (!peers_[number]) return;
  const Connection& connection = connections_[number];
  do {
    chain_.count = 0;
    chain_.bytes = 0;
    const char* wrong = nullptr;
    for (uint32_t slot = table_.next(number); slot != SendTable::none && wrong == nullptr; slot = table_.next(number)) {
      if (chain_is_full() || connection.room() == 0 || begun_ == max_begun_) break;
      wrong = add(number, slot);
    }
    if (chain_.count > 0) ring(number);
    if (wrong != nullptr) lose(number, ucclEpInvalidArgument, wrong, "");
  } while (chain_is_full());
}

bool VerbsEndpoint::chain_is_full() const noexcept {
  const uint32_t max = device_.family->chain_bytes;
  return chain_.count == batch || (max > 0 && chain_.bytes >= max);
}

// To the chain. What is wrong with the operation, or null.
const char* VerbsEndpoint::add(uint32_t number, uint32_t slot) noexcept {
  const Operation& operation = table_[slot];
  const bool reads = operation.kind == UCCLEP_OPERATION_READ;
  ibv_send_wr& request = chain_.requests[chain_.count];
  ibv_sge& piece = chain_.pieces[chain_.count];
  request = {};
  if (operation.bytes > 0) {
    const Regions::Region* local = regions_->find(operation.local_region);
    if (local == nullptr || !local->holds(operation.local_offset, operation.bytes)) {
      return "an operation names bytes that lie in no region of this endpoint";
    }
    const VerbsKey* key = remote_.find(operation.remote_region, number);
    if (key == nullptr) return "an operation names a region that was not imported from the peer";
    if (operation.remote_offset > key->bytes || operation.bytes > key->bytes - operation.remote_offset) {
      return "an operation goes beyond its region";
    }
    if (operation.bytes > traits_.max_message) return "an operation has more bytes than the NIC accepts in one message";
    piece = {local->base + operation.local_offset, static_cast<uint32_t>(operation.bytes), local->registered->lkey};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = key->base + operation.remote_offset;
    request.wr.rdma.rkey = key->rkey;
  }
  const bool announced = (operation.flags & UCCLEP_OPERATION_IMM) != 0;
  request.opcode = reads ? IBV_WR_RDMA_READ : announced ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(operation.imm);
  if (!reads && (operation.flags & UCCLEP_OPERATION_INLINE) != 0 && operation.bytes <= traits_.max_inline) {
    request.send_flags = IBV_SEND_INLINE;
  }
  const uint32_t sequence = connections_[number].begin(slot);
  if (sequence % signalled_every == 0) request.send_flags |= IBV_SEND_SIGNALED;
  request.wr_id = uint64_t{number} << 32 | sequence;
  table_.begin(slot);
  ++begun_;
  ++chain_.count;
  chain_.bytes += operation.bytes;
  return nullptr;
}

// The doorbell. What the NIC refuses breaks the connection: there was room for it.
void VerbsEndpoint::ring(uint32_t number) noexcept {
  for (uint32_t i = 0; i < chain_.count; ++i) {
    chain_.requests[i].next = i + 1 < chain_.count ? &chain_.requests[i + 1] : nullptr;
  }
  chain_.requests[chain_.count - 1].send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const int code = ibv_post_send(connections_[number].pair(), chain_.requests.data(), &refused);
  if (code == 0) return;
  lose(number, ucclEpRemoteError, "an operation cannot be posted", std::strerror(code));
  const auto first = refused != nullptr ? refused - chain_.requests.data() : 0;
  for (auto i = static_cast<ptrdiff_t>(chain_.count); i > first; --i) {
    table_.returned(connections_[number].take_back());
    --begun_;
  }
}

void VerbsEndpoint::post_receives(uint32_t peer, uint32_t count) noexcept {
  while (count > 0) {
    const uint32_t now = std::min(count, batch);
    ibv_recv_wr* const after = std::exchange(receives_[now - 1].next, nullptr);
    ibv_recv_wr* refused = nullptr;
    const int code = shared_ != nullptr ? ibv_post_srq_recv(shared_.get(), receives_.data(), &refused)
                                        : ibv_post_recv(connections_[peer].pair(), receives_.data(), &refused);
    receives_[now - 1].next = after;
    if (code != 0) {
      return shared_ != nullptr
                 ? lose_all("the NIC does not accept receives")
                 : lose(peer, ucclEpSystemError, "the NIC does not accept receives", std::strerror(code));
    }
    count -= now;
  }
}

// Adds arrivals to out, behind *given of them; returns how many completions of the NIC it took.
uint32_t VerbsEndpoint::read_queue(std::span<Completion> out, uint32_t* given) noexcept {
  std::array<ibv_wc, batch> done;
  const auto room = static_cast<int>(std::min<size_t>(out.size(), batch));
  const int got = room > 0 ? ibv_poll_cq(queue_.get(), room, done.data()) : 0;
  if (got < 0) lose_all("the completion queue is lost");
  uint32_t count = 0, used_up = 0;
  for (const ibv_wc& one : std::span(done).first(static_cast<size_t>(std::max(got, 0)))) {
    if ((one.wr_id & is_receive) == 0) {
      take_send(one);
      continue;
    }
    const uint32_t peer = peer_of(one.qp_num);
    if (one.status == IBV_WC_SUCCESS) {
      out[count++] = {.kind = UCCLEP_COMPLETION_ARRIVAL,
                      .peer = peer,
                      .bytes = one.byte_len,
                      .cookie = 0,
                      .imm = ntohl(one.imm_data),
                      .operation = UCCLEP_OPERATION_NONE,
                      .code = ucclEpSuccess,
                      .words = nullptr};
    } else if (one.status != IBV_WC_WR_FLUSH_ERR) {
      lose(peer, ucclEpRemoteError, "an arrival failed", library_.status_words(one.status));
    }
    if (shared_ != nullptr) {
      ++used_up;
    } else if (one.status == IBV_WC_SUCCESS) {
      post_receives(peer, 1);
    }
  }
  post_receives(0, used_up);
  *given += count;
  return static_cast<uint32_t>(std::max(got, 0));
}

void VerbsEndpoint::take_send(const ibv_wc& done) noexcept {
  const auto number = static_cast<uint32_t>(done.wr_id >> 32), sequence = static_cast<uint32_t>(done.wr_id);
  Connection& connection = connections_[number];
  if (!connection.has(sequence)) return;  // it was given up with its connection
  if (done.status != IBV_WC_SUCCESS) {
    // What went before it has ended well, or has had a completion with an error of its own.
    if (sequence != connection.first()) end_through(number, sequence - 1);
    lose(number, is_local(done.status) ? ucclEpSystemError : ucclEpRemoteError,
         table_[connection.oldest()].kind == UCCLEP_OPERATION_READ ? "a read failed" : "a write failed",
         library_.status_words(done.status));
  }
  end_through(number, sequence);
}

void VerbsEndpoint::end_through(uint32_t number, uint32_t sequence) noexcept {
  Connection& connection = connections_[number];
  while (connection.has(sequence)) {
    table_.returned(connection.end_first());
    --begun_;
  }
}

uint32_t VerbsEndpoint::peer_of(uint32_t pair) const noexcept {
  return std::lower_bound(by_number_.begin(), by_number_.end(), std::pair(pair, uint32_t{0}))->second;
}

void VerbsEndpoint::lose(uint32_t number, ucclEpResult_t code, const char* what, const char* words) noexcept {
  const ErrorMessage message("verbs {}: peer {}: {}{}{}", device_.name, number, what, *words != '\0' ? ": " : "",
                             words);
  table_.break_connection(number, code, message.view());
  connections_[number].stop();
}

void VerbsEndpoint::lose_all(const char* what) noexcept {
  for (uint32_t peer = 0; peer < connections_.size(); ++peer) lose(peer, ucclEpSystemError, what, "");
}

}  // namespace ucclep::transport::verbs
