// SPDX-License-Identifier: Apache-2.0
#include "transport/ofi/endpoint.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "transport/error_message.hpp"

namespace ucclep::transport::ofi {
namespace {

// What address() gives; the provider's own bytes follow.
struct AddressHead {
  static constexpr uint64_t the_magic = 0x3169666f6c636375;  // "uccl" "ofi1"
  uint64_t magic = the_magic;
  char provider[40] = {};
  OfiKey doorstep{};
};

constexpr size_t batch = 64;  // completions that one read of the queue gives
// FI_OPT_MAX_RMA_SIZE and FI_OPT_INJECT_RMA_SIZE, which the headers have from 1.22 on.
constexpr int max_rma_size = 14, inject_rma_size = 18;

}  // namespace

OfiEndpoint::OfiEndpoint(const Library& library, Info info, const Config& config)
    : library_(library),
      info_(std::move(info)),
      duties_(*info_),
      table_(config),
      name_(info_->fabric_attr->prov_name),
      contexts_(table_.slots()),
      peers_(config.peers) {
  for (uint32_t slot = 0; slot < table_.slots(); ++slot) contexts_[slot].slot = slot;
  open(config);
  loss_.reserve(256);
}

void OfiEndpoint::check(int64_t code, const char* what) const {
  if (code < 0) fail(ucclEpSystemError, "ofi {}: {}: {}", name_, what, library_.words(code));
}

void OfiEndpoint::open(const Config& config) {
  const uint32_t receives = duties_.post_receives
                                ? std::min<uint32_t>(config.receives, static_cast<uint32_t>(info_->rx_attr->size))
                                : config.receives;
  fid_fabric* fabric = nullptr;
  check(library_.fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  domain_.reset(domain);
  fi_av_attr av_attributes{};
  av_attributes.type = FI_AV_TABLE;
  av_attributes.count = config.peers;
  fid_av* addresses = nullptr;
  check(fi_av_open(domain, &av_attributes, &addresses, nullptr), "fi_av_open");
  addresses_.reset(addresses);
  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_DATA;
  cq_attributes.size = config.sends + receives;
  fid_cq* queue = nullptr;
  check(fi_cq_open(domain, &cq_attributes, &queue, nullptr), "fi_cq_open");
  queue_.reset(queue);
  fid_ep* endpoint = nullptr;
  check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
  endpoint_.reset(endpoint);
  check(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), "cannot bind the completion queue");
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "cannot bind the address vector");
  if (duties_.device_memory) duties_.device_memory = reaches_device_memory();
  check(fi_enable(endpoint), "fi_enable");

  regions_.emplace(library_, duties_, *domain, *endpoint, token_);
  Key key;
  doorstep_region_ = regions_->add({UCCLEP_MEMORY_HOST, 0, doorstep_, sizeof(doorstep_), -1, 0}, &key);
  std::memcpy(&doorstep_key_, key.bytes, sizeof(doorstep_key_));
  if (duties_.post_receives) receives_.resize(receives);
  for (Context& context : receives_) post_receive(context);

  const size_t inlined = limit(inject_rma_size, std::min<size_t>(info_->tx_attr->inject_size, 65536));
  traits_ = {.memory = UCCLEP_MEMORY_HOST,
             .ordered = 0,
             .imm_bits = 32,
             .posted_receives = duties_.post_receives,
             .reports_source = 0,
             .reports_length = 0,
             .max_inline = static_cast<uint32_t>(inlined),
             .sends = config.sends,
             .receives = receives,
             .max_message = limit(max_rma_size, info_->ep_attr->max_msg_size),
             .max_bytes = 0};
  if (duties_.device_memory) traits_.memory |= UCCLEP_MEMORY_CUDA | UCCLEP_MEMORY_HIP;
}

// Else a provider may copy what its NIC does not reach by itself, at times that no flush knows of. EFA promises it when
// it is asked to; its fabric efa-direct always does, and only says so.
bool OfiEndpoint::reaches_device_memory() const {
  int mode = FI_HMEM_P2P_REQUIRED;
  size_t bytes = sizeof(mode);
  if (fi_setopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, bytes) == 0) return true;
  mode = FI_HMEM_P2P_ENABLED;
  return fi_getopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, &bytes) == 0 &&
         mode == FI_HMEM_P2P_REQUIRED;
}

// Of writes and reads, by what newer libfabric says of these alone: EFA injects messages, but no writes.
size_t OfiEndpoint::limit(int option, size_t max) const {
  size_t value = max, bytes = sizeof(value);
  return fi_getopt(&endpoint_->fid, FI_OPT_ENDPOINT, option, &value, &bytes) == 0 ? std::min(value, max) : max;
}

Address OfiEndpoint::address() const {
  std::array<std::byte, 512> name;
  size_t length = name.size();
  check(fi_getname(&endpoint_->fid, name.data(), &length), "fi_getname");
  AddressHead head;
  name_.copy(head.provider, sizeof(head.provider) - 1);
  head.doorstep = doorstep_key_;
  Address address(sizeof(head) + length);
  std::memcpy(address.data(), &head, sizeof(head));
  std::memcpy(address.data() + sizeof(head), name.data(), length);
  return address;
}

void OfiEndpoint::connect(uint32_t number, uint32_t, std::span<const std::byte> address) {
  if (number >= peers_.size())
    fail(ucclEpInvalidArgument, "ofi: peer {} is out of range: the endpoint has {} peers", number, peers_.size());
  if (peers_[number]) fail(ucclEpInvalidUsage, "ofi: peer {} is connected already", number);
  AddressHead head;
  head.magic = 0;
  if (address.size() > sizeof(head)) std::memcpy(&head, address.data(), sizeof(head));
  head.provider[sizeof(head.provider) - 1] = '\0';
  if (head.magic != AddressHead::the_magic) {
    fail(ucclEpInvalidArgument, "ofi: invalid peer address ({} bytes)", address.size());
  }
  if (name_ != head.provider) {
    fail(ucclEpInvalidArgument,
         "ofi: peer {} uses the provider {}, but this endpoint uses {}: name the same provider on all ranks", number,
         head.provider, name_);
  }
  Peer peer{FI_ADDR_NOTAVAIL, head.doorstep};
  const int inserted = fi_av_insert(addresses_.get(), address.data() + sizeof(head), 1, &peer.address, 0, nullptr);
  if (inserted != 1)
    fail(ucclEpInvalidArgument, "ofi {}: the provider does not accept the address of peer {}", name_, number);
  peers_[number] = peer;
}

void OfiEndpoint::disconnect(uint32_t number) {
  if (number >= peers_.size() || !peers_[number]) return;
  fi_av_remove(addresses_.get(), &peers_[number]->address, 1, 0);
  peers_[number].reset();
  table_.forget(number);
  while (contexts_.size() < table_.slots()) {
    contexts_.emplace_back();
    contexts_.back().slot = static_cast<uint32_t>(contexts_.size() - 1);
  }
  remote_.remove_all_of(number);
}

uint32_t OfiEndpoint::import_region(uint32_t number, const Key& key) {
  if (number >= peers_.size() || !peers_[number]) {
    fail(ucclEpInvalidUsage, "ofi: cannot import a region of peer {}, which is not connected: connect the peer first",
         number);
  }
  OfiKey own;
  std::memcpy(&own, key.bytes, sizeof(own));
  if (own.endpoint != peers_[number]->doorstep.endpoint) {
    fail(ucclEpInvalidArgument, "ofi: cannot import a key that peer {} did not make", number);
  }
  return remote_.add(number, own);
}

uint32_t OfiEndpoint::post(uint32_t peer, std::span<const Operation> operations) noexcept {
  uint32_t taken = 0;
  while (taken < operations.size() && table_.take(peer, operations[taken])) ++taken;
  advance(peer);
  return taken;
}

uint32_t OfiEndpoint::poll(std::span<Completion> out) noexcept {
  table_.watch();
  // In turns, so that neither keeps the other from a caller with little room.
  reports_first_ = !reports_first_;
  uint32_t count = reports_first_ ? table_.report(out) : 0;
  count += read_queue(out.subspan(count));
  for (uint32_t peer = 0; peer < peers_.size() && table_.anything_waits(); ++peer) advance(peer);
  return count + table_.report(out.subspan(count));
}

// Hands the provider what waits for the peer, until it wants no more.
void OfiEndpoint::advance(uint32_t number) noexcept {
  if (!peers_[number] || !loss_.empty()) return;
  for (uint32_t slot = table_.next(number); slot != SendTable::none; slot = table_.next(number)) {
    Target target{};
    if (!aim(number, table_[slot], &target)) return;
    // A chain rings its doorbell at its end; before that when the provider's queue is full, or half full of what was
    // not rung for: should the provider take less than it says, something is still under way and makes room.
    const size_t room = info_->tx_attr->size;
    const bool more = table_.followed(slot) && begun_ + 1 != room && unrung_ + 1 < room / 2;
    const int64_t code = start(slot, target, more);
    if (code == -FI_EAGAIN) return;
    if (code != 0)
      return lose(number, ucclEpRemoteError, "an operation cannot be posted",
                  library_.strerror(static_cast<int>(-code)));
    unrung_ = more ? unrung_ + 1 : 0;
    table_.begin(slot);
    ++begun_;
  }
}

// False: the operation is impossible, and the connection broke.
bool OfiEndpoint::aim(uint32_t number, const Operation& operation, Target* target) noexcept {
  const Regions::Region* local = regions_->find(operation.bytes == 0 ? doorstep_region_ : operation.local_region);
  if (local == nullptr || (operation.bytes > 0 && !local->holds(operation.local_offset, operation.bytes))) {
    lose(number, ucclEpInvalidArgument, "an operation names bytes that lie in no region of this endpoint", "");
    return false;
  }
  const OfiKey* key = &peers_[number]->doorstep;
  uint64_t offset = 0;
  if (operation.bytes > 0) {
    key = remote_.find(operation.remote_region, number);
    if (key == nullptr) {
      lose(number, ucclEpInvalidArgument, "an operation names a region that was not imported from the peer", "");
      return false;
    }
    offset = operation.remote_offset;
    if (offset > key->bytes || operation.bytes > key->bytes - offset) {
      lose(number, ucclEpInvalidArgument, "an operation goes beyond its region", "");
      return false;
    }
    if (operation.bytes > traits_.max_message) {
      lose(number, ucclEpInvalidArgument, "an operation has more bytes than the provider accepts in one message", "");
      return false;
    }
  }
  *target = {local->data + (operation.bytes > 0 ? operation.local_offset : 0), fi_mr_desc(local->mr.get()),
             key->base + offset, key->key};
  return true;
}

int64_t OfiEndpoint::start(uint32_t slot, const Target& target, bool more) noexcept {
  const Operation& operation = table_[slot];
  const iovec local{target.local, operation.bytes};
  const fi_rma_iov remote{target.remote, operation.bytes, target.key};
  void* descriptor = target.descriptor;
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peers_[table_.peer_of(slot)]->address;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &contexts_[slot];
  message.data = operation.imm;
  uint64_t flags = FI_COMPLETION | (more ? FI_MORE : 0);
  if (operation.kind == UCCLEP_OPERATION_READ) return fi_readmsg(endpoint_.get(), &message, flags);
  if ((operation.flags & UCCLEP_OPERATION_IMM) != 0) flags |= FI_REMOTE_CQ_DATA;
  if ((operation.flags & UCCLEP_OPERATION_INLINE) != 0 && operation.bytes <= traits_.max_inline) flags |= FI_INJECT;
  return fi_writemsg(endpoint_.get(), &message, flags);
}

void OfiEndpoint::post_receive(Context& context) noexcept {
  // Nothing is written to it, but a provider that wants descriptors wants one here, too.
  void* descriptor = fi_mr_desc(regions_->find(doorstep_region_)->mr.get());
  const ssize_t code = fi_recv(endpoint_.get(), doorstep_, 0, descriptor, FI_ADDR_UNSPEC, &context);
  if (code != 0) lose_endpoint(library_.strerror(static_cast<int>(-code)));
}

uint32_t OfiEndpoint::read_queue(std::span<Completion> out) noexcept {
  std::array<fi_cq_data_entry, batch> entries;
  uint32_t count = 0;
  if (out.empty()) return 0;
  const ssize_t got = fi_cq_read(queue_.get(), entries.data(), std::min(out.size(), entries.size()));
  if (got == -FI_EAVAIL) take_error();
  if (got < 0 && got != -FI_EAVAIL && got != -FI_EAGAIN) lose_endpoint(library_.strerror(static_cast<int>(-got)));
  for (ssize_t i = 0; i < got; ++i) {
    const fi_cq_data_entry& entry = entries[static_cast<size_t>(i)];
    auto* context = static_cast<Context*>(entry.op_context);
    // Some providers set FI_REMOTE_CQ_DATA at the sender, too.
    if ((entry.flags & (FI_REMOTE_WRITE | FI_RECV)) == 0) {
      --begun_;
      table_.returned(context->slot);
      continue;
    }
    if (duties_.post_receives && context != nullptr) post_receive(*context);
    out[count++] = {.kind = UCCLEP_COMPLETION_ARRIVAL,
                    .peer = UCCLEP_UNKNOWN_PEER,
                    .bytes = UCCLEP_UNKNOWN_LENGTH,
                    .cookie = 0,
                    .imm = static_cast<uint32_t>(entry.data),
                    .operation = UCCLEP_OPERATION_NONE,
                    .code = ucclEpSuccess,
                    .words = nullptr};
  }
  if (!loss_.empty() && !loss_reported_ && count < out.size()) {
    out[count++] = {.kind = UCCLEP_COMPLETION_ERROR,
                    .peer = UCCLEP_UNKNOWN_PEER,
                    .bytes = 0,
                    .cookie = 0,
                    .imm = 0,
                    .operation = UCCLEP_OPERATION_NONE,
                    .code = ucclEpRemoteError,
                    .words = loss_.c_str()};
    loss_reported_ = true;
  }
  return count;
}

void OfiEndpoint::take_error() noexcept {
  fi_cq_err_entry error{};
  if (fi_cq_readerr(queue_.get(), &error, 0) <= 0) return;
  std::array<char, 96> room{};
  const char* more = fi_cq_strerror(queue_.get(), error.prov_errno, error.err_data, room.data(), room.size());
  auto* context = static_cast<Context*>(error.op_context);
  const ErrorMessage words("{} ({})", library_.strerror(error.err), more != nullptr ? more : "");
  if (context == nullptr || context->slot == SendTable::none) return lose_endpoint(words.c_str());
  const uint32_t slot = context->slot;
  const char* what = table_[slot].kind == UCCLEP_OPERATION_READ ? "a read failed" : "a write failed";
  lose(table_.peer_of(slot), error.err == FI_ETIMEDOUT ? ucclEpTimeout : ucclEpRemoteError, what, words.c_str());
  --begun_;
  table_.returned(slot);
}

void OfiEndpoint::lose(uint32_t number, ucclEpResult_t code, const char* what, const char* words) noexcept {
  const ErrorMessage message("ofi {}: peer {}: {}{}{}", name_, number, what, *words != '\0' ? ": " : "", words);
  table_.break_connection(number, code, message.view());
}

void OfiEndpoint::lose_endpoint(const char* words) noexcept {
  if (!loss_.empty()) return;
  loss_ = "ofi: the endpoint is lost: ";
  loss_.append(words, std::min<size_t>(std::strlen(words), 200));
  for (uint32_t peer = 0; peer < peers_.size(); ++peer) table_.break_connection(peer, ucclEpRemoteError, loss_);
}

}  // namespace ucclep::transport::ofi
