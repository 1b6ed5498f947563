// SPDX-License-Identifier: Apache-2.0
#include "doubles/fabric/wire.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>

#include "doubles/gpu_memory.hpp"

namespace ucclep::test {
namespace {

char mark;  // what a context is filled with

uint64_t cut(uint64_t data, size_t bytes) {
  return bytes < 8 ? data & ((uint64_t{1} << 8 * bytes) - 1) : data;
}

}  // namespace

End::End(const ProviderRow& of) : fid_ep{}, row(of), slots(of.sends), receives(of.receives) {
  for (Request& request : slots) {
    request.injected.resize(of.inject);
    free.push_back(&request);
  }
  pending.reserve(of.sends);
  held.reserve(of.sends);
}

Wire& Wire::get() {
  static auto* wire = new Wire;  // outlives whatever its users close late
  return *wire;
}

Region* Wire::region(const Domain* of, uint64_t key) const {
  const auto found = regions.find({of, key});
  return found != regions.end() && found->second->enabled ? found->second : nullptr;
}

bool Wire::take(const ProviderRow& row, fi_context2* context) {
  if ((row.mode & FI_CONTEXT2) == 0) return true;
  if (context == nullptr) return false;
  if (context->internal[0] == &mark) {
    ++seen.spoilt_contexts;
    return false;
  }
  std::fill(std::begin(context->internal), std::end(context->internal), &mark);
  return true;
}

void Wire::give_back(const ProviderRow& row, fi_context2* context) {
  if ((row.mode & FI_CONTEXT2) == 0) return;
  for (void*& word : context->internal) {
    seen.spoilt_contexts += word != &mark;
    word = nullptr;
  }
}

void Wire::complete(End& end, const End::Request& request, int error, const char* words) {
  give_back(end.row, request.context);
  const uint64_t flags = FI_RMA | (request.reads ? FI_READ : FI_WRITE);
  end.queue->entries.push({{request.context, flags, 0, nullptr, 0}, error, words});
}

bool Wire::carry_out(End& end, const End::Request& request) {
  if (end.queue->entries.full()) return false;
  const auto found = ends.find(request.to);
  if (found == ends.end()) {
    complete(end, request, FI_EHOSTUNREACH, "Unreachable remote");
    return true;
  }
  End& peer = *found->second;
  if (!peer.enabled) return false;
  const bool uses_receive = request.announced && (peer.row.mode & FI_RX_CQ_DATA) != 0;
  if (uses_receive && peer.receives.empty()) return false;
  // To itself, the arrival and the completion need a place each; one of them is left for the latter.
  if (request.announced && peer.queue->entries.size() + 1 >= peer.queue->entries.room()) return false;
  const Region* region = this->region(peer.domain, request.key);
  char* remote = region != nullptr ? region->find(request.remote, request.bytes) : nullptr;
  if (remote == nullptr) {
    complete(end, request, FI_EIO, "Invalid remote key or address");
    return true;
  }
  if (request.bytes > 0)
    doubles::nic_write(request.reads ? request.local : remote, request.reads ? remote : request.local, request.bytes);
  if (request.announced) {
    fi_context2* receive = nullptr;
    if (uses_receive) {
      receive = peer.receives.front();
      peer.receives.pop();
      give_back(peer.row, receive);
    }
    const uint64_t flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
    peer.queue->entries.push({{receive, flags, request.bytes, nullptr, cut(request.data, peer.row.data_bytes)}, 0, ""});
  }
  complete(end, request, 0, "");
  return true;
}

void Wire::retire(End& end, size_t place) {
  End::Request* request = end.pending[place];
  const auto earlier = [&](const End::Request* other) { return other->number < request->number; };
  seen.overtaken += std::any_of(end.pending.begin(), end.pending.end(), earlier);
  end.free.push_back(request);
  end.pending.erase(end.pending.begin() + static_cast<ptrdiff_t>(place));
}

void Wire::run(End& end) {
  end.held.clear();
  for (size_t place = 0; place < end.pending.size();) {
    const End::Request& request = *end.pending[place];
    const bool behind = end.row.ordered && std::count(end.held.begin(), end.held.end(), request.to) > 0;
    if (request.rung && !behind && dice.percent(end.row.ordered ? 95 : 50) && carry_out(end, request)) {
      retire(end, place);
    } else {
      if (!behind) end.held.push_back(request.to);
      ++place;
    }
  }
}

void Wire::progress() {
  for (const auto& [number, end] : ends) {
    if (end->enabled) run(*end);
  }
}

}  // namespace ucclep::test
