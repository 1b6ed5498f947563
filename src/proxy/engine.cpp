// SPDX-License-Identifier: Apache-2.0
#include "proxy/engine.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/attempt.hpp"
#include "base/error.hpp"

namespace ucclep::proxy {
namespace {

constexpr int64_t let_go_ms = 10'000;
constexpr int64_t agree_ms = 500;  // of the time that a group has to stop

}  // namespace

ProxyGroup::ProxyGroup(const GroupSpec& spec, std::vector<GroupShare::Parts> parts, std::vector<ProxyThread*> threads,
                       const FaultSink& faults)
    : rank_(spec.shape.rank), credits_(spec.shape.credits), threads_(std::move(threads)) {
  const auto consumed = std::make_shared<ConsumedHere>(spec.shape.first);
  shares_.reserve(parts.size());
  for (GroupShare::Parts& part : parts) {
    ports_ += static_cast<uint32_t>(part.ports.size());
    shares_.push_back(std::make_shared<GroupShare>(spec.shape, std::move(part), spec.words, consumed, faults,
                                                   spec.copies ? spec.copies() : nullptr, spec.flush));
  }
}

void ProxyGroup::start() {
  for (size_t i = 0; i < shares_.size(); ++i) threads_[i]->adopt(shares_[i]);
}

ProxyGroup::~ProxyGroup() {
  leave();
}

bool ProxyGroup::leave() {
  const Deadline deadline = Deadline::after_ms(let_go_ms);
  bool left = true;
  for (size_t i = 0; i < threads_.size(); ++i) left = threads_[i]->let_go(*shares_[i], deadline) && left;
  threads_.clear();
  return left;
}

void ProxyGroup::quiesce() {
  for (const auto& share : shares_) share->quiesce();
}

std::vector<Transfer> ProxyGroup::end() {
  std::vector<Transfer> all;
  if (!leave()) return all;
  for (const auto& share : shares_) {
    if (share->log() == nullptr) continue;
    const std::vector<Transfer> part = share->log()->all();
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

void ProxyGroup::stop(Deadline deadline, const Allgather& allgather) {
  const Deadline work = deadline.leaving_ms(agree_ms);
  std::optional<Error> error;
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (const Error& failed) {
      if (!error) error = failed;
    }
  };
  attempt([&] {
    for (const auto& share : shares_) share->drain();
    wait([](const GroupShare& share) { return share.drained(); }, work, "execute all commands");
    for (const auto& share : shares_) {
      if (const auto fault = share->first_fault()) throw Error(fault->code, fault->message);
    }
  });
  // Whoever is drained still returns credits, until all are. When one is not, nobody minds what closes.
  try {
    agree(allgather, rank_, error ? &*error : nullptr);
  } catch (const Error&) {
    quiesce();
    throw;
  }
  attempt([&] {
    quiesce();
    wait([](const GroupShare& share) { return share.quiesced(); }, work, "finish the operations in flight");
  });
  agree(allgather, rank_, error ? &*error : nullptr);
}

template <class Done>
void ProxyGroup::wait(Done&& done, Deadline deadline, const char* what) const {
  for (const auto& share : shares_) {
    while (!done(*share)) {
      if (deadline.expired())
        fail(ucclEpTimeout, "the proxy threads did not {} within {} ms", what, deadline.total_ms());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

// Step by step, each share while its thread does not touch it.
template <class Step>
void ProxyGroup::paused(Step&& step) {
  for (size_t i = 0; i < threads_.size(); ++i) {
    if (!threads_[i]->let_go(*shares_[i], Deadline::after_ms(let_go_ms))) {
      fail(ucclEpTimeout, "a proxy thread did not pause within {} ms", let_go_ms);
    }
    const std::optional<Error> error = attempt([&] { step(*shares_[i]); });
    threads_[i]->adopt(shares_[i]);
    if (error) throw *error;
  }
}

void ProxyGroup::keep_window(uint32_t id, void* data, uint64_t bytes) {
  paused([&](GroupShare& share) { share.keep_window(id, data, bytes); });
}

std::vector<transport::Key> ProxyGroup::offer_window(uint32_t id, const transport::Memory& memory) {
  std::vector<transport::Key> keys(ports_);
  paused([&](GroupShare& share) { share.register_window(id, memory, keys); });
  return keys;
}

void ProxyGroup::import_window(uint32_t id, const std::vector<std::vector<transport::Key>>& keys) {
  paused([&](GroupShare& share) { share.import_window(id, keys); });
}

void ProxyGroup::forget_window(uint32_t id) {
  paused([&](GroupShare& share) { share.forget_window(id); });
}

// The second calm round from now on has begun after now.
void ProxyGroup::settle(Deadline deadline) const {
  std::map<const GroupShare*, uint64_t> before;
  for (const auto& share : shares_) before[share.get()] = share->calm_rounds();
  wait([&](const GroupShare& share) { return share.calm_rounds() >= before[&share] + 2; }, deadline,
       "execute the puts of kernels");
}

GroupStatistics ProxyGroup::statistics() const {
  GroupStatistics sum;
  for (const auto& share : shares_) add_to(sum, share->counts());
  return sum;
}

Engine::Engine(EngineConfig config) : config_(std::move(config)) {
  if (config_.cpus.empty()) fail(ucclEpInvalidArgument, "the proxy engine has no threads: expected at least 1");
  nics_.reserve(config_.nics.size());
  for (const NicConfig& nic : config_.nics) nics_.push_back(std::make_unique<Nic>(nic));
  threads_.reserve(config_.cpus.size());
  for (uint32_t i = 0; i < config_.cpus.size(); ++i) {
    threads_.push_back(std::make_unique<ProxyThread>(config_.rank, i, config_.cpus[i]));
  }
}

std::unique_ptr<ProxyGroup> Engine::attach(GroupSpec spec, const Talk& talk) {
  std::vector<ProxyThread*> threads;
  threads.reserve(threads_.size());
  for (const auto& thread : threads_) threads.push_back(thread.get());
  std::unique_ptr<ProxyGroup> group;
  connect_group(spec, nics_, static_cast<uint32_t>(threads_.size()), talk, [&](auto parts) {
    group = std::make_unique<ProxyGroup>(spec, std::move(parts), threads, spec.faults ? spec.faults : config_.faults);
  });
  group->start();
  return group;
}

std::vector<ThreadStatistics> Engine::statistics() const {
  std::vector<ThreadStatistics> all;
  all.reserve(threads_.size());
  for (const auto& thread : threads_) all.push_back(thread->statistics());
  return all;
}

}  // namespace ucclep::proxy
