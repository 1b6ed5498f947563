// SPDX-License-Identifier: Apache-2.0
// What verbs chooses for each family of NICs, and what it says when there is none. Over a double of libibverbs.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "doubles/verbs/double.hpp"
#include "transport/refusal.hpp"
#include "transport/traffic.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/device.hpp"

namespace ucclep::transport {
namespace {

using test::refusal;
using test::says;

void play(const char* family) {
  setenv("UCCLEP_DOUBLE_NIC", family, 1);
}

const test::Seen& seen() {
  static const auto function =
      reinterpret_cast<test::SeenFunction>(dlsym(dlopen("libibverbs.so.1", RTLD_NOW), test::seen_symbol));
  REQUIRE(function != nullptr);
  return *function();
}

constexpr Config config{nullptr, 2, 64, 128, 100000, 0};

std::unique_ptr<Endpoint> connected_to_itself(Transport& transport) {
  auto endpoint = transport.open(config);
  endpoint->connect(0, 0, endpoint->address());
  return endpoint;
}

}  // namespace

TEST_CASE("verbs: without libibverbs, or with something else in its place, there is an error message", "[verbs]") {
  CHECK(says(refusal(ucclEpNotSupported, [] { verbs::Library::open("libnosuchverbs.so"); }), "libnosuchverbs.so"));
  CHECK(says(refusal(ucclEpNotSupported, [] { verbs::Library::open("libm.so.6"); }),
             "has no function ibv_get_device_list"));
}

TEST_CASE("verbs: the first NIC with an active port is taken, or the one that is named", "[verbs]") {
  play("mlx5");
  CHECK(verbs::open_device(verbs::Library::get(), "").name == "mlx5_1");
  CHECK(verbs::open_device(verbs::Library::get(), "mlx5_2").name == "mlx5_2");
  const auto transport = make_transport("verbs:mlx5_9");
  CHECK(says(refusal(ucclEpInvalidArgument, [&] { transport->open(config); }),
             "the NIC mlx5_9 does not exist; this machine has mlx5_0, mlx5_1"));
  Config named = config;
  named.nic = "mlx5_1";
  CHECK(transport->open(named) != nullptr);
  CHECK(says(refusal(ucclEpNotSupported, [] { make_transport("verbs:mlx5_0")->open(config); }),
             "no active InfiniBand or RoCE port"));
}

TEST_CASE("verbs: a machine without NICs says so", "[verbs]") {
  play("none");
  CHECK(says(refusal(ucclEpNotSupported, [] { make_transport("verbs")->open(config); }), "no NIC"));
  CHECK(says(refusal(ucclEpInvalidArgument, [] { make_transport("verbs:mlx5_0")->open(config); }), "has none"));
}

TEST_CASE("verbs: each family has its row", "[verbs]") {
  struct Expected {
    const char* family;
    bool ordered, shared, dma_buf;
    uint64_t max_bytes;
    uint32_t max_inline;
    int timeout, level, traffic_class;
  };
  const Expected expected = GENERATE(
      Expected{"mlx5", false, true, true, 0, 64, 20, 3, 104},
      Expected{"infiniband", false, true, true, 0, 64, 20, 0, 0},
      Expected{"bnxt_re", true, true, true, 1572864, 64, 20, 3, 104},
      Expected{"ionic", true, false, true, 2097152, 32, 20, 3, 104},
      Expected{"irdma", true, false, true, 0, 48, 20, 3, 104}, Expected{"erdma", true, false, false, 0, 64, 20, 0, 0},
      Expected{"rxe", true, true, false, 0, 64, 14, 0, 0}, Expected{"stranger", true, true, true, 0, 0, 20, 3, 104});
  CAPTURE(expected.family);
  play(expected.family);
  const auto transport = make_transport("verbs");
  const auto endpoint = connected_to_itself(*transport);
  const Traits& traits = endpoint->traits();
  CHECK(traits.ordered == expected.ordered);
  CHECK(traits.max_bytes == expected.max_bytes);
  CHECK(traits.max_inline == expected.max_inline);
  CHECK(traits.posted_receives == 1);
  CHECK(((traits.memory & UCCLEP_MEMORY_DMABUF) != 0) == expected.dma_buf);
  verbs::Library older = verbs::Library::get();  // rdma-core before 34
  older.reg_dmabuf_mr = nullptr;
  CHECK((verbs::memory_kinds(older, *verbs::open_device(older, "").family) & UCCLEP_MEMORY_DMABUF) == 0);
  CHECK((seen().pair.max_recv_wr == 0) == expected.shared);
  CHECK(seen().ready_to_send.timeout == expected.timeout);
  CHECK(seen().ready_to_send.retry_cnt == 7);
  CHECK(seen().ready_to_send.rnr_retry == 7);
  CHECK(seen().ready_to_receive.ah_attr.sl == expected.level);
  CHECK(seen().ready_to_receive.ah_attr.grh.traffic_class == expected.traffic_class);
  const bool ethernet = std::string(expected.family) != "infiniband";
  CHECK(seen().ready_to_receive.ah_attr.is_global == ethernet);
  CHECK(seen().ready_to_receive.ah_attr.grh.sgid_index == (ethernet ? 3 : 0));  // RoCE v2, IPv4
  char byte[64];
  Key key;
  endpoint->register_region({UCCLEP_MEMORY_HOST, 0, byte, sizeof(byte), -1, 0}, &key);
  CHECK(((seen().access & IBV_ACCESS_RELAXED_ORDERING) != 0) == !expected.ordered);
}

TEST_CASE("verbs: what is granted fits the device", "[verbs]") {
  Config large = config;
  large.sends = large.receives = 100000;
  play("rxe");
  const auto rxe = make_transport("verbs")->open(large);
  CHECK(seen().completions <= 32767);
  CHECK(rxe->traits().sends > 1000);
  CHECK(rxe->traits().receives > 1000);
  play("stranger");
  const auto stranger = make_transport("verbs")->open(large);
  CHECK(stranger->traits().receives == 40);
  CHECK(stranger->traits().sends == 80);
  CHECK(seen().pair.max_send_wr <= 64);
}

TEST_CASE("verbs: no more is with the NIC at once than it bears", "[verbs]") {
  // The double of bnxt_re and ionic gives up beyond 256 messages, all refuse more than their queue pairs have places
  // for: 64 of the stranger's, 4063 of irdma's. A completion queue that overflows is lost.
  play(GENERATE("mlx5", "infiniband", "bnxt_re", "ionic", "irdma", "erdma", "rxe", "stranger"));
  Config many = config;
  many.sends = many.receives = 10000;
  const auto transport = make_transport("verbs");
  const auto endpoint = transport->open(many);
  endpoint->connect(0, 0, endpoint->address());
  test::send_to_itself(*endpoint, test::bare_immediate, 20000);
}

TEST_CASE("verbs: a doorbell is one for a whole chain, except where it is the sender's work", "[verbs]") {
  const auto [family, bytes, chain] = GENERATE(table<const char*, uint64_t, uint32_t>(
      {{"mlx5", 65536, 32}, {"rxe", 65536, 1}, {"rxe", 8192, 8}, {"rxe", 64, 32}, {"rxe", 0, 32}}));
  CAPTURE(family, bytes);
  play(family);
  const auto transport = make_transport("verbs");
  const auto endpoint = connected_to_itself(*transport);
  std::vector<char> memory(65536);
  Key key;
  const uint32_t region = endpoint->register_region({UCCLEP_MEMORY_HOST, 0, memory.data(), memory.size(), -1, 0}, &key);
  Operation write = test::bare_immediate;
  write.flags = 0;
  write.local_region = region;
  write.remote_region = endpoint->import_region(0, key);
  write.bytes = bytes;
  CHECK(endpoint->post(0, std::vector<Operation>(config.sends, write)) == config.sends);
  CHECK(seen().chain == chain);
}

TEST_CASE("verbs: retries end within the endpoint's timeout", "[verbs]") {
  for (const uint32_t timeout_ms : {1u, 100u, 1000u, 30000u, 100000u}) {
    const uint8_t timeout = verbs::timeout_within(verbs::nic_table[0], timeout_ms);
    CAPTURE(timeout_ms, int{timeout});
    CHECK((4096ull << timeout) * 8 <= timeout_ms * 1000000ull);
    CHECK(timeout <= 20);
  }
}

TEST_CASE("verbs: a peer on another kind of network, and one that does not know this endpoint, are refused",
          "[verbs]") {
  play("infiniband");
  const auto infiniband = make_transport("verbs");
  const auto one = infiniband->open(config);
  play("rxe");
  const auto ethernet = make_transport("verbs");
  const auto other = ethernet->open(config);
  CHECK(says(refusal(ucclEpInvalidArgument, [&] { other->connect(1, 0, one->address()); }), "InfiniBand"));
  CHECK(says(refusal(ucclEpInvalidArgument, [&] { other->connect(1, 7, other->address()); }), "2 peers"));
}

}  // namespace ucclep::transport
