// SPDX-License-Identifier: Apache-2.0
#include "doubles/verbs/fabric.hpp"

#include "doubles/gpu_memory.hpp"

namespace ucclep::test {
namespace {

uint64_t bytes_of(const Pair::Request& request) {
  return request.wr.num_sge > 0 ? request.piece.length : 0;
}

void push(ibv_cq* queue, const ibv_wc& wc, uint64_t request) {
  auto& to = static_cast<Queue&>(*queue);
  if (!to.entries.push({wc, request})) to.overrun = true;
}

Ring<uint64_t>& receives_of(Pair& pair) {
  return pair.srq != nullptr ? static_cast<Receives&>(*pair.srq).ids : pair.ids;
}

}  // namespace

Fabric& Fabric::get() {
  static auto* fabric = new Fabric;  // outlives whatever its users close late
  return *fabric;
}

char* Fabric::memory(uint32_t key, uint64_t address, uint64_t bytes) {
  const auto found = regions.find(key);
  if (found == regions.end()) return nullptr;
  const Registered& region = *found->second;
  const bool inside =
      address >= region.iova && bytes <= region.length && address - region.iova <= region.length - bytes;
  return inside ? static_cast<char*>(region.addr) + (address - region.iova) : nullptr;
}

void Fabric::complete(Pair& pair, const Pair::Request& request, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = request.wr.wr_id;
  wc.status = status;
  wc.opcode = request.wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
  wc.qp_num = pair.qp_num;
  if (status != IBV_WC_SUCCESS || (request.wr.send_flags & IBV_SEND_SIGNALED) != 0) {
    push(pair.send_cq, wc, request.number);
  }
}

void Fabric::flush(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (; !pair.sends.empty(); pair.sends.pop()) complete(pair, pair.sends.front(), IBV_WC_WR_FLUSH_ERR);
  for (; !pair.ids.empty(); pair.ids.pop()) {
    ibv_wc wc{};
    wc.wr_id = pair.ids.front();
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.qp_num = pair.qp_num;
    push(pair.recv_cq, wc, 0);
  }
}

void Fabric::fail(Pair& pair, const Pair::Request& request, ibv_wc_status status) {
  complete(pair, request, status);
  pair.state = IBV_QPS_ERR;
}

bool Fabric::give_up(Pair& pair) {
  const auto now = std::chrono::steady_clock::now();
  if (pair.silent_since.time_since_epoch().count() == 0) pair.silent_since = now;
  if (pair.attributes.retry_cnt == 7 && static_cast<Nic*>(pair.context)->limits->retries_for_ever) return false;
  const auto once = std::chrono::nanoseconds(4096ull << pair.attributes.timeout);
  return now - pair.silent_since >= once * (pair.attributes.retry_cnt + 1);
}

bool Fabric::carry_out(Pair& pair, const Pair::Request& request) {
  const auto found = pairs.find(pair.attributes.dest_qp_num);
  Pair* peer = found != pairs.end() ? found->second : nullptr;
  const bool answers = peer != nullptr && (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS) &&
                       peer->attributes.dest_qp_num == pair.qp_num && peer->attributes.rq_psn == pair.attributes.sq_psn;
  if (!answers) {
    if (!give_up(pair)) return false;
    fail(pair, request, IBV_WC_RETRY_EXC_ERR);
    return true;
  }
  pair.silent_since = {};
  const uint64_t bytes = bytes_of(request);
  const bool announced = request.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (announced && receives_of(*peer).empty()) return false;
  if (bytes > 0) {
    const bool inlined = (request.wr.send_flags & IBV_SEND_INLINE) != 0;
    char* local = inlined ? const_cast<char*>(request.inline_bytes.data())
                          : memory(request.piece.lkey, request.piece.addr, bytes);
    char* remote = memory(request.wr.wr.rdma.rkey, request.wr.wr.rdma.remote_addr, bytes);
    if (local == nullptr) {
      fail(pair, request, IBV_WC_LOC_PROT_ERR);
      return true;
    }
    if (remote == nullptr) {
      fail(pair, request, IBV_WC_REM_ACCESS_ERR);
      flush(*peer);
      return true;
    }
    const bool reads = request.wr.opcode == IBV_WR_RDMA_READ;
    doubles::nic_write(reads ? local : remote, reads ? remote : local, bytes);
  }
  if (announced) {
    ibv_wc wc{};
    wc.wr_id = receives_of(*peer).front();
    receives_of(*peer).pop();
    wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    wc.byte_len = static_cast<uint32_t>(bytes);
    wc.imm_data = request.wr.imm_data;
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.qp_num = peer->qp_num;
    push(peer->recv_cq, wc, 0);
  }
  complete(pair, request, IBV_WC_SUCCESS);
  return true;
}

void Fabric::run(Pair& pair) {
  while (pair.state == IBV_QPS_RTS && !pair.sends.empty()) {
    if (!carry_out(pair, pair.sends.front())) return;
    if (!pair.sends.empty()) pair.sends.pop();
  }
  if (pair.state == IBV_QPS_ERR) flush(pair);
}

void Fabric::progress(ibv_context* nic) {
  for (const auto& [number, pair] : pairs) {
    if (pair->context == nic) run(*pair);
  }
}

}  // namespace ucclep::test
