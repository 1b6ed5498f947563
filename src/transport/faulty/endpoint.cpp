// SPDX-License-Identifier: Apache-2.0
#include "transport/faulty/endpoint.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include "base/log.hpp"
#include "transport/error_message.hpp"

namespace ucclep::transport {
namespace {

constexpr size_t max_repeats = 256;  // that wait at a time
// An operation may become two of the inner endpoint's.
Config with_room_for_halves(Config config) {
  config.sends *= 2;
  return config;
}

constexpr const char* killed = "faulty: this endpoint was killed";

}  // namespace

FaultyEndpoint::FaultyEndpoint(const FaultSettings& settings, Transport& inner, const Config& config)
    : settings_(settings),
      table_(config),
      inner_(inner.open(with_room_for_halves(config))),
      traits_(inner_->traits()),
      travels_(table_.slots()),
      lines_(config.peers),
      dice_(settings.seed),
      apart_(traits_.ordered == 1) {
  traits_.ordered = 0;
  traits_.sends = config.sends;
  if (settings_.hide_source) traits_.reports_source = 0;
  if (settings_.hide_length || apart_) traits_.reports_length = 0;
  moving_.reserve(travels_.size());
  repeats_.reserve(max_repeats);
}

FaultyEndpoint::~FaultyEndpoint() {
  const FaultStatistics& s = statistics_;
  log::info("faulty",
            "writes {}, payloads overtaken {}, immediates overtaken {}, depth {}, withheld {}, repeated {}, broken {}, "
            "killed {}, outages {}, stalls {}",
            s.writes, s.payloads_overtaken, s.immediates_overtaken, s.depth, s.withheld, s.repeated, s.broken, s.killed,
            s.outages, s.stalls);
}

void FaultyEndpoint::connect(uint32_t peer, uint32_t self, std::span<const std::byte> address) {
  inner_->connect(peer, self, address);
  lines_[peer].emplace(Line{Dice(settings_.seed * 0x10001 + self * 0x101 + peer)});
  dice_ = Dice(settings_.seed ^ uint64_t{self} << 32);
  here_ = settings_.at == FaultSettings::any || settings_.at == self;
  while (table_.next(peer) != SendTable::none) set_out(peer);
}

void FaultyEndpoint::disconnect(uint32_t peer) {
  inner_->disconnect(peer);
  if (peer >= lines_.size()) return;
  stop(peer);
  table_.forget(peer);
  lines_[peer].reset();
  travels_.resize(table_.slots());
  moving_.reserve(travels_.size());
}

uint32_t FaultyEndpoint::post(uint32_t peer, std::span<const Operation> operations) noexcept {
  uint32_t taken = 0;
  while (taken < operations.size() && table_.take(peer, operations[taken])) {
    ++taken;
    if (!lines_[peer] || table_.broken(peer)) continue;
    set_out(peer);
    if (here_) strike(peer);
  }
  return taken;
}

// What was asked for at this operation.
void FaultyEndpoint::strike(uint32_t peer) noexcept {
  Line& line = *lines_[peer];
  const bool chosen = settings_.peer == FaultSettings::any || settings_.peer == peer;
  if (chosen && line.operations == settings_.outage_at) {
    ++statistics_.outages;
    line.resumes = Clock::now() + std::chrono::milliseconds(settings_.ms);
  }
  if (chosen && line.operations == settings_.break_at) break_line(peer);
  ++operations_;
  if (operations_ == settings_.stall_at) stalls_ = true;
  if (operations_ == settings_.kill_at) die();
}

uint32_t FaultyEndpoint::poll(std::span<Completion> completions) noexcept {
  ++now_;
  if (stalls_ && moving_.empty()) stand_still();
  if (dead_) return report_death(completions);
  table_.watch();
  // In turns, so that neither keeps the other from a caller with little room.
  reports_first_ = !reports_first_;
  uint32_t count = reports_first_ ? table_.report(completions) : 0;
  count += take_from_inner(completions.subspan(count));
  move();
  count += repeat(completions.subspan(count));
  return count + table_.report(completions.subspan(count));
}

void FaultyEndpoint::set_out(uint32_t peer) noexcept {
  const uint32_t slot = table_.next(peer);
  table_.begin(slot);
  Line& line = *lines_[peer];
  travels_[slot] = {At::before_payload, now_ + line.dice.up_to(settings_.delay), line.operations++, 0};
  moving_.push_back(slot);
}

// What is due goes on by one step.
void FaultyEndpoint::move() noexcept {
  for (size_t i = 0; i < moving_.size();) {
    const uint32_t slot = moving_[i];
    if (travels_[slot].due <= now_) step(slot);
    if (travels_[slot].at == At::nowhere) {
      moving_[i] = moving_.back();
      moving_.pop_back();
    } else {
      ++i;
    }
  }
}

void FaultyEndpoint::step(uint32_t slot) noexcept {
  Travel& travel = travels_[slot];
  const bool broken = table_.broken(table_.peer_of(slot));
  if (travel.at == At::before_report || (broken && travel.unreturned == 0)) {
    travel.at = At::nowhere;
    table_.returned(slot);
  } else if (!broken && (travel.at == At::before_payload || travel.at == At::before_immediate) &&
             carries(*lines_[table_.peer_of(slot)])) {
    leave(slot);
  }
}

bool FaultyEndpoint::carries(Line& line) noexcept {
  if (line.resumes && *line.resumes <= Clock::now()) line.resumes.reset();
  return !line.resumes;
}

// The payload, then the immediate; or both at once where the inner endpoint would not keep that order.
void FaultyEndpoint::leave(uint32_t slot) noexcept {
  Travel& travel = travels_[slot];
  const uint32_t peer = table_.peer_of(slot);
  Line& line = *lines_[peer];
  Operation operation = table_[slot];
  const bool with_imm = (operation.flags & UCCLEP_OPERATION_IMM) != 0;
  const bool whole = !apart_ || !with_imm || operation.bytes == 0;
  const bool payload = travel.at == At::before_payload;
  operation.cookie = slot;
  if (payload && !whole) operation.flags &= ~uint32_t{UCCLEP_OPERATION_IMM};
  if (!payload) operation.bytes = 0;
  if (inner_->post(peer, {&operation, 1}) == 0) return;
  ++travel.unreturned;
  if (payload) {
    ++statistics_.writes;
    note(travel.number, line.payloads_end, statistics_.payloads_overtaken);
  }
  if (with_imm && (whole || !payload)) note(travel.number, line.immediates_end, statistics_.immediates_overtaken);
  travel.at = payload && !whole ? At::before_immediate : At::under_way;
  travel.due = now_ + line.dice.up_to(settings_.delay);
}

void FaultyEndpoint::note(uint64_t number, uint64_t& end, uint64_t& overtaken) noexcept {
  if (number < end) {
    ++overtaken;
    statistics_.depth = std::max(statistics_.depth, end - number);
  }
  end = std::max(end, number + 1);
}

void FaultyEndpoint::came_back(uint32_t slot) noexcept {
  Travel& travel = travels_[slot];
  if (--travel.unreturned > 0 || travel.at != At::under_way) return;
  const uint64_t wait = lines_[table_.peer_of(slot)]->dice.up_to(settings_.withhold);
  if (wait > 0) ++statistics_.withheld;
  travel.at = At::before_report;
  travel.due = now_ + wait;
}

// What is on its way to the peer goes no further. The inner endpoint reports nothing but errors of it any more.
void FaultyEndpoint::stop(uint32_t peer) noexcept {
  for (const uint32_t slot : moving_) {
    if (table_.peer_of(slot) != peer) continue;
    travels_[slot].at = At::nowhere;
    table_.returned(slot);
  }
  std::erase_if(moving_, [&](uint32_t slot) { return travels_[slot].at == At::nowhere; });
}

void FaultyEndpoint::break_line(uint32_t peer) noexcept {
  ++statistics_.broken;
  const ErrorMessage message("faulty: the connection to peer {} broke at operation {}", peer, settings_.break_at);
  table_.break_connection(peer, ucclEpRemoteError, message.view());
  inner_->disconnect(peer);
  stop(peer);
}

void FaultyEndpoint::die() noexcept {
  ++statistics_.killed;
  dead_ = true;
  for (uint32_t peer = 0; peer < lines_.size(); ++peer) table_.break_connection(peer, ucclEpSystemError, killed);
}

void FaultyEndpoint::stand_still() noexcept {
  stalls_ = false;
  ++statistics_.stalls;
  std::this_thread::sleep_for(std::chrono::milliseconds(settings_.ms));
}

uint32_t FaultyEndpoint::take_from_inner(std::span<Completion> out) noexcept {
  std::array<Completion, 64> completions;
  const uint32_t got = inner_->poll(std::span(completions).first(std::min(out.size(), completions.size())));
  uint32_t count = 0;
  for (const Completion& completion : std::span(completions).first(got)) {
    if (completion.kind == UCCLEP_COMPLETION_ARRIVAL) {
      out[count++] = disguised(completion);
    } else if (completion.kind == UCCLEP_COMPLETION_DONE) {
      came_back(static_cast<uint32_t>(completion.cookie));
    } else if (completion.peer >= lines_.size()) {
      out[count++] = completion;  // the whole endpoint is lost
    } else if (completion.operation == UCCLEP_OPERATION_NONE) {
      table_.break_connection(completion.peer, completion.code, completion.words);
      stop(completion.peer);
    }
  }
  return count;
}

Completion FaultyEndpoint::disguised(Completion arrival) noexcept {
  if (traits_.reports_source == 0) arrival.peer = UCCLEP_UNKNOWN_PEER;
  if (traits_.reports_length == 0) arrival.bytes = UCCLEP_UNKNOWN_LENGTH;
  if (dice_.percent(settings_.repeat) && repeats_.size() < max_repeats) {
    repeats_.push_back({arrival, now_ + dice_.up_to(settings_.delay)});
  }
  return arrival;
}

uint32_t FaultyEndpoint::repeat(std::span<Completion> out) noexcept {
  uint32_t count = 0;
  for (size_t i = 0; i < repeats_.size() && count < out.size();) {
    if (repeats_[i].due > now_) {
      ++i;
      continue;
    }
    out[count++] = repeats_[i].arrival;
    ++statistics_.repeated;
    repeats_[i] = repeats_.back();
    repeats_.pop_back();
  }
  return count;
}

uint32_t FaultyEndpoint::report_death(std::span<Completion> out) noexcept {
  uint32_t count = 0;
  if (!death_reported_ && !out.empty()) {
    out[count++] = {.kind = UCCLEP_COMPLETION_ERROR,
                    .peer = UCCLEP_UNKNOWN_PEER,
                    .bytes = 0,
                    .cookie = 0,
                    .imm = 0,
                    .operation = UCCLEP_OPERATION_NONE,
                    .code = ucclEpSystemError,
                    .words = killed};
    death_reported_ = true;
  }
  return count + table_.report(out.subspan(count));
}

}  // namespace ucclep::transport
