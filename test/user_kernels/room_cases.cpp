// SPDX-License-Identifier: Apache-2.0
// Operations beside a kernel of a user's that holds SMs for as long as it likes: they are slow, and end.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/exchange.hpp"
#include "launch_user.hpp"
#include "room_kernels.hpp"
#include "support/environment.hpp"
#include "support/test_env.hpp"

namespace ucclep::test {
namespace {

// On the host device, with so many SMs, unless the run has a mode of its own.
std::optional<Environment> on_host(const char* mode) {
  if (std::getenv("UCCLEP_HOST_MODE") != nullptr) return std::nullopt;
  return std::make_optional<Environment>("UCCLEP_HOST_MODE", mode);
}

// Holds so many SMs of the handle's device while it lives.
class Held {
 public:
  Held(const Comm& comm, ucclEpHandle_t handle, unsigned sms) : comm_(comm), stream_(comm) {
    void* words = nullptr;
    ok(ucclEpMemAllocHost(comm, &words, 2 * sizeof(uint64_t)), "ucclEpMemAllocHost");
    args_ = {static_cast<uint64_t*>(words), static_cast<uint64_t*>(words) + 1};
    const UserGrid grid{sms, 128, user_room(handle).shared_bytes};  // no other block fits beside one of these
    launch_user(handle, "room_hold", &args_, sizeof args_, stream_, grid);
    wait_until("the kernel to hold its SMs", [&] { return __atomic_load_n(args_.running, __ATOMIC_RELAXED) >= sms; });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    __atomic_store_n(args_.end, uint64_t{1}, __ATOMIC_RELAXED);
    if (std::uncaught_exceptions() != 0) return;  // the memory may still be read
    stream_.synchronize();
    ucclEpMemFreeHost(comm_, args_.running);
  }

 private:
  const Comm& comm_;
  Stream stream_;
  HoldArgs args_{};
};

struct Party {
  Party(const Rank& rank, const Comm& comm, const Scenario& scenario)
      : group(make_group(comm, group_config({scenario}))),
        handle(make_handle(group, handle_config(scenario))),
        stream(comm),
        exchange(rank, comm, scenario) {
    exchange.dispatch_out.cumulative_tokens_per_expert = nullptr;  // calls are repeated
  }
  void call() {
    exchange.update(handle, stream);
    exchange.dispatch(handle, stream);
    exchange.combine(handle, stream);
  }

  Group group;
  Handle handle;
  Stream stream;
  Exchange exchange;
};

// long_rows: more than fit as lines on a GPU; on the host device a few do not.
std::vector<Scenario> kinds(int ranks, int num_sms, bool long_rows) {
  std::vector<Scenario> all;
  const auto add = [&](Layout layout, int hidden, int tokens) -> Scenario& {
    all.push_back({.layout = layout, .ranks = ranks, .experts = 4 * ranks, .max_tokens = tokens});
    all.back().hidden = hidden;
    all.back().num_sms = num_sms;
    return all.back();
  };
  add(Layout::ll_expert_major, 256, 8);
  add(Layout::ll_rank_major, 256, 16);
  add(Layout::ll_expert_major, 256, 8).weights = Weights::with_combine;
  add(Layout::ll_expert_major, long_rows ? 7168 : 512, long_rows ? 320 : 70);  // BULK form
  add(Layout::ht_flat, 256, 70);
  add(Layout::ht_expert_major, 512, 300);
  return all;
}

void check(Party& party, const Comm& comm) {
  party.stream.synchronize();
  party.exchange.check_dispatch();
  party.exchange.check_combine();
  no_async_error(comm);
}

// Of the SMs of each rank one, half and all but one are held. Ranks that share a GPU also share what is left.
void beside(int ranks) {
  const auto mode = on_host("residency=5");
  run_ranks(ranks, [&](Rank& rank) {
    const Comm comm(rank, comm_config(rank));
    const UserRoom room = user_room(Party(rank, comm, kinds(ranks, 0, false).front()).handle);
    for (const unsigned held : {1u, room.sms / 2, room.sms - 1}) {
      const int num_sms = room.shared ? static_cast<int>(room.sms - held) : 0;
      for (const Scenario& scenario : kinds(ranks, num_sms, !room.host)) {
        Party party(rank, comm, scenario);
        party.call();  // also so that nothing is loaded later
        check(party, comm);
        party.exchange.refresh(2);
        const Held holder(comm, party.handle, held);
        party.call();
        check(party, comm);
      }
    }
  });
}

TEST_CASE("room: operations beside a kernel that holds SMs", "[reduced][room]") {
  beside(1);
  beside(2);
}

// Half of the SMs are held, and each group may use a quarter: what one leaves is enough for the other.
TEST_CASE("room: two groups in other orders beside a kernel that holds SMs", "[room]") {
  const auto mode = on_host("residency=8");
  run_ranks(2, [&](Rank& rank) {
    const Comm comm(rank, comm_config(rank));
    const UserRoom room = user_room(Party(rank, comm, kinds(2, 0, false).front()).handle);
    const std::vector<Scenario> all = kinds(2, static_cast<int>(std::max(1u, room.sms / 4)), false);
    Party parties[2] = {{rank, comm, all[0]}, {rank, comm, all[4]}};
    for (Party& party : parties) party.call(), check(party, comm), party.exchange.refresh(2);
    const Held holder(comm, parties[0].handle, room.sms / 2);
    constexpr unsigned batch = 20;  // between two looks
    const unsigned operations = iterations(room.host ? 2 * batch : 10000);
    for (unsigned done = 0; done < operations; done += batch) {
      for (unsigned i = 0; i < batch; ++i) {
        for (const int which : {rank.rank % 2, 1 - rank.rank % 2}) parties[which].call();
      }
      for (Party& party : parties) check(party, comm);
    }
  });
}

}  // namespace
}  // namespace ucclep::test
