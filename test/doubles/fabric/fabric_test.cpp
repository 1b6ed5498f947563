// SPDX-License-Identifier: Apache-2.0
// What ofi chooses for each provider, and that it keeps to a provider's limits. Over a double of libfabric.
#include <dlfcn.h>
#include <rdma/fi_domain.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "doubles/fabric/double.hpp"
#include "transport/ofi/library.hpp"
#include "transport/ofi/provider.hpp"
#include "transport/refusal.hpp"
#include "transport/traffic.hpp"

namespace ucclep::transport {
namespace {

using test::refusal;
using test::says;

void play(const std::string& providers) {
  setenv("UCCLEP_DOUBLE_PROVIDERS", providers.c_str(), 1);
}

const test::FabricSeen& seen() {
  static const auto function =
      reinterpret_cast<test::FabricSeenFunction>(dlsym(dlopen("libfabric.so.1", RTLD_NOW), test::fabric_seen_symbol));
  REQUIRE(function != nullptr);
  return *function();
}

constexpr Config config{nullptr, 2, 64, 128, 30000, 0};

std::string provider_of(const std::string& wanted, const Config& with = config) {
  return ofi::choose(ofi::Library::get(), wanted, with)->fabric_attr->prov_name;
}

struct Own {  // an endpoint that is its own peer, with memory
  explicit Own(const std::string& name, const Config& with = config) : transport(make_transport(name)) {
    endpoint = transport->open(with);
    endpoint->connect(0, 0, endpoint->address());
    Key key;
    region = endpoint->register_region({UCCLEP_MEMORY_HOST, 0, memory.data(), memory.size(), -1, 0}, &key);
    remote = endpoint->import_region(0, key);
  }
  Operation write(uint64_t bytes, uint32_t flags) const {
    Operation operation = test::bare_immediate;
    operation.flags |= flags;
    operation.local_region = region;
    operation.remote_region = remote;
    operation.remote_offset = memory.size() / 2;
    operation.bytes = bytes;
    return operation;
  }
  std::vector<char> memory = std::vector<char>(1 << 16, 'x');
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Endpoint> endpoint;
  uint32_t region = 0, remote = 0;
};

}  // namespace

TEST_CASE("ofi: libfabric before 1.17 is refused, and newer ones are asked for what this library knows", "[fabric]") {
  setenv("UCCLEP_DOUBLE_LIBFABRIC", "1.16", 1);
  CHECK(says(refusal(ucclEpNotSupported, [] { ofi::Library::open("libfabric.so.1"); }), "is libfabric 1.16"));
  setenv("UCCLEP_DOUBLE_LIBFABRIC", "1.17", 1);
  CHECK(ofi::Library::open("libfabric.so.1").api_version() == FI_VERSION(1, 17));
  unsetenv("UCCLEP_DOUBLE_LIBFABRIC");
  play("efa");
  CHECK(provider_of("") == "efa");
  CHECK(seen().api_version == FI_VERSION(1, 18));  // where EFA begins to write by RDMA
}

TEST_CASE("ofi: without a name the fastest provider that reaches other machines is taken", "[fabric]") {
  play("shm,tcp,cxi,efa");
  CHECK(provider_of("") == "efa");
  play("shm,tcp,rxm,cxi");
  CHECK(provider_of("") == "cxi");
  play("net,tcp,rxm,shm");
  CHECK(provider_of("") == "verbs;ofi_rxm");
  play("shm,net");
  CHECK(provider_of("") == "net");
  CHECK(provider_of("shm") == "shm");
  play("shm");
  CHECK(says(refusal(ucclEpNotSupported, [] { provider_of(""); }), "for other machines"));
  CHECK(says(refusal(ucclEpNotSupported, [] { provider_of("efa"); }), "no provider efa here"));
  play("");
  CHECK(says(refusal(ucclEpNotSupported, [] { provider_of("efa"); }), "it has none"));
}

TEST_CASE("ofi: a NIC is a domain of the provider", "[fabric]") {
  play("tcp,efa,cxi");
  Config named = config;
  named.nic = "efa_1";
  const ofi::Info info = ofi::choose(ofi::Library::get(), "", named);
  CHECK(std::string(info->domain_attr->name) == "efa_1");
  named.nic = "cxi_0";
  CHECK(says(refusal(ucclEpInvalidArgument, [&] { provider_of("efa", named); }), "efa_0, efa_1"));
  CHECK(provider_of("cxi", named) == "cxi");
}

TEST_CASE("ofi: each provider gets what it asks for", "[fabric]") {
  struct Expected {
    const char *row, *transport;
    bool posted_receives, events;
    uint32_t receives, max_inline;
    uint64_t max_message;
  };
  const Expected expected = GENERATE(
      // Writes cannot be injected, although fi_info says 32 bytes: it speaks of messages.
      Expected{"efa-direct", "ofi:efa", true, false, 256, 0, 1 << 30},
      Expected{"efa", "ofi:efa", false, false, 1000, 3928, 1 << 30},
      Expected{"cxi", "ofi:cxi", false, true, 1000, 192, 0xffffffff},
      Expected{"tcp", "ofi:tcp", false, true, 1000, 128, ~uint64_t{0}},
      Expected{"net", "ofi:net", false, true, 1000, 128, ~uint64_t{0}},
      Expected{"shm", "ofi:shm", false, true, 1000, 4096, ~uint64_t{0}},
      Expected{"rxm", "ofi:verbs;ofi_rxm", false, false, 1000, 192, 1 << 30});
  CAPTURE(expected.row);
  play(expected.row);
  Config many = config;
  many.receives = 1000;
  const Own own(expected.transport, many);
  const Traits& traits = own.endpoint->traits();
  CHECK(traits.ordered == 0);
  CHECK(traits.imm_bits == 32);
  CHECK(traits.posted_receives == expected.posted_receives);
  CHECK(traits.receives == expected.receives);
  CHECK(traits.max_inline == expected.max_inline);
  CHECK(traits.max_message == expected.max_message);
  CHECK(traits.memory == UCCLEP_MEMORY_HOST);
  CHECK(traits.max_bytes == 0);
  CHECK(seen().peers == many.peers);
  CHECK(seen().completions == many.sends + expected.receives);
  CHECK(((seen().region_flags & FI_RMA_EVENT) != 0) == expected.events);
}

TEST_CASE("ofi: device memory is asked for when it is to be registered", "[fabric]") {
  Config gpu = config;
  gpu.memory = UCCLEP_MEMORY_HOST | UCCLEP_MEMORY_CUDA;
  for (const char* row : {"efa", "efa-direct"}) {  // the one takes it as an option, the other says that it is so
    play(row);
    CHECK(make_transport("ofi:efa")->open(gpu)->traits().memory ==
          (UCCLEP_MEMORY_HOST | UCCLEP_MEMORY_CUDA | UCCLEP_MEMORY_HIP));
    CHECK((seen().mr_mode & FI_MR_HMEM) != 0);
  }
  // A provider that may copy by itself, and one without it, still have host memory.
  play("shm");
  CHECK(make_transport("ofi:shm")->open(gpu)->traits().memory == UCCLEP_MEMORY_HOST);
  play("tcp");
  CHECK(make_transport("ofi:tcp")->open(gpu)->traits().memory == UCCLEP_MEMORY_HOST);
}

TEST_CASE("ofi: no more is with the provider at once than it takes", "[fabric]") {
  struct Limits {
    const char *row, *transport;
    size_t sends, receives;
    bool ordered;
  };
  const Limits limits =
      GENERATE(Limits{"efa-direct", "ofi:efa", 128, 256, false}, Limits{"efa", "ofi:efa", 256, 0, false},
               Limits{"cxi", "ofi:cxi", 512, 0, false}, Limits{"tcp", "ofi:tcp", 256, 0, true},
               Limits{"net", "ofi:net", 256, 0, true}, Limits{"shm", "ofi:shm", 1024, 0, true},
               Limits{"rxm", "ofi:verbs;ofi_rxm", 192, 0, true});
  CAPTURE(limits.row);
  play(limits.row);
  Config many = config;
  many.sends = many.receives = 2000;
  const Own own(limits.transport, many);
  const test::FabricSeen before = seen();
  test::send_to_itself(*own.endpoint, test::bare_immediate, 3000);
  test::send_to_itself(*own.endpoint, own.write(100, UCCLEP_OPERATION_INLINE), 1000);
  test::send_to_itself(*own.endpoint, own.write(7168, 0), 1000);
  const test::FabricSeen after = seen();
  CHECK(after.writes - before.writes == 5000);
  CHECK(after.doorbells - before.doorbells < 500);  // a chain has one, as far as the provider's queue reaches
  const bool injects = own.endpoint->traits().max_inline >= 100;
  CHECK(after.injected - before.injected == (injects ? 1000 : 0));
  CHECK((after.overtaken - before.overtaken > 1000) == !limits.ordered);
  CHECK(after.spoilt_contexts == 0);
}

TEST_CASE("ofi: an operation that is longer than a message ends in an ERROR", "[fabric]") {
  play("efa-direct");
  const Own own("ofi:efa");
  const uint64_t bytes = own.endpoint->traits().max_message + 1;
  void* room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(room != MAP_FAILED);
  Key key;
  Operation operation = own.write(bytes, 0);
  operation.local_region = own.endpoint->register_region({UCCLEP_MEMORY_HOST, 0, room, bytes, -1, 0}, &key);
  operation.remote_region = own.endpoint->import_region(0, key);
  operation.remote_offset = 0;
  CHECK(own.endpoint->post(0, {&operation, 1}) == 1);
  Completion completion{};
  for (int turn = 0; turn < 1000 && completion.kind == 0; ++turn) own.endpoint->poll({&completion, 1});
  REQUIRE(completion.kind == UCCLEP_COMPLETION_ERROR);
  CHECK(completion.code == ucclEpInvalidArgument);
  CHECK(says(completion.words, "peer 0: an operation has more bytes than the provider accepts"));
  own.endpoint->deregister_region(operation.local_region);
  munmap(room, bytes);
}

}  // namespace ucclep::transport
