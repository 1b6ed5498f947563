// SPDX-License-Identifier: Apache-2.0
// What ofi says when something is not there.
#include <catch2/catch.hpp>
#include <string>

#include "transport/ofi/library.hpp"
#include "transport/refusal.hpp"
#include "transport/transport.hpp"

namespace ucclep::transport {

using test::refusal;
using test::says;

TEST_CASE("ofi: without libfabric, or with something else in its place, there is an error message", "[ofi]") {
  CHECK(says(refusal(ucclEpNotSupported, [] { ofi::Library::open("libnosuchfabric.so"); }), "libnosuchfabric.so"));
  CHECK(says(refusal(ucclEpNotSupported, [] { ofi::Library::open("libm.so.6"); }), "has no function fi_getinfo"));
}

TEST_CASE("ofi: a provider or a NIC that is not there is answered with those that are", "[ofi][build-tree]") {
  const Config config{nullptr, 1, 16, 16, 1000, 0};
  const std::string provider = refusal(ucclEpNotSupported, [&] { make_transport("ofi:nosuchprovider")->open(config); });
  CHECK(says(provider, "nosuchprovider"));
  CHECK(says(provider, "tcp"));
  Config strange = config;
  strange.nic = "nosuchnic";
  const std::string nic = refusal(ucclEpInvalidArgument, [&] { make_transport("ofi:tcp")->open(strange); });
  CHECK(says(nic, "nosuchnic"));
  CHECK(says(nic, "lo"));
}

// Not under a sanitizer: the provider net of libfabric 1.17 leaks.
TEST_CASE("ofi: without a name it takes a provider that reaches other machines", "[ofi][build-tree][slow]") {
  const auto transport = make_transport("ofi");
  const auto endpoint = transport->open({nullptr, 1, 16, 16, 1000, 0});
  CHECK(endpoint->traits().memory == UCCLEP_MEMORY_HOST);
  CHECK(endpoint->traits().max_message >= 1 << 20);
}

TEST_CASE("ofi: a peer with another provider is refused", "[ofi][build-tree]") {
  const Config config{nullptr, 1, 16, 16, 1000, 0};
  const auto tcp = make_transport("ofi:tcp"), shm = make_transport("ofi:shm");
  const auto one = tcp->open(config), other = shm->open(config);
  const std::string message = refusal(ucclEpInvalidArgument, [&] { one->connect(0, 0, other->address()); });
  CHECK(says(message, "shm"));
  CHECK(says(message, "tcp"));
}

}  // namespace ucclep::transport
