// SPDX-License-Identifier: Apache-2.0
// The endpoints of the double and the network between them. Everything is guarded by Wire::lock; operations are carried
// out by whoever polls: some now, some later, in any order where the provider promises none.
#pragma once
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "doubles/fabric/double.hpp"
#include "doubles/ring.hpp"
#include "transport/faulty/dice.hpp"

namespace ucclep::test {

struct Domain : fid_domain {
  const ProviderRow* row = nullptr;
  bool device_memory = false;     // it was asked for
  size_t regions = 0, users = 0;  // whatever has to be closed before it
};

struct Queue : fid_cq {
  struct Entry {
    fi_cq_data_entry entry;
    int error;  // 0: none
    const char* words;
  };
  explicit Queue(size_t room) : fid_cq{}, entries(room) {}
  Domain* domain = nullptr;
  Ring<Entry> entries;
};

struct Name {  // an endpoint's address
  static constexpr uint64_t the_magic = 0x656c62756f64;
  uint64_t magic, number;
};

struct Addresses : fid_av {
  struct Entry {
    uint64_t number = 0;  // 0: none
    unsigned refusals = 0;
  };
  Domain* domain = nullptr;
  std::vector<Entry> entries;
};

struct End;
struct Region : fid_mr {
  Domain* domain = nullptr;
  char* data = nullptr;
  uint64_t bytes = 0, base = 0;  // base: what its first byte is called on the wire
  bool events = false, enabled = false;
  End* bound = nullptr;
  char* find(uint64_t address, uint64_t count) const {
    const bool inside = address >= base && count <= bytes && address - base <= bytes - count;
    return inside ? data + (address - base) : nullptr;
  }
};

struct End : fid_ep {
  struct Request {
    uint64_t to = 0, number = 0;  // number: in the order of posting
    bool reads = false, announced = false, rung = false;
    char* local = nullptr;
    uint64_t bytes = 0, remote = 0, key = 0, data = 0;
    fi_context2* context = nullptr;
    std::vector<char> injected;
  };
  explicit End(const ProviderRow& of);

  const ProviderRow& row;
  Domain* domain = nullptr;
  Queue* queue = nullptr;
  Addresses* addresses = nullptr;
  uint64_t number = 0, posted = 0;
  bool enabled = false;
  size_t bound = 0;  // regions
  std::vector<Request> slots;
  std::vector<Request*> free, pending;  // pending: in the order of posting
  std::vector<uint64_t> held;           // peers that do not take the next one
  Ring<fi_context2*> receives;
};

struct Wire {
  std::mutex lock;
  std::unordered_map<uint64_t, End*> ends;
  std::map<std::pair<const Domain*, uint64_t>, Region*> regions;
  uint64_t next_number = 1;
  transport::Dice dice{7};
  FabricSeen seen{};

  static Wire& get();
  void progress();
  Region* region(const Domain* of, uint64_t key) const;
  // A context belongs to the provider from an operation's start to its end.
  bool take(const ProviderRow& row, fi_context2* context);
  void give_back(const ProviderRow& row, fi_context2* context);

 private:
  void run(End& end);
  bool carry_out(End& end, const End::Request& request);  // false: later
  void complete(End& end, const End::Request& request, int error, const char* words);
  void retire(End& end, size_t place);
};

}  // namespace ucclep::test
