// SPDX-License-Identifier: Apache-2.0
// What a caller can get wrong before anything is sent.
#include <catch2/catch.hpp>
#include <cstring>

#include "transport/payload.hpp"

namespace ucclep::test {
namespace {

transport::Memory memory_of(void* data, uint64_t bytes) {
  return {.kind = UCCLEP_MEMORY_HOST, .device = 0, .data = data, .bytes = bytes, .fd = -1, .fd_offset = 0};
}

}  // namespace

TEST_CASE("transport: an endpoint for nobody, or on a NIC that does not exist, is refused", "[transport]") {
  run_team([](Member& me) {
    const auto transport = transport::make_transport(me.transport());
    Member::refused(ucclEpInvalidArgument, [&] { transport->open({nullptr, 0, 1, 1, 1000, 0}); });
    Member::refused(ucclEpInvalidArgument, [&] { transport->open({nullptr, 1, 0, 1, 1000, 0}); });
    Member::refused(ucclEpInvalidArgument, [&] { transport->open({nullptr, 1, 1, 0, 1000, 0}); });
    Member::refused(ucclEpInvalidArgument, [&] { transport->open({nullptr, 1, 1, 1, 0, 0}); });
    const auto message =
        Member::refused(ucclEpInvalidArgument, [&] { transport->open({"no-such-nic", 1, 1, 1, 1000, 0}); });
    check(message.find("no-such-nic") != std::string::npos, "the NIC is not named: " + message);
    me.barrier();
  });
}

TEST_CASE("transport: bytes that are no address, and connections that cannot be, are refused", "[transport]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    const auto garbage = [&](size_t bytes, int value) {
      const transport::Address address(bytes, std::byte(value));
      me.disconnect(peer);
      Member::refused(ucclEpInvalidArgument, [&] { me.endpoint().connect(static_cast<uint32_t>(peer), 0, address); });
    };
    me.barrier();
    for (size_t bytes : {size_t{0}, size_t{1}, me.address(peer).size(), size_t{5000}}) {
      garbage(bytes, 0);
      garbage(bytes, 0xa5);
    }
    const auto self = static_cast<uint32_t>(me.rank());
    Member::refused(ucclEpInvalidArgument, [&] { me.endpoint().connect(99, self, me.address(peer)); });
    me.barrier();
    me.connect(peer);
    Member::refused(ucclEpInvalidUsage, [&] { me.connect(peer); });
    me.barrier();
    me.send(peer, Member::with_imm(me.write(peer, 0, 4096, 64), self));
    me.finish();
    me.until([&] { return me.arrived().size() == 1; }, "a write after all that");
    me.barrier();
  });
}

TEST_CASE("transport: memory that cannot be a region is refused", "[transport]") {
  run_team([](Member& me) {
    transport::Endpoint& endpoint = me.endpoint();
    transport::Key key;
    Member::refused(ucclEpInvalidArgument, [&] { endpoint.register_region(memory_of(nullptr, 64), &key); });
    Member::refused(ucclEpInvalidArgument, [&] { endpoint.register_region(memory_of(me.window(), 0), &key); });
    transport::Memory strange = memory_of(me.window(), 64);
    strange.kind = 1 << 20;
    Member::refused(ucclEpNotSupported, [&] { endpoint.register_region(strange, &key); });
    Member::refused(ucclEpInvalidArgument, [&] { endpoint.deregister_region(12345); });
    const uint32_t region = endpoint.register_region(memory_of(me.window(), 64), &key);
    endpoint.deregister_region(region);
    Member::refused(ucclEpInvalidArgument, [&] { endpoint.deregister_region(region); });
    Member::refused(ucclEpInvalidUsage, [&] { endpoint.import_region(99, key); });
    me.barrier();
  });
}

TEST_CASE("transport: regions come and go while others are in use", "[transport]") {
  run_team([](Member& me) {
    const int peer = 1 - me.rank();
    for (uint32_t round = 0; round < 8; ++round) {
      SealedMemory memory = SealedMemory::create(65536);
      transport::Memory description = memory_of(memory.data(), memory.bytes());
      description.fd = memory.fd();
      transport::Key key;
      const uint32_t region = me.endpoint().register_region(description, &key);
      transport::Key theirs;
      std::memcpy(&theirs, me.exchange(std::as_bytes(std::span(&key, 1)))[static_cast<size_t>(peer)].data(),
                  sizeof(theirs));
      transport::Operation operation = me.write(peer, 0, 100, 5000);
      operation.remote_region = me.endpoint().import_region(static_cast<uint32_t>(peer), theirs);
      fill_payload(me.window(), round, 5000);
      me.send(peer, Member::with_imm(operation, round));
      me.until([&] { return me.arrived().size() == round + 1; }, "the write");
      check_payload(reinterpret_cast<std::byte*>(memory.data()) + 100, round, 5000);
      me.finish();
      me.barrier();
      me.endpoint().release_region(operation.remote_region);
      me.endpoint().deregister_region(region);
    }
    me.barrier();
  });
}

}  // namespace ucclep::test
