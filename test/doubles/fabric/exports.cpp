// SPDX-License-Identifier: Apache-2.0
// Fabrics, domains, address vectors and completion queues.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "doubles/fabric/objects.hpp"
#include "doubles/fabric/providers.hpp"

namespace ucclep::test {
namespace {

int insert(fid_av* to, const void* names, size_t count, fi_addr_t* made, uint64_t, void*) {
  const std::lock_guard lock(Wire::get().lock);
  auto& addresses = static_cast<Addresses&>(*to);
  Name name{};
  std::memcpy(&name, names, sizeof(name));
  if (count != 1 || name.magic != Name::the_magic) return 0;
  const auto unused = [](const Addresses::Entry& entry) { return entry.number == 0; };
  auto place = std::find_if(addresses.entries.begin(), addresses.entries.end(), unused);
  if (place == addresses.entries.end()) place = addresses.entries.emplace(place);
  *place = {name.number, addresses.domain->row->connects_in};
  *made = static_cast<fi_addr_t>(place - addresses.entries.begin());
  return 1;
}

int remove(fid_av* from, fi_addr_t* which, size_t count, uint64_t) {
  const std::lock_guard lock(Wire::get().lock);
  auto& addresses = static_cast<Addresses&>(*from);
  if (count != 1 || *which >= addresses.entries.size()) return -FI_EINVAL;
  addresses.entries[*which] = {};
  return 0;
}

int close_addresses(fid* fid) {
  const std::lock_guard lock(Wire::get().lock);
  auto* addresses = static_cast<Addresses*>(reinterpret_cast<fid_av*>(fid));
  --addresses->domain->users;
  delete addresses;
  return 0;
}

fi_ops av_ops = table<fi_ops>([](auto& t) { t.close = close_addresses; });
fi_ops_av av_calls = table<fi_ops_av>([](auto& t) {
  t.insert = insert;
  t.remove = remove;
});
int open_addresses(fid_domain* of, fi_av_attr* wanted, fid_av** made, void* context) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  if (wanted->type != FI_AV_TABLE) return -FI_EINVAL;
  wire.seen.peers = wanted->count;
  auto* addresses = new Addresses{};
  addresses->fid = {FI_CLASS_AV, context, &av_ops};
  addresses->ops = &av_calls;
  addresses->domain = &domain_of(of);
  ++addresses->domain->users;
  *made = addresses;
  return 0;
}

ssize_t read_queue(fid_cq* of, void* room, size_t count) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  wire.progress();
  auto& entries = static_cast<Queue&>(*of).entries;
  auto* out = static_cast<fi_cq_data_entry*>(room);
  size_t read = 0;
  for (; read < count && !entries.empty() && entries.front().error == 0; entries.pop()) {
    out[read++] = entries.front().entry;
  }
  if (read > 0) return static_cast<ssize_t>(read);
  return entries.empty() ? -FI_EAGAIN : -FI_EAVAIL;
}

ssize_t read_error(fid_cq* of, fi_cq_err_entry* error, uint64_t) {
  const std::lock_guard lock(Wire::get().lock);
  auto& entries = static_cast<Queue&>(*of).entries;
  if (entries.empty() || entries.front().error == 0) return -FI_EAGAIN;
  const Queue::Entry& entry = entries.front();
  *error = {};
  error->op_context = entry.entry.op_context;
  error->flags = entry.entry.flags;
  error->err = entry.error;
  error->err_data = const_cast<char*>(entry.words);
  entries.pop();
  return 1;
}

const char* error_text(fid_cq*, int, const void* data, char*, size_t) {
  return static_cast<const char*>(data);
}

int close_queue(fid* fid) {
  const std::lock_guard lock(Wire::get().lock);
  auto* queue = static_cast<Queue*>(reinterpret_cast<fid_cq*>(fid));
  --queue->domain->users;
  delete queue;
  return 0;
}

fi_ops queue_ops = table<fi_ops>([](auto& t) { t.close = close_queue; });
fi_ops_cq queue_calls = table<fi_ops_cq>([](auto& t) {
  t.read = read_queue;
  t.readerr = read_error;
  t.strerror = error_text;
});
int open_queue(fid_domain* of, fi_cq_attr* wanted, fid_cq** made, void* context) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  if (wanted->format != FI_CQ_FORMAT_DATA || wanted->wait_obj != FI_WAIT_NONE) return -FI_EINVAL;
  wire.seen.completions = wanted->size;
  auto* queue = new Queue(wanted->size);
  queue->fid = {FI_CLASS_CQ, context, &queue_ops};
  queue->ops = &queue_calls;
  queue->domain = &domain_of(of);
  ++queue->domain->users;
  *made = queue;
  return 0;
}

int close_domain(fid* fid) {
  const std::lock_guard lock(Wire::get().lock);
  Domain& domain = domain_of(reinterpret_cast<fid_domain*>(fid));
  if (domain.users + domain.regions > 0) return -FI_EBUSY;
  delete &domain;
  return 0;
}

fi_ops domain_ops = table<fi_ops>([](auto& t) { t.close = close_domain; });
fi_ops_domain domain_calls = table<fi_ops_domain>([](auto& t) {
  t.av_open = open_addresses;
  t.cq_open = open_queue;
  t.endpoint = open_end;
});
fi_ops_mr domain_regions = table<fi_ops_mr>([](auto& t) { t.regattr = register_region; });
int open_domain(fid_fabric*, fi_info* info, fid_domain** made, void* context) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  wire.seen.caps = info->caps;
  wire.seen.mr_mode = info->domain_attr->mr_mode;
  auto* domain = new Domain{};
  domain->fid = {FI_CLASS_DOMAIN, context, &domain_ops};
  domain->ops = &domain_calls;
  domain->mr = &domain_regions;
  domain->row = &row_of(*info);
  domain->device_memory = (info->caps & FI_HMEM) != 0;
  *made = domain;
  return 0;
}

int close_fabric(fid* fid) {
  delete reinterpret_cast<fid_fabric*>(fid);
  return 0;
}

}  // namespace
}  // namespace ucclep::test

using namespace ucclep::test;

extern "C" {

const FabricSeen* ucclep_fabric_double_seen() {
  return &Wire::get().seen;
}

fi_ops fabric_ops = table<fi_ops>([](auto& t) { t.close = close_fabric; });
fi_ops_fabric fabric_calls = table<fi_ops_fabric>([](auto& t) { t.domain = open_domain; });
int fi_fabric(fi_fabric_attr*, fid_fabric** made, void* context) {
  *made = new fid_fabric{{FI_CLASS_FABRIC, context, &fabric_ops}, &fabric_calls, 0};
  return 0;
}
}
