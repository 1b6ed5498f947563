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
constexpr uint32_t answer = 0xffffffffu;  // an immediate: everything has come. No message has it

uint64_t slot_bytes(uint64_t bytes) {
  return std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
}

// Of one side, to send from and to receive into.
uint64_t memory_bytes(const TransportOptions& options) {
  uint64_t max = 0;
  for (const WireOperation& one : options.operations) max = std::max(max, slot_bytes(one.bytes) * one.messages);
  if (options.operations.empty()) {
    const uint64_t bytes = *std::max_element(options.bytes.begin(), options.bytes.end());
    const int window = *std::max_element(options.windows.begin(), options.windows.end());
    max = slot_bytes(bytes) * std::max(options.slots, static_cast<uint64_t>(window));
  }
  return 2 * max;
}

uint64_t word_of(const TransportRun& run, int sender, uint64_t slot, uint64_t word) {
  const uint64_t seed = (2 * run.number + 2 + static_cast<uint64_t>(sender)) * 131 + slot * 31 + word;
  return seed * 0x9e3779b97f4a7c15 ^ seed >> 7;
}

// Calls visit(where, word, bytes of it) for the words of a message.
template <class Visit>
void each_word(const TransportRun& run, int sender, uint64_t slot, Visit&& visit) {
  for (uint64_t at = 0; at < run.bytes; at += sizeof(uint64_t)) {
    visit(at, word_of(run, sender, slot, at / sizeof(uint64_t)), std::min(run.bytes - at, uint64_t{sizeof(uint64_t)}));
  }
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Side::Side(Place place, const TransportOptions& options, Channel channel)
    : side_(place.side),
      options_(options),
      channel_(std::move(channel)),
      transport_(transport::make_transport(options.transport)),
      memory_(make_side_memory(options, place, memory_bytes(options))) {
  const auto sends = static_cast<uint32_t>(*std::max_element(options.windows.begin(), options.windows.end()));
  endpoint_ = transport_->open({options.nic.c_str(), 1, std::max(sends + 1, 2u), std::max(2 * sends, 256u),
                                static_cast<uint32_t>(options.timeout_ms), UCCLEP_MEMORY_HOST});
  transport::Key key;
  region_ = endpoint_->register_region(memory_->region(), &key);
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
    if (completion.kind == UCCLEP_COMPLETION_ARRIVAL && completion.imm == answer) {
      ++answers_;
    } else if (completion.kind == UCCLEP_COMPLETION_ARRIVAL) {
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
    if (deadline.expired()) fail(ucclEpTimeout, "nothing arrived for {} ms", options_.timeout_ms);
  }
}

// Before the other side may send.
void Side::begin(const TransportRun& run) {
  arrived_ = immediates_ = answers_ = 0;
  char* const out = memory_->data();
  char* const in = out + run.slots * slot_bytes(run.bytes);
  for (uint64_t slot = 0; slot < run.slots; ++slot) {
    const uint64_t offset = slot * slot_bytes(run.bytes);
    if (receives(run)) std::memset(in + offset, 0, run.bytes);
    if (!sends(run)) continue;
    each_word(run, side_, slot,
              [&](uint64_t at, uint64_t word, uint64_t bytes) { std::memcpy(out + offset + at, &word, bytes); });
  }
}

transport::Operation Side::message(const TransportRun& run, uint64_t number) const {
  const uint64_t offset = number % run.slots * slot_bytes(run.bytes);
  return {.kind = UCCLEP_OPERATION_WRITE,
          .flags = UCCLEP_OPERATION_IMM | UCCLEP_OPERATION_INLINE,
          .local_region = region_,
          .remote_region = remote_,
          .local_offset = offset,
          .remote_offset = run.slots * slot_bytes(run.bytes) + offset,
          .bytes = run.bytes,
          .cookie = number,
          .imm = static_cast<uint32_t>(number)};
}

void Side::post(const transport::Operation& operation) {
  while (endpoint_->post(other, {&operation, 1}) == 0) poll();
  ++posted_;
}

// As many of the messages that are left as the window has room for.
void Side::post_some(const TransportRun& run, uint64_t& sent) {
  const uint64_t unfinished = posted_ - done_, room = run.window > unfinished ? run.window - unfinished : 0;
  const uint64_t count = std::min({room, run.messages - sent, uint64_t{longest_chain}});
  if (count == 0) return;
  for (uint64_t i = 0; i < count; ++i) chain_[i] = message(run, sent + i);
  const uint64_t taken = endpoint_->post(other, std::span(chain_).first(count));
  posted_ += taken;
  sent += taken;
}

// This side's messages, and those of the other: until each that receives has said that it has everything.
void Side::write_all(const TransportRun& run) {
  const uint64_t expected = receives(run) ? run.messages : 0;
  uint64_t sent = sends(run) ? 0 : run.messages, seen = 0;
  bool answered = !receives(run);
  Deadline deadline = Deadline::after_ms(options_.timeout_ms);
  while (sent < run.messages || !answered || (sends(run) && answers_ == 0)) {
    for (int i = 0; i < 100; ++i) {
      post_some(run, sent);
      poll();
      if (answered || arrived_ < expected) continue;
      transport::Operation all_here = message(run, 0);
      all_here.bytes = 0, all_here.imm = answer;
      post(all_here);
      answered = true;
    }
    const uint64_t now = arrived_ + done_ + answers_;
    if (now != seen) deadline = Deadline::after_ms(options_.timeout_ms);
    seen = now;
    if (deadline.expired()) fail(ucclEpTimeout, "nothing arrived for {} ms", options_.timeout_ms);
  }
}

void Side::trips(const TransportRun& run) {
  for (uint64_t i = 0; i < run.messages; ++i) {
    if (side_ == 0) post(message(run, i));
    until(arrived_, i + 1);
    if (side_ == 1) post(message(run, i));
  }
}

TransportResult Side::lead(const TransportRun& run, const std::function<void()>& ready) {
  if (run.test != TransportTest::end) begin(run);
  channel_.send(run);
  if (run.test == TransportTest::end) return {};
  channel_.receive<char>([&] { poll(); });  // the other side is ready
  ready();
  const auto start = Clock::now();
  run.test == TransportTest::write ? write_all(run) : trips(run);
  const double seconds = seconds_since(start);
  until(done_, posted_);
  auto result = channel_.receive<TransportResult>([&] { poll(); });
  result.seconds = seconds;
  if (!run.both) return result;
  const TransportResult own = take(run);
  result.verified += own.verified;
  result.wrong += own.wrong;
  return result;
}

void Side::follow() {
  for (;;) {
    const auto run = channel_.receive<TransportRun>([&] { poll(); });
    if (run.test == TransportTest::end) return;
    begin(run);
    channel_.send('r');
    run.test == TransportTest::write ? write_all(run) : trips(run);
    until(done_, posted_);
    channel_.send(take(run));
  }
}

// What has arrived, by the sum of the immediates and by every byte.
TransportResult Side::take(const TransportRun& run) {
  char* const in = memory_->data() + run.slots * slot_bytes(run.bytes);
  if (options_.corrupt && run.bytes > 0) in[run.bytes / 2] ^= 1;
  TransportResult result;
  result.verified = run.messages;
  if (immediates_ != run.messages * (run.messages - 1) / 2) result.wrong = run.messages;
  for (uint64_t slot = 0; slot < std::min(run.slots, run.messages); ++slot) {
    bool same = true;
    each_word(run, 1 - side_, slot, [&](uint64_t at, uint64_t word, uint64_t bytes) {
      same = same && std::memcmp(in + slot * slot_bytes(run.bytes) + at, &word, bytes) == 0;
    });
    if (!same) ++result.wrong;
  }
  return result;
}

}  // namespace ucclep::perf
