// SPDX-License-Identifier: Apache-2.0
#include "host/context/fault.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

#include "base/error.hpp"
#include "base/log.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep {
namespace {

struct OperationName {
  const char* name;
  const char* function;
};

OperationName operation_name(Operation operation) {
  constexpr OperationName names[] = {{"none", "no function"},
                                     {"update", "ucclEpHandleUpdate"},
                                     {"dispatch", "ucclEpDispatch"},
                                     {"combine", "ucclEpCombine"},
                                     {"routing counts", "ucclEpGetRoutingCounts"},
                                     {"channel", "the channel"},
                                     {"expert map", "ucclEpGroupSetExpertMap"}};
  const auto i = static_cast<size_t>(operation);
  return i < std::size(names) ? names[i] : OperationName{"unknown", "unknown"};
}

const char* phase_name(Phase phase) {
  constexpr const char* names[] = {"none",     "routing", "slot",     "header",  "settings", "rows",     "weights",
                                   "staging",  "grid",    "capacity", "shape",   "tokens",   "ring",     "handle_mem",
                                   "argument", "window",  "signal",   "barrier", "mask",     "unrouted", "placed",
                                   "pending",  "counts",  "offer",    "tiles",   "copies"};
  const auto i = static_cast<size_t>(phase);
  return i < std::size(names) ? names[i] : "unknown";
}

const char* field_name(Field field) {
  constexpr const char* names[] = {"none",
                                   "hidden",
                                   "scale bytes",
                                   "top_k",
                                   "mode",
                                   "layout",
                                   "tokens.dtype",
                                   "output dtype",
                                   "scales.dtype",
                                   "quant",
                                   "round_scale",
                                   "pass",
                                   "expert_alignment",
                                   "topk_weights given with dispatch",
                                   "topk_weights given with combine",
                                   "one copy of a row for a node (UCCLEP_LL_COPIES; never of a user's kernel)",
                                   "waves",
                                   "max_tokens",
                                   "tokens of a round",
                                   "tokens",
                                   "threads of a block",
                                   "peer",
                                   "signal",
                                   "forms of the operation (0: all in a domain, 1: lines, 2: between domains)",
                                   "tiles that a kernel sends (tiles::begin)",
                                   "copies",
                                   "physical expert",
                                   "physical expert"};
  const auto i = static_cast<size_t>(field);
  return i < std::size(names) ? names[i] : "unknown";
}

// What did not come, in words.
const char* awaited(Phase phase) {
  switch (phase) {
    case Phase::consumed:
      return "to finish reading an earlier operation";
    case Phase::header:
      return "to begin the operation";
    case Phase::rows:
      return "to send its rows";
    case Phase::weights:
      return "to send its weights";
    case Phase::staging:
      return "to stage its rows";
    default:
      return "";
  }
}

std::string channel_message(const ErrorRecord& r, int rank) {
  const uint64_t waited_ms = r.waited_ns / 1000000;
  switch (r.phase) {
    case Phase::argument:
      return fmt::format("a kernel of rank {} passed {} {} to the channel, expected 0 to {}", rank, field_name(r.field),
                         static_cast<int64_t>(r.got), static_cast<int64_t>(r.expected) - 1);
    case Phase::window:
      return fmt::format(
          "put: a kernel of rank {} accesses a window up to byte {}, but the window of rank {} has {} bytes", rank,
          r.got, r.peer, r.expected);
    case Phase::signal:
      return fmt::format("wait_signal: rank {} waited {} ms for signal {} to reach {}, but its count is {}", rank,
                         waited_ms, r.epoch, r.expected, r.got);
    case Phase::placed:
      return fmt::format(
          "the channel: rank {} waited {} ms for rank {} to receive {} of its messages, but that rank has received {}",
          rank, waited_ms, r.peer, r.expected, r.got);
    default:
      return fmt::format("barrier {}: rank {} waited {} ms for rank {} to arrive", r.epoch, rank, waited_ms, r.peer);
  }
}

// The routing in a handle's memory is not the one that the call was made for.
std::string tokens_message(const ErrorRecord& r, int rank) {
  const char* operation = operation_name(r.operation).function;
  if (r.field == Field::top_k) {
    return fmt::format(
        "{} {}: rank {} routed {} experts a token, its tensors have {}; only what both have was accessed", operation,
        r.epoch, rank, r.expected, r.got);
  }
  if (r.operation == Operation::dispatch) {
    return fmt::format("{} {}: rank {} routed {} tokens, its input tensor has {} rows; only what both have was read",
                       operation, r.epoch, rank, r.expected, r.got);
  }
  return fmt::format(
      "{} {}: rank {} dispatched {} tokens, its output tensor has {} rows; only what both have was written", operation,
      r.epoch, rank, r.expected, r.got);
}

// A map that was not taken.
std::string map_message(const ErrorRecord& r, int rank) {
  const auto got = static_cast<int64_t>(r.got);
  const std::string wrong =
      r.field == Field::copies
          ? fmt::format("{} copies of logical expert {}, expected 1 to the columns of logical_to_physical", got,
                        r.expected)
      : r.field == Field::physical_expert
          ? fmt::format("physical expert {} for logical expert {}, expected 0 to num_experts - 1", got, r.expected)
          : fmt::format("physical expert {} for logical expert {}, and once more", got, r.expected);
  return fmt::format("ucclEpGroupSetExpertMap: the map of rank {} has {}; it was not taken", rank, wrong);
}

// Results of consumers did not come.
std::string tiles_message(const ErrorRecord& r, int rank) {
  const char* operation = operation_name(r.operation).function;
  const uint64_t waited_ms = r.waited_ns / 1000000, tile = r.got >> 32, done = r.got & 0xffffffff;
  if (r.expected == 0) {
    return fmt::format("{} {}: rank {} waited {} ms for rows of the pending dispatch", operation, r.epoch, rank,
                       waited_ms);
  }
  return fmt::format(
      "{} {}: rank {} waited {} ms for its consumers: tile_done of tile {} is {}, expected at least {} (done_target)",
      operation, r.epoch, rank, waited_ms, tile, done, r.expected);
}

std::string message(const ErrorRecord& r, int rank) {
  const char* operation = operation_name(r.operation).function;
  if (r.phase == Phase::ring) {
    return fmt::format("{} {}: rank {} waited {} ms for its proxy threads to accept a command for rank {}", operation,
                       r.epoch, rank, r.waited_ns / 1000000, r.peer);
  }
  if (r.operation == Operation::channel) return channel_message(r, rank);
  if (r.phase == Phase::tiles) return tiles_message(r, rank);
  if (r.operation == Operation::expert_map) return map_message(r, rank);
  if (r.code == ucclEpTimeout) {
    return fmt::format("{} {}: rank {} waited {} ms for rank {} {}", operation, r.epoch, rank, r.waited_ns / 1000000,
                       r.peer, awaited(r.phase));
  }
  switch (r.phase) {
    case Phase::counts:
      return fmt::format(
          "{} {}: rank {} counts {} rows, but {} is the most that {}", operation, r.epoch, rank, r.expected, r.got,
          r.got == max_rows ? "a rank can receive; the other rows are dropped"
                            : "an int32 counter can hold, so the counter was set to it: use int64 counters");
    case Phase::header: {
      const std::string wrong = r.got >> 32 != 0
                                    ? fmt::format("has the form {}, which does not exist", r.got >> 32)
                                    : fmt::format("counts {} rows or tokens, expected at most {}", r.got, r.expected);
      return fmt::format("{} {}: a header of rank {} {}: that rank's memory is corrupt, or something else writes to it",
                         operation, r.epoch, r.peer, wrong);
    }
    case Phase::rows:
      return fmt::format(
          "{} {}: rank {} received {} rows of an expert, but headers of the sources announced {}: a rank's memory is "
          "corrupt, or something else writes to it",
          operation, r.epoch, rank, r.got, r.expected);
    case Phase::offer:
      return fmt::format(
          "{} {}: rank {} exposes a tensor that begins at byte {} of a window and goes beyond its {} bytes: that "
          "rank's memory is corrupt, or something else writes to it",
          operation, r.epoch, r.peer, r.got, r.expected);
    case Phase::mask:
      return fmt::format("{} {}: rank {} has masked rank {}, whose operations on the group have ended", operation,
                         r.epoch, r.peer, rank);
    case Phase::settings:
      return fmt::format("{} {}: {} is {} on rank {} and {} on rank {}; all ranks of an operation must agree",
                         operation, r.epoch, field_name(r.field), r.expected, rank, r.got, r.peer);
    case Phase::routing:
      return fmt::format(
          "{}: topk_idx of rank {} has the id {}, which is out of range (0 to {}, or -1) or twice in its row; "
          "it counted as -1",
          operation, rank, static_cast<int64_t>(r.got), static_cast<int64_t>(r.expected) - 1);
    case Phase::capacity:
      return fmt::format(
          "{} {}: rank {} receives {} rows and keeps {}, as many as its output tensor and max_recv_tokens_per_rank "
          "allow; the rest was dropped",
          operation, r.epoch, rank, r.expected, r.got);
    case Phase::shape:
      if (r.field == Field::round_tokens) {
        return fmt::format(
            "{} {}: a rank has {} tokens, but operations of user kernels have one round of at most {} "
            "(tokens_per_round): raise window_bytes and max_tokens_per_rank, or use fewer tokens",
            operation, r.epoch, r.got, r.expected);
      }
      return fmt::format("{} {}: a kernel of rank {} passed a shape that does not match: {} is {}, expected {}",
                         operation, r.epoch, rank, field_name(r.field), r.got, r.expected);
    case Phase::tokens:
      return tokens_message(r, rank);
    case Phase::unrouted:
      return fmt::format("{}: a kernel of rank {} began it on a handle that has {}", operation, rank,
                         r.operation == Operation::combine ? "dispatched nothing since its last ucclEpHandleUpdate"
                                                           : "no routing: call ucclEpHandleUpdate first");
    case Phase::pending:
      return fmt::format(
          "{} {}: rank {} replayed it while a {} with send_only was pending, which a group with enable_mask does not "
          "allow: nothing was sent; call ucclEpComplete first",
          operation, r.epoch, rank, operation_name(r.operation).name);
    case Phase::handle_mem:
      return fmt::format("{} {}: the caller wrote to config.handle_mem of rank {} after a handle had filled it",
                         operation, r.epoch, rank);
    case Phase::grid:
      return fmt::format("{} {}: the blocks of rank {}'s kernel did not all reach their barrier in time", operation,
                         r.epoch, rank);
    default:
      return fmt::format("{} {}: phase {} failed on rank {}", operation, r.epoch, phase_name(r.phase), rank);
  }
}

void copy_text(char* to, size_t space, const std::string& from) {
  const size_t bytes = std::min(from.size(), space - 1);
  std::memcpy(to, from.data(), bytes);
  to[bytes] = '\0';
}

ucclEpAsyncError_t made_here(int rank, ucclEpResult_t code, const char* operation, const char* phase, int peer,
                             const std::string& text) {
  ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
  error.code = code;
  error.rank = rank;
  error.peer = peer;
  copy_text(error.op, sizeof error.op, operation);
  copy_text(error.phase, sizeof error.phase, phase);
  copy_text(error.text, sizeof error.text, text);
  return error;
}

}  // namespace

void await_record(RecordSlot& slot, uint32_t* claim) {
  slot = {};
  slot.claim = claim;
  slot.wanted = 1;
}

bool is_complete(const RecordSlot& slot) {
  const auto load = [](const uint32_t& word) {
    return std::atomic_ref(const_cast<uint32_t&>(word)).load(std::memory_order_acquire);
  };
  return load(slot.written) == load(slot.wanted);
}

ucclEpAsyncError_t describe(const ErrorRecord& record, int rank) {
  ucclEpAsyncError_t error = UCCLEP_ASYNC_ERROR_INIT;
  error.code = static_cast<ucclEpResult_t>(record.code);
  error.rank = rank;
  error.peer = record.peer;
  error.epoch = record.epoch;
  error.waited_ms = record.waited_ns / 1000000;
  copy_text(error.op, sizeof error.op, operation_name(record.operation).name);
  copy_text(error.phase, sizeof error.phase, phase_name(record.phase));
  copy_text(error.text, sizeof error.text, message(record, rank));
  return error;
}

void FaultLog::raise(ucclEpResult_t code, const char* operation, const char* phase, int peer, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (raised_ || is_complete(errors_->fatal)) return;
  raised_ = made_here(rank_, code, operation, phase, peer, text);
  log::warn("fault", "{}", text);
  try {
    stop_();
  } catch (const Error& error) {  // kernels end all the same, when their time is up
    log::warn("fault", "cannot notify the kernels in flight: {}", error.what());
  }
}

void FaultLog::note(ucclEpResult_t code, const char* operation, const char* phase, int peer, const std::string& text) {
  const std::lock_guard lock(mutex_);
  log::warn("fault", "{}", text);
  if (!noted_) noted_ = made_here(rank_, code, operation, phase, peer, text);
}

void FaultLog::watch(const RecordSlot* slot) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(slot);
}

void FaultLog::unwatch(const RecordSlot* slot) {
  const std::lock_guard lock(mutex_);
  std::erase(watched_, slot);
}

std::optional<ucclEpAsyncError_t> FaultLog::fatal() const {
  const std::lock_guard lock(mutex_);
  if (raised_) return raised_;
  if (is_complete(errors_->fatal)) return describe(errors_->fatal.record, rank_);
  return std::nullopt;
}

ucclEpAsyncError_t FaultLog::current() const {
  if (auto error = fatal()) return *error;
  const std::lock_guard lock(mutex_);
  for (const RecordSlot* slot : watched_) {
    if (is_complete(*slot)) return describe(slot->record, rank_);
  }
  if (is_complete(errors_->data)) return describe(errors_->data.record, rank_);
  if (noted_) return *noted_;
  ucclEpAsyncError_t none = UCCLEP_ASYNC_ERROR_INIT;
  none.rank = rank_;
  none.peer = -1;
  return none;
}

void FaultLog::throw_if_fatal() const {
  if (const auto error = fatal()) throw Error(error->code, error->text);
}

void FaultLog::clear_data() {
  if (const auto error = fatal()) {
    fail(ucclEpInvalidUsage, "a fatal error cannot be cleared: {}", error->text);
  }
  const std::lock_guard lock(mutex_);
  noted_.reset();
  // A record that is being written at this moment is not the caller's to clear.
  if (is_complete(errors_->data)) std::atomic_ref(errors_->data.wanted).fetch_add(1, std::memory_order_release);
}

}  // namespace ucclep
