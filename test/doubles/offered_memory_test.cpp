// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is there already, offered to peers over the doubles.
#include <unistd.h>

#include "doubles/machine.hpp"

namespace ucclep::test {
namespace {

using gpu::DriverFacts;

TEST_CASE("gpu device: any part of memory that is there can be offered", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Device &owner = machine.first(), &peer = machine.second();
    auto* shareable = static_cast<char*>(owner.alloc_shareable(10'000, true));
    auto* ordinary = static_cast<char*>(owner.alloc(10'000));
    const std::vector<char> content(300, 'x');
    for (char* memory : {shareable, ordinary}) {
      owner.memcpy_async(memory + 500, content.data(), content.size(), nullptr);
      REQUIRE(owner.stream_synchronize(nullptr, timeout_ms) == ucclEpSuccess);
      const auto near = owner.offer(memory + 500, 300, false);
      CHECK(near->data() == memory + 500);
      CHECK(near->bytes() == 300);
      for (int i = 0; i < 2; ++i) peer.allow(*near);  // the driver is asked or told as often as it likes
      owner.allow(*near);
    }
    const auto by_descriptor = owner.offer(shareable + 500, 300, true);
    CHECK(by_descriptor->ticket().way == MemoryTicket::Way::descriptor);
    const auto mapped = peer.map(by_descriptor->ticket(), Fd(dup(by_descriptor->fd())));
    CHECK(mapped->data() != by_descriptor->data());
    CHECK(download<char>(peer, mapped->data(), 300) == content);
    const auto by_handle = owner.offer(ordinary + 500, 300, true);
    CHECK(by_handle->ticket().way == MemoryTicket::Way::ipc_handle);
    CHECK(by_handle->ticket().offset == 500);
    CHECK(by_handle->fd() == -1);
    // Drivers open no handle of the own process; that another one does is a case of the conformance suite.
    is_refused(ucclEpNotSupported, {"cannot open the IPC handle of 10000 bytes: invalid context"},
               [&] { peer.map(by_handle->ticket(), Fd()); });
    owner.free(shareable);
    owner.free(ordinary);
  }
}

TEST_CASE("gpu device: memory that cannot be offered, and what the driver says of it", "[gpu_device]") {
  for (const DriverFacts* facts : both_drivers) {
    INFO(facts->vendor);
    Machine machine(*facts);
    Device &owner = machine.first(), &peer = machine.second();
    const int before = machine.dbl.live_objects();
    {
      auto* shareable = static_cast<char*>(owner.alloc_shareable(10'000, true));
      auto* ordinary = static_cast<char*>(owner.alloc(10'000));
      char on_stack[100];
      for (const bool beyond_process : {false, true}) {
        is_refused(ucclEpNotSupported, {"the 100 bytes at", "the driver has no allocation there"},
                   [&] { owner.offer(on_stack, 100, beyond_process); });
        is_refused(ucclEpNotSupported, {"the 9901 bytes at", "the allocation there ends after 9900"},
                   [&] { owner.offer(ordinary + 100, 9901, beyond_process); });
        const Setting failure("UCCLEP_DOUBLE_FAIL", "ipc_get:801");
        is_refused(ucclEpNotSupported, {"and has no IPC handle: operation not supported (code 801)"},
                   [&] { owner.offer(ordinary, 100, beyond_process); });
      }
      {
        const Setting failure("UCCLEP_DOUBLE_FAIL", "allocation_export:801");
        is_refused(ucclEpNotSupported, {"no file descriptor", "operation not supported (code 801)"},
                   [&] { owner.offer(shareable, 100, true); });
      }
      const auto of_shareable = owner.offer(shareable, 100, false), of_ordinary = owner.offer(ordinary, 100, false);
      {
        const Setting failure("UCCLEP_DOUBLE_FAIL", "get_access:719");
        is_refused(ucclEpUnhandledDeviceError,
                   {"reading a device's access to memory failed: unspecified launch failure"},
                   [&] { peer.allow(*of_shareable); });
      }
      {
        const Setting failure("UCCLEP_DOUBLE_FAIL", "set_access:801");
        is_refused(ucclEpNotSupported, {"cannot enable access for a device of another rank: operation not supported"},
                   [&] { peer.allow(*of_shareable); });
      }
      const bool cuda = facts->kind == UCCLEP_DEVICE_CUDA;
      const Setting failure("UCCLEP_DOUBLE_FAIL", cuda ? "enable_peer_context:801" : "enable_peer_device:801");
      is_refused(ucclEpNotSupported, {"a device of another rank cannot reach its device: operation not supported"},
                 [&] { peer.allow(*of_ordinary); });
      owner.free(shareable);
      owner.free(ordinary);
    }
    CHECK(machine.dbl.live_objects() == before);
    CHECK(machine.current() == nullptr);
  }
}

}  // namespace
}  // namespace ucclep::test
