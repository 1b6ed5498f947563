// SPDX-License-Identifier: Apache-2.0
// Endpoints: what they take, and what they refuse.
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>

#include "doubles/fabric/objects.hpp"
#include "doubles/fabric/providers.hpp"

namespace ucclep::test {
namespace {

// Of newer headers than the build may have.
constexpr int opt_max_rma_size = 14, opt_inject_rma_size = 18;

// Whether the user may read or write these bytes of its own here.
bool is_registered(const End& end, const void* data, uint64_t bytes, const void* descriptor) {
  if ((end.row.mr_mode & FI_MR_LOCAL) == 0) return true;
  const auto* region = static_cast<const Region*>(descriptor);
  if (region == nullptr || region->domain != end.domain) return false;
  const auto* begin = static_cast<const char*>(data);
  return begin >= region->data && begin + bytes <= region->data + region->bytes;
}

int refusal(const End& end, const fi_msg_rma& message, uint64_t flags, const Region* target) {
  const uint64_t bytes = message.msg_iov->iov_len;
  const size_t longest = std::min<size_t>(end.row.max_message, end.row.max_rma);
  const size_t injects = end.row.inject_rma != ProviderRow::unknown ? end.row.inject_rma : end.row.inject;
  if (message.iov_count != 1 || message.rma_iov_count != 1 || message.rma_iov->len != bytes) return FI_EINVAL;
  if (bytes > longest) return FI_EMSGSIZE;
  if ((flags & FI_INJECT) != 0 && bytes > injects) return FI_ENOSYS;
  if ((flags & FI_INJECT) == 0 && !is_registered(end, message.msg_iov->iov_base, bytes, message.desc[0])) {
    return FI_EINVAL;
  }
  const bool silent = end.row.events && target != nullptr && !target->events;
  return (flags & FI_REMOTE_CQ_DATA) != 0 && silent ? FI_EINVAL : 0;
}

ssize_t start(fid_ep* of, const fi_msg_rma* message, uint64_t flags, bool reads) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  End& end = static_cast<End&>(*of);
  auto& entries = end.addresses->entries;
  if (!end.enabled) return -FI_EOPBADSTATE;
  if (message->addr >= entries.size() || entries[message->addr].number == 0) return -FI_EINVAL;
  Addresses::Entry& peer = entries[message->addr];
  if (peer.refusals > 0 && peer.refusals-- > 0) return -FI_EAGAIN;
  if (end.free.empty()) return -FI_EAGAIN;
  const auto target = wire.ends.find(peer.number);
  const Region* region =
      target != wire.ends.end() ? wire.region(target->second->domain, message->rma_iov->key) : nullptr;
  if (const int code = refusal(end, *message, flags, region); code != 0) return -code;
  auto* context = static_cast<fi_context2*>(message->context);
  if (!wire.take(end.row, context)) return -FI_EINVAL;

  End::Request& request = *end.free.back();
  end.free.pop_back();
  end.pending.push_back(&request);
  request.to = peer.number;
  request.number = end.posted++;
  request.reads = reads;
  request.announced = (flags & FI_REMOTE_CQ_DATA) != 0;
  request.local = static_cast<char*>(message->msg_iov->iov_base);
  request.bytes = message->msg_iov->iov_len;
  request.remote = message->rma_iov->addr;
  request.key = message->rma_iov->key;
  request.data = message->data;
  request.context = context;
  request.rung = false;
  if ((flags & FI_INJECT) != 0 && request.bytes > 0) {
    std::memcpy(request.injected.data(), request.local, request.bytes);
    request.local = request.injected.data();
    ++wire.seen.injected;
  }
  wire.seen.writes += !reads;
  if ((flags & FI_MORE) != 0) return 0;
  ++wire.seen.doorbells;
  for (End::Request* waiting : end.pending) waiting->rung = true;
  return 0;
}

ssize_t write_message(fid_ep* end, const fi_msg_rma* message, uint64_t flags) {
  return start(end, message, flags, false);
}

ssize_t read_message(fid_ep* end, const fi_msg_rma* message, uint64_t flags) {
  return start(end, message, flags, true);
}

ssize_t receive(fid_ep* of, void* data, size_t bytes, void* descriptor, fi_addr_t, void* context) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  End& end = static_cast<End&>(*of);
  if (end.receives.full()) return -FI_EAGAIN;
  auto* own = static_cast<fi_context2*>(context);
  if (!end.enabled || !is_registered(end, data, bytes, descriptor) || !wire.take(end.row, own)) return -FI_EINVAL;
  end.receives.push(own);
  return 0;
}

int bind_end(fid* fid, ::fid* to, uint64_t) {
  const std::lock_guard lock(Wire::get().lock);
  End& end = end_of(fid);
  if (to->fclass == FI_CLASS_CQ) end.queue = static_cast<Queue*>(reinterpret_cast<fid_cq*>(to));
  if (to->fclass == FI_CLASS_AV) end.addresses = static_cast<Addresses*>(reinterpret_cast<fid_av*>(to));
  return 0;
}

int enable_end(fid* fid, int command, void*) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  End& end = end_of(fid);
  if (command != FI_ENABLE || end.queue == nullptr || end.addresses == nullptr) return -FI_EINVAL;
  end.enabled = true;
  wire.ends[end.number] = &end;
  return 0;
}

int close_end(fid* fid) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  End& end = end_of(fid);
  if (end.bound > 0) return -FI_EBUSY;
  wire.ends.erase(end.number);
  --end.domain->users;
  delete &end;
  return 0;
}

int name_of(fid_t fid, void* room, size_t* bytes) {
  const std::lock_guard lock(Wire::get().lock);
  const size_t given = *bytes;
  *bytes = sizeof(Name);
  if (given < sizeof(Name)) return -FI_ETOOSMALL;
  const Name name{Name::the_magic, end_of(fid).number};
  std::memcpy(room, &name, sizeof(name));
  return 0;
}

int set_option(fid_t fid, int level, int option, const void* value, size_t bytes) {
  const bool p2p = level == FI_OPT_ENDPOINT && option == FI_OPT_FI_HMEM_P2P && end_of(fid).row.p2p == 1;
  if (!p2p) return -FI_ENOPROTOOPT;
  return bytes == sizeof(int) && *static_cast<const int*>(value) == FI_HMEM_P2P_REQUIRED ? 0 : -FI_EINVAL;
}

int option_of(fid_t fid, int level, int option, void* value, size_t* bytes) {
  const ProviderRow& row = end_of(fid).row;
  if (level == FI_OPT_ENDPOINT && option == FI_OPT_FI_HMEM_P2P && row.p2p == 2) {
    *static_cast<int*>(value) = FI_HMEM_P2P_REQUIRED;
    return 0;
  }
  const size_t known = option == opt_inject_rma_size ? row.inject_rma
                       : option == opt_max_rma_size  ? row.max_rma
                                                     : ProviderRow::unknown;
  if (level != FI_OPT_ENDPOINT || known == ProviderRow::unknown) return -FI_ENOPROTOOPT;
  if (*bytes < sizeof(known)) return -FI_ETOOSMALL;
  *bytes = sizeof(known);
  std::memcpy(value, &known, sizeof(known));
  return 0;
}

fi_ops end_ops = table<fi_ops>([](auto& t) {
  t.close = close_end;
  t.bind = bind_end;
  t.control = enable_end;
});
fi_ops_ep end_calls = table<fi_ops_ep>([](auto& t) {
  t.getopt = option_of;
  t.setopt = set_option;
});
fi_ops_cm end_names = table<fi_ops_cm>([](auto& t) { t.getname = name_of; });
fi_ops_msg end_messages = table<fi_ops_msg>([](auto& t) { t.recv = receive; });
fi_ops_rma end_rma = table<fi_ops_rma>([](auto& t) {
  t.writemsg = write_message;
  t.readmsg = read_message;
});

}  // namespace

int open_end(fid_domain* of, fi_info* info, fid_ep** made, void* context) {
  Wire& wire = Wire::get();
  const std::lock_guard lock(wire.lock);
  Domain& domain = domain_of(of);
  if (&row_of(*info) != domain.row) return -FI_EINVAL;
  auto* end = new End(*domain.row);
  end->fid = {FI_CLASS_EP, context, &end_ops};
  end->ops = &end_calls;
  end->cm = &end_names;
  end->msg = &end_messages;
  end->rma = &end_rma;
  end->domain = &domain;
  end->number = wire.next_number++;
  ++domain.users;
  *made = end;
  return 0;
}

}  // namespace ucclep::test
