// SPDX-License-Identifier: Apache-2.0
// The functions of libibverbs that the library uses.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "doubles/dma_buf.hpp"
#include "doubles/gpu_memory.hpp"
#include "doubles/verbs/fabric.hpp"

namespace ucclep::test {
namespace {

constexpr uint32_t big = 1 << 30;
constexpr NicLimits families[] = {
    {"mlx5", 0x02c9, true, 32768, 4194303, 8192, 32767, 828, big, 0, false, true, true},
    {"infiniband", 0x02c9, false, 32768, 4194303, 8192, 32767, 828, big, 0, false, true, true},
    {"bnxt_re", 0x14e4, true, 65407, 8388607, 4096, 65535, 96, big, 256, false, true, true},
    {"ionic", 0x1dd8, true, 65535, 65535, 0, 0, 32, big, 256, false, true, true},
    {"irdma", 0x8086, true, 4063, 1048574, 0, 0, 48, 2147483647, 0, false, true, false},
    {"erdma", 0x1ded, true, 8192, 1048576, 0, 0, 96, big, 0, false, false, false},
    {"rxe", 0xffffff, true, 16384, 32767, 65408, 32768, 400, 1 << 23, 0, true, false, false},
    {"stranger", 0x1234, true, 64, 200, 16, 40, 0, 1 << 20, 0, false, true, true},
};

const NicLimits* played() {
  const char* name = std::getenv("UCCLEP_DOUBLE_NIC");
  const auto* found = std::find_if(std::begin(families), std::end(families), [&](const NicLimits& one) {
    return name != nullptr && std::strcmp(one.name, name) == 0;
  });
  return found != std::end(families) ? found : nullptr;
}

struct Devices {
  ibv_device of_family[std::size(families)][3]{};
  Devices() {
    for (size_t family = 0; family < std::size(families); ++family) {
      for (int i = 0; i < 3; ++i) {
        ibv_device& device = of_family[family][i];
        device.node_type = IBV_NODE_CA;
        device.transport_type = IBV_TRANSPORT_IB;
        std::snprintf(device.name, sizeof(device.name), "%s_%d", families[family].name, i);
      }
    }
  }
};

ibv_device* devices_of(const NicLimits& limits) {
  static Devices devices;
  return devices.of_family[&limits - families];
}

const NicLimits& limits_of(ibv_context* context) {
  return *static_cast<Nic*>(context)->limits;
}

template <class Object>
Object* refused(int code) {
  errno = code;
  return nullptr;
}

ibv_mr* register_memory(ibv_pd* domain, char* memory, size_t bytes, uint64_t iova, unsigned access) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  const uint32_t key = fabric.next_number++ << 8;
  auto* region = new Registered{{domain->context, domain, memory, bytes, key, key, key}, iova};
  fabric.seen.access = access;
  fabric.regions[key] = region;
  return region;
}

int post_send(ibv_qp* to, ibv_send_wr* wr, ibv_send_wr** bad) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  auto& pair = static_cast<Pair&>(*to);
  auto& nic = static_cast<Nic&>(*to->context);
  fabric.seen.chain = 0;
  for (; wr != nullptr; wr = wr->next) {
    *bad = wr;
    ++fabric.seen.chain;
    const uint32_t bytes = wr->num_sge > 0 ? wr->sg_list->length : 0;
    const bool inlined = (wr->send_flags & IBV_SEND_INLINE) != 0;
    if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
    if (wr->num_sge > 1 || bytes > nic.limits->max_message || (inlined && bytes > pair.cap.max_inline_data))
      return EINVAL;
    // A place is free again when a completion has told so, of this request or of a later one.
    if (pair.posted - pair.retired == pair.cap.max_send_wr) return ENOMEM;
    Pair::Request request;
    request.wr = *wr;
    request.number = ++pair.posted;
    if (bytes > 0) request.piece = *wr->sg_list;
    if (inlined && bytes > 0) {
      std::memcpy(request.inline_bytes.data(), reinterpret_cast<const char*>(wr->sg_list->addr), bytes);
    }
    pair.sends.push(request);
    if (++nic.in_flight > nic.limits->max_in_flight && nic.limits->max_in_flight > 0) fabric.flush(pair);
  }
  fabric.run(pair);
  return 0;
}

template <class Ids>
int post_receives(Ids& ids, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard lock(Fabric::get().lock);
  for (; wr != nullptr; wr = wr->next) {
    *bad = wr;
    if (!ids.push(wr->wr_id)) return ENOMEM;
  }
  return 0;
}

int post_recv(ibv_qp* to, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives(static_cast<Pair&>(*to).ids, wr, bad);
}

int post_srq_recv(ibv_srq* to, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives(static_cast<Receives&>(*to).ids, wr, bad);
}

int poll_cq(ibv_cq* of, int room, ibv_wc* out) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  fabric.progress(of->context);
  auto& queue = static_cast<Queue&>(*of);
  if (queue.overrun) return -1;
  int count = 0;
  for (; count < room && !queue.entries.empty(); queue.entries.pop()) {
    const Queue::Entry& entry = queue.entries.front();
    out[count++] = entry.wc;
    const auto found = fabric.pairs.find(entry.wc.qp_num);
    if (entry.request == 0 || found == fabric.pairs.end() || entry.request <= found->second->retired) continue;
    static_cast<Nic*>(of->context)->in_flight -= static_cast<uint32_t>(entry.request - found->second->retired);
    found->second->retired = entry.request;
  }
  return count;
}

}  // namespace
}  // namespace ucclep::test

using namespace ucclep::test;
using ucclep::doubles::nic_access;
using ucclep::doubles::read_dma_buf;

extern "C" {

const Seen* ucclep_double_seen() {
  return &Fabric::get().seen;
}

#undef ibv_get_device_list
ibv_device** ibv_get_device_list(int* count) {
  const NicLimits* limits = played();
  *count = limits != nullptr ? 3 : 0;
  auto** list = static_cast<ibv_device**>(std::calloc(4, sizeof(ibv_device*)));
  for (int i = 0; i < *count; ++i) list[i] = devices_of(*limits) + i;
  return list;
}

void ibv_free_device_list(ibv_device** list) {
  std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

ibv_context* ibv_open_device(ibv_device* device) {
  auto* nic = new Nic{};
  nic->device = device;
  nic->limits = played();
  nic->ops.post_send = post_send;
  nic->ops.post_recv = post_recv;
  nic->ops.post_srq_recv = post_srq_recv;
  nic->ops.poll_cq = poll_cq;
  return nic;
}

int ibv_close_device(ibv_context* context) {
  delete static_cast<Nic*>(context);
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const NicLimits& limits = limits_of(context);
  *attributes = {};
  attributes->vendor_id = limits.vendor;
  attributes->phys_port_cnt = 1;
  attributes->max_qp_wr = limits.max_qp_wr;
  attributes->max_cqe = limits.max_cqe;
  attributes->max_srq = limits.max_srq;
  attributes->max_srq_wr = limits.max_srq_wr;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 128;
  return 0;
}

#undef ibv_query_port
int ibv_query_port(ibv_context* context, uint8_t, _compat_ibv_port_attr* out) {
  const NicLimits& limits = limits_of(context);
  auto* attributes = reinterpret_cast<ibv_port_attr*>(out);
  const bool first = std::strstr(context->device->name, "_0") != nullptr;
  attributes->state = first ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->gid_tbl_len = 8;
  attributes->max_msg_sz = limits.max_message;
  attributes->lid = limits.ethernet ? 0 : 7;
  attributes->link_layer = limits.ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  return 0;
}

// Of each version of RoCE a link-local address and one of IPv4.
int _ibv_query_gid_ex(ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* entry, uint32_t, size_t) {
  if (index >= 4) return ENODATA;
  constexpr uint8_t local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  constexpr uint8_t ipv4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
  *entry = {};
  entry->gid_index = index;
  entry->gid_type = index % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  std::memcpy(entry->gid.raw, index < 2 ? local : ipv4, sizeof(entry->gid.raw));
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return new ibv_pd{context, 0};
}

int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void*, ibv_comp_channel*, int) {
  if (entries < 1 || entries > limits_of(context).max_cqe) return refused<ibv_cq>(EINVAL);
  {
    Fabric& fabric = Fabric::get();
    const std::lock_guard lock(fabric.lock);
    fabric.seen.completions = entries;
  }
  auto* queue = new Queue(static_cast<size_t>(entries));
  queue->context = context;
  return queue;
}

int ibv_destroy_cq(ibv_cq* queue) {
  delete static_cast<Queue*>(queue);
  return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* wanted) {
  const NicLimits& limits = limits_of(domain->context);
  if (limits.max_srq == 0) return refused<ibv_srq>(EOPNOTSUPP);
  if (wanted->attr.max_wr > static_cast<uint32_t>(limits.max_srq_wr)) return refused<ibv_srq>(EINVAL);
  auto* receives = new Receives(wanted->attr.max_wr);
  receives->context = domain->context;
  return receives;
}

int ibv_destroy_srq(ibv_srq* receives) {
  delete static_cast<Receives*>(receives);
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  const NicLimits& limits = limits_of(domain->context);
  const auto most = static_cast<uint32_t>(limits.max_qp_wr);
  const ibv_qp_cap& cap = wanted->cap;
  if (wanted->qp_type != IBV_QPT_RC || cap.max_send_wr > most || cap.max_recv_wr > most ||
      cap.max_inline_data > limits.max_inline) {
    return refused<ibv_qp>(EINVAL);
  }
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  fabric.seen.pair = cap;
  auto* pair = new Pair(cap);
  pair->context = domain->context;
  pair->send_cq = wanted->send_cq;
  pair->recv_cq = wanted->recv_cq;
  pair->srq = wanted->srq;
  pair->qp_num = fabric.next_number++;
  fabric.pairs[pair->qp_num] = pair;
  return pair;
}

int ibv_modify_qp(ibv_qp* of, ibv_qp_attr* wanted, int mask) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  auto& pair = static_cast<Pair&>(*of);
  const ibv_qp_state from = pair.state, to = wanted->qp_state;
  const bool known = to == IBV_QPS_RESET || to == IBV_QPS_ERR || (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
                     (from == IBV_QPS_INIT && to == IBV_QPS_RTR) || (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
  if (!known || (mask & IBV_QP_STATE) == 0) return EINVAL;
  if (to == IBV_QPS_RTR) {
    pair.attributes.dest_qp_num = wanted->dest_qp_num;
    pair.attributes.rq_psn = wanted->rq_psn;
    fabric.seen.ready_to_receive = *wanted;
  }
  if (to == IBV_QPS_RTS) {
    pair.attributes.sq_psn = wanted->sq_psn;
    pair.attributes.timeout = wanted->timeout;
    pair.attributes.retry_cnt = wanted->retry_cnt;
    fabric.seen.ready_to_send = *wanted;
  }
  if (to == IBV_QPS_RESET) {
    pair.sends.clear();
    pair.ids.clear();
    static_cast<Nic*>(pair.context)->in_flight -= static_cast<uint32_t>(pair.posted - pair.retired);
    pair.retired = pair.posted;
    pair.silent_since = {};
  }
  if (to == IBV_QPS_ERR) {
    fabric.flush(pair);
  } else {
    pair.state = to;
  }
  return 0;
}

int ibv_destroy_qp(ibv_qp* of) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  fabric.pairs.erase(of->qp_num);
  delete static_cast<Pair*>(of);
  return 0;
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* data, size_t bytes, uint64_t iova, unsigned access) {
  const int gpu = nic_access(data);
  const bool peer_memory = (gpu & ucclep_double_by_address) != 0 && limits_of(domain->context).addresses_of_gpus;
  if (gpu != 0 && !peer_memory) return refused<ibv_mr>(EFAULT);
  return register_memory(domain, static_cast<char*>(data), bytes, iova, access);
}

// Of a GPU's memory.
static size_t within_reach() {
  const char* bytes = std::getenv("UCCLEP_DOUBLE_REACH");
  return bytes == nullptr ? SIZE_MAX : std::strtoull(bytes, nullptr, 10);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) {
  const auto content = read_dma_buf(fd);
  if (!limits_of(domain->context).dma_bufs) return refused<ibv_mr>(EOPNOTSUPP);
  if (bytes > within_reach()) return refused<ibv_mr>(ENOMEM);
  if (!content) return refused<ibv_mr>(EBADF);
  constexpr uint64_t page = 4096;
  if (offset > content->bytes || bytes > content->bytes - offset || offset % page != iova % page) {
    return refused<ibv_mr>(EINVAL);
  }
  return register_memory(domain, content->data + offset, bytes, iova, static_cast<unsigned>(access));
}

int ibv_dereg_mr(ibv_mr* region) {
  Fabric& fabric = Fabric::get();
  const std::lock_guard lock(fabric.lock);
  fabric.regions.erase(region->rkey);
  delete static_cast<Registered*>(region);
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_WR_FLUSH_ERR:
      return "Work Request Flushed Error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    default:
      return "another error";
  }
}
}
