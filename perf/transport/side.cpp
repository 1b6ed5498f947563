// SPDX-License-Identifier: Apache-2.0
#include "transport/side.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>

#include "base/error.hpp"

namespace ucclep::perf {
namespace {

constexpr uint32_t other = 0;       // the number of the peer, at both sides
constexpr uint64_t alignment = 64;  // of a slot
constexpr uint32_t longest_chain = 64;

uint64_t slot_bytes(uint64_t bytes) {
  return std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
}

uint64_t window_bytes(const TransportOptions& options) {
  const uint64_t most_bytes = *std::max_element(options.bytes.begin(), options.bytes.end());
  const auto most_slots = static_cast<uint64_t>(*std::max_element(options.windows.begin(), options.windows.end()));
  return slot_bytes(most_bytes) * most_slots;
}

char byte_of(const TransportRun& run, uint64_t slot, uint64_t i) {
  return static_cast<char>(((run.number + 1) * 131 + slot * 31 + i) * 0x9e3779b97f4a7c15 >> 56);
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Side::Side(int side, const TransportOptions& options, Channel channel)
    : side_(side),
      options_(options),
      channel_(std::move(channel)),
      transport_(transport::make_transport(options.transport)),
      window_(make_side_memory(options, side, window_bytes(options))) {
  const auto sends = static_cast<uint32_t>(*std::max_element(options.windows.begin(), options.windows.end()));
  endpoint_ = transport_->open({options.nic.c_str(), 1, std::max(sends, 2u), std::max(2 * sends, 256u),
                                static_cast<uint32_t>(options.timeout_ms), UCCLEP_MEMORY_HOST});
  transport::Key key;
  region_ = endpoint_->register_region(window_->region(), &key);
  const transport::Address address = endpoint_->address();
  channel_.send(uint64_t{address.size()});
  channel_.send(address.data(), address.size());
  channel_.send(key);
  transport::Address theirs(channel_.receive<uint64_t>([] {}));
  channel_.receive(theirs.data(), theirs.size(), [] {});
  const auto their_key = channel_.receive<transport::Key>([] {});
  endpoint_->connect(other, 0, theirs);
  remote_ = endpoint_->import_region(other, their_key);
  chain_.resize(longest_chain);
}

void Side::poll() {
  std::array<transport::Completion, 64> completions;
  const uint32_t count = endpoint_->poll(completions);
  for (const transport::Completion& completion : std::span(completions).first(count)) {
    if (completion.kind == UCCLEP_COMPLETION_ARRIVAL) {
      ++arrived_;
      immediates_ += completion.imm;
    } else if (completion.kind == UCCLEP_COMPLETION_DONE) {
      ++done_;
    } else {
      fail(completion.code, "{}", completion.words);
    }
  }
}

void Side::until(uint64_t& count, uint64_t goal) {
  for (Deadline deadline = Deadline::after_ms(options_.timeout_ms); count < goal;) {
    const uint64_t before = count;
    for (int i = 0; i < 1000 && count < goal; ++i) poll();
    if (count != before) deadline = Deadline::after_ms(options_.timeout_ms);
    if (deadline.expired()) fail(ucclEpTimeout, "nothing came for {} ms", options_.timeout_ms);
  }
}

uint64_t Side::slots_of(const TransportRun& run) const {
  return run.test == TransportTest::write ? run.window : 1;
}

void Side::fill(const TransportRun& run) {
  for (uint64_t slot = 0; slot < slots_of(run); ++slot) {
    char* at = window_->data() + slot * slot_bytes(run.bytes);
    for (uint64_t i = 0; i < run.bytes; ++i) at[i] = side_ == 0 ? byte_of(run, slot, i) : '\0';
  }
}

void Side::post(uint32_t immediate, uint64_t slot, uint64_t bytes) {
  const uint64_t offset = slot * slot_bytes(bytes);
  const transport::Operation operation{.kind = UCCLEP_OPERATION_WRITE,
                                       .flags = UCCLEP_OPERATION_IMM | UCCLEP_OPERATION_INLINE,
                                       .local_region = region_,
                                       .remote_region = remote_,
                                       .local_offset = offset,
                                       .remote_offset = offset,
                                       .bytes = bytes,
                                       .cookie = posted_,
                                       .imm = immediate};
  while (endpoint_->post(other, {&operation, 1}) == 0) poll();
  ++posted_;
}

double Side::write_all(const TransportRun& run) {
  const uint64_t first = posted_, last = first + run.messages;
  const uint64_t answers = arrived_ + 1;
  const auto begin = Clock::now();
  for (Deadline deadline = Deadline::after_ms(60000 + options_.timeout_ms); posted_ < last;) {
    const uint64_t room = std::min(run.window - (posted_ - done_), last - posted_);
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(room, longest_chain));
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t number = posted_ - first + i;
      const uint64_t offset = number % run.window * slot_bytes(run.bytes);
      chain_[i] = {.kind = UCCLEP_OPERATION_WRITE,
                   .flags = UCCLEP_OPERATION_IMM | UCCLEP_OPERATION_INLINE,
                   .local_region = region_,
                   .remote_region = remote_,
                   .local_offset = offset,
                   .remote_offset = offset,
                   .bytes = run.bytes,
                   .cookie = number,
                   .imm = static_cast<uint32_t>(number)};
    }
    if (count > 0) posted_ += endpoint_->post(other, std::span(chain_).first(count));
    poll();
    if ((posted_ & 1023) == 0 && deadline.expired()) fail(ucclEpTimeout, "a run that does not end");
  }
  until(arrived_, answers);  // the other side has everything
  const double seconds = seconds_since(begin);
  until(done_, posted_);
  return seconds;
}

double Side::trips(const TransportRun& run) {
  const uint64_t before = arrived_;
  const auto begin = Clock::now();
  for (uint64_t i = 0; i < run.messages; ++i) {
    if (side_ == 0) post(static_cast<uint32_t>(i), 0, run.bytes);
    until(arrived_, before + i + 1);
    if (side_ == 1) post(static_cast<uint32_t>(i), 0, run.bytes);
  }
  const double seconds = seconds_since(begin);
  until(done_, posted_);
  return seconds;
}

TransportResult Side::lead(const TransportRun& run) {
  channel_.send(run);
  if (run.test == TransportTest::end) return {};
  fill(run);
  channel_.receive<char>([&] { poll(); });  // the other side is ready
  const double seconds = run.test == TransportTest::write ? write_all(run) : trips(run);
  TransportResult result = channel_.receive<TransportResult>([&] { poll(); });
  result.seconds = seconds;
  return result;
}

void Side::follow() {
  for (;;) {
    const auto run = channel_.receive<TransportRun>([&] { poll(); });
    if (run.test == TransportTest::end) return;
    fill(run);
    immediates_ = 0;
    const uint64_t all = arrived_ + run.messages;
    channel_.send('r');
    if (run.test == TransportTest::write) {
      until(arrived_, all);
      post(0, 0, 0);
      until(done_, posted_);
    } else {
      trips(run);
    }
    channel_.send(take(run));
  }
}

// What has arrived, by the sum of the immediates and by every byte.
TransportResult Side::take(const TransportRun& run) {
  if (options_.corrupt && run.bytes > 0) window_->data()[run.bytes / 2] ^= 1;
  TransportResult result;
  result.verified = run.messages;
  if (immediates_ != run.messages * (run.messages - 1) / 2) result.wrong = run.messages;
  for (uint64_t slot = 0; slot < std::min(slots_of(run), run.messages); ++slot) {
    const char* at = window_->data() + slot * slot_bytes(run.bytes);
    uint64_t i = 0;
    while (i < run.bytes && at[i] == byte_of(run, slot, i)) ++i;
    if (i < run.bytes) ++result.wrong;
  }
  return result;
}

}  // namespace ucclep::perf
