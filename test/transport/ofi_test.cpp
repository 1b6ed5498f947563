// SPDX-License-Identifier: Apache-2.0
// What ofi says when something is not there.
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <set>
#include <string>

#include "transport/ofi/library.hpp"
#include "transport/ofi/regions.hpp"
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

namespace {

const Config config_of_two{nullptr, 1, 16, 16, 2000, 0};

ofi::OfiKey bytes_of(const Key& key) {
  ofi::OfiKey own;
  std::memcpy(&own, key.bytes, sizeof(own));
  return own;
}

// A stranger knows where an endpoint is, and guesses the key of a region of its. What a read of it ends with.
uint32_t guess(Transport& transport, Endpoint& owner, const Key& real, uint64_t number) {
  const auto stranger = transport.open(config_of_two);
  std::array<char, 64> window{};
  Key own, guessed = real;
  const uint32_t local = stranger->register_region({UCCLEP_MEMORY_HOST, 0, window.data(), window.size(), -1, 0}, &own);
  stranger->connect(0, 0, owner.address());
  ofi::OfiKey content = bytes_of(real);
  content.key = number;
  std::memcpy(guessed.bytes, &content, sizeof(content));
  Operation read{};
  read.kind = UCCLEP_OPERATION_READ;
  read.local_region = local;
  read.remote_region = stranger->import_region(0, guessed);
  read.bytes = window.size();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool posted = false;
  while (std::chrono::steady_clock::now() < limit) {
    std::array<Completion, 16> completions;
    owner.poll(completions);
    if (stranger->poll(completions) > 0) return completions[0].kind;
    posted = posted || stranger->post(0, {&read, 1}) == 1;
  }
  return UCCLEP_COMPLETION_ERROR;
}

}  // namespace

TEST_CASE("ofi: who guesses small keys reads nothing", "[ofi][build-tree]") {
  const auto transport = make_transport("ofi:tcp");
  const auto owner = transport->open(config_of_two);
  std::array<std::array<char, 64>, 3> windows{};
  std::set<uint64_t> keys;
  Key key;
  for (auto& window : windows) {
    owner->register_region({UCCLEP_MEMORY_HOST, 0, window.data(), window.size(), -1, 0}, &key);
    CHECK(bytes_of(key).key >> 32 != 0);  // once in four thousand million times it is not
    keys.insert(bytes_of(key).key);
  }
  CHECK(keys.size() == windows.size());
  CHECK(guess(*transport, *owner, key, bytes_of(key).key) == UCCLEP_COMPLETION_DONE);  // who knows it may
  for (uint64_t number = 0; number < 6; ++number) {
    CHECK(guess(*transport, *owner, key, number) == UCCLEP_COMPLETION_ERROR);
  }
}

}  // namespace ucclep::transport
