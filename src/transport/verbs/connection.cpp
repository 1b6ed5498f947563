// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/connection.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ucclep::transport::verbs {
namespace {

// More reads at once than one flush per peer are rare.
constexpr int max_reads = 16;

uint8_t bounded_reads(int max) {
  return static_cast<uint8_t>(std::clamp(max, 0, max_reads));
}

}  // namespace

Port Port::of(const Device& device, uint32_t psn) {
  Port port;
  port.link_layer = device.port_attributes.link_layer;
  port.mtu = static_cast<uint8_t>(device.port_attributes.active_mtu);
  port.reads = bounded_reads(device.attributes.max_qp_rd_atom);
  port.lid = device.port_attributes.lid;
  port.psn = psn;
  std::memcpy(port.gid, device.gid.raw, sizeof(port.gid));
  return port;
}

Connection::Connection(const Library& library, const Device& device, QueuePair pair, uint32_t depth)
    : library_(library), device_(device), pair_(std::move(pair)), begun_(std::bit_floor(depth)) {}

void Connection::modify(ibv_qp_attr& attributes, int mask, const char* what) {
  const int code = library_.modify_qp(pair_.get(), &attributes, mask | IBV_QP_STATE);
  if (code != 0) fail(ucclEpSystemError, "verbs {}: {}: {}", device_.name, what, std::strerror(code));
}

void Connection::accept() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_.port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  modify(attributes, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "cannot initialise a queue pair");
}

void Connection::join(const Port& own, const Port& peer, uint32_t peer_number, uint8_t timeout) {
  const bool ethernet = device_.ethernet();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  attributes.dest_qp_num = peer_number;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = own.reads;
  attributes.min_rnr_timer = 1;  // 10 us: a receiver that polls has new receives soon
  attributes.ah_attr.port_num = device_.port;
  attributes.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  if (ethernet) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.sl = device_.family->service_level;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof(peer.gid));
    attributes.ah_attr.grh.sgid_index = device_.gid_index;
    attributes.ah_attr.grh.hop_limit = 64;
    attributes.ah_attr.grh.traffic_class = device_.family->traffic_class;
  }
  modify(
      attributes,
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
      "cannot connect a queue pair to the address of the peer");
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = own.psn;
  attributes.timeout = timeout;
  attributes.retry_cnt = retries;
  attributes.rnr_retry = 7;  // for ever: how long a receiver may be slow is the endpoint's timeout
  attributes.max_rd_atomic = std::min(bounded_reads(device_.attributes.max_qp_init_rd_atom), peer.reads);
  modify(attributes, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
         "cannot set a queue pair to send");
}

void Connection::reset() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  modify(attributes, 0, "cannot reset a queue pair");
  stopped_ = false;
}

void Connection::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  library_.modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

uint32_t Connection::begin(uint32_t slot) noexcept {
  begun_[next_ % begun_.size()] = slot;
  return next_++;
}

uint32_t Connection::take_back() noexcept {
  return begun_[--next_ % begun_.size()];
}

}  // namespace ucclep::transport::verbs
