// SPDX-License-Identifier: Apache-2.0
// An endpoint of libfabric for reliable datagrams (FI_EP_RDM), with a fabric, a domain and a completion queue of its
// own.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "transport/ofi/objects.hpp"
#include "transport/ofi/provider.hpp"
#include "transport/ofi/regions.hpp"
#include "transport/remote_regions.hpp"
#include "transport/send_table.hpp"

namespace ucclep::transport::ofi {

class OfiEndpoint : public Endpoint {
 public:
  OfiEndpoint(const Library& library, Info info, const Config& config);

  const Traits& traits() const override { return traits_; }
  Address address() const override;
  void connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) override;
  void disconnect(uint32_t peer) override;
  uint32_t register_region(const Memory& memory, Key* key) override { return regions_->add(memory, key); }
  void deregister_region(uint32_t region) override { regions_->remove(region); }
  uint32_t import_region(uint32_t peer, const Key& key) override;
  void release_region(uint32_t region) override { remote_.remove(region); }
  uint32_t post(uint32_t peer, std::span<const Operation> operations) noexcept override;
  uint32_t poll(std::span<Completion> completions) noexcept override;

 private:
  // What libfabric gives back with a completion. The first member is the provider's while the operation lasts.
  struct Context {
    fi_context2 providers{};
    uint32_t slot = SendTable::none;  // none: a receive
  };
  struct Peer {
    fi_addr_t address;
    OfiKey doorstep;  // where its immediates without bytes go
  };
  struct Target {
    void* local;
    void* descriptor;
    uint64_t remote, key;
  };

  void open(const Config& config);
  void check(int64_t code, const char* what) const;
  size_t limit(int option, size_t max) const;
  bool reaches_device_memory() const;
  void advance(uint32_t peer) noexcept;
  bool aim(uint32_t peer, const Operation& operation, Target* target) noexcept;
  int64_t start(uint32_t slot, const Target& target, bool more) noexcept;
  void post_receive(Context& context) noexcept;
  uint32_t read_queue(std::span<Completion> out) noexcept;
  void take_error() noexcept;
  void lose(uint32_t peer, ucclEpResult_t code, const char* what, const char* words) noexcept;
  void lose_endpoint(const char* words) noexcept;

  const Library& library_;
  Info info_;
  Duties duties_;
  Token token_ = Token::random();
  SendTable table_;
  Traits traits_{};
  std::string name_;  // of the provider
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> queue_;
  std::deque<Context> contexts_;  // by slot; their addresses stay
  std::deque<Context> receives_;
  Owned<fid_ep> endpoint_;
  char doorstep_[64] = {};
  uint32_t doorstep_region_ = 0;
  OfiKey doorstep_key_{};
  std::optional<Regions> regions_;  // closed first: the endpoint may be bound to them
  std::vector<std::optional<Peer>> peers_;
  RemoteRegions<OfiKey> remote_;
  std::string loss_;  // why the endpoint is lost; empty: it is not
  bool loss_reported_ = false;
  bool reports_first_ = false;
  uint32_t begun_ = 0;   // operations that the provider has
  uint32_t unrung_ = 0;  // the last of them, begun without a doorbell
};

}  // namespace ucclep::transport::ofi
