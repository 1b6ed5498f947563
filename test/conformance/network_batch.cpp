// SPDX-License-Identifier: Apache-2.0
#include "conformance/network_batch.hpp"

#include "conformance/overflow.hpp"

namespace ucclep::test {

Batch::Batch(const Rank& rank, ucclEpComm_t comm, const std::vector<Handle>& handles, const Scenario& scenario,
             uint64_t first_seed)
    : rank_(rank), comm_(comm), handles_(handles), scenario_(scenario) {
  for (size_t i = 0; i < handles.size(); ++i) {
    seeds_.push_back(first_seed + i);
    exchanges_.emplace_back(rank, comm, scenario, seeds_.back());
    // Gradients are other data for the routing of the handle.
    if (scenario.pass == UCCLEP_PASS_BACKWARD) exchanges_.back().refresh(seeds_.back() + 1000);
  }
}

void Batch::split(uint64_t draw) {
  split_ = true;
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    const bool whole = draw % 2 != 0 && mix(draw, static_cast<uint64_t>(rank_.rank), i) % 2 != 0;
    exchanges_[i].dispatch_config.send_only = exchanges_[i].combine_config.send_only = whole ? 0 : 1;
  }
}

void Batch::register_windows(uint64_t draw) {
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    const auto share = [=](int rank, Which which) {
      constexpr Exposed some[] = {Exposed::whole, Exposed::whole, Exposed::half, Exposed::no};
      return some[mix(draw, static_cast<uint64_t>(rank), which, i) % std::size(some)];
    };
    windows_.emplace_back(rank_, comm_, exchanges_[i], share);
  }
}

void Batch::update(size_t i, ucclEpStream_t stream) {
  if (!scenario_.carried && scenario_.pass == UCCLEP_PASS_FORWARD) exchanges_[i].update(handles_[i], stream);
}

void Batch::enqueue(ucclEpStream_t stream) {
  if (split_) return enqueue_phases(stream);
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    update(i, stream);
    exchanges_[i].dispatch(handles_[i], stream);
    exchanges_[i].combine(handles_[i], stream);
  }
}

// All are in flight before the first of them is completed.
void Batch::enqueue_phases(ucclEpStream_t stream) {
  for (size_t i = 0; i < exchanges_.size(); ++i) update(i, stream);
  for (size_t i = 0; i < exchanges_.size(); ++i) exchanges_[i].dispatch(handles_[i], stream);
  complete_all(1, stream);
  for (size_t i = 0; i < exchanges_.size(); ++i) exchanges_[i].combine(handles_[i], stream);
  complete_all(exchanges_.size() - 1, stream);
}

void Batch::complete_all(size_t first, ucclEpStream_t stream) {
  for (size_t i = 0; i < handles_.size(); ++i) {
    ok(ucclEpComplete(handles_[(first + i) % handles_.size()], stream), "ucclEpComplete");
  }
}

void Batch::check() {
  for (Exchange& exchange : exchanges_) {
    if (scenario_.pass == UCCLEP_PASS_FORWARD) exchange.check_counters();
    exchange.check_dispatch();
    exchange.check_combine();
  }
  check_overflow_record(comm_, scenario_, seeds_, rank_.rank);
}

}  // namespace ucclep::test
