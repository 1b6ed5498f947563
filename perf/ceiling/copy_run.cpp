// SPDX-License-Identifier: Apache-2.0
#include "ceiling/copy_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "api.hpp"
#include "numeric.hpp"
#include "ucclep/device/layout/window.hpp"

namespace ucclep::perf {
namespace {

// More than twice what the caches of a GPU hold.
constexpr size_t cold_bytes = size_t{160} << 20;
constexpr unsigned max_warps = 16;
// A kernel of lines is launched twice, and the second launch is timed: the ranks meet inside the first, as they do in
// dispatch_perf and combine_perf. Each has its landing: a rank may be in the second while another is in the first.
constexpr int line_launches = 2;

Kernel kernel_of(Operation operation) {
  switch (operation) {
    case Operation::push:
      return {"ceiling_push", false};
    case Operation::pull:
      return {"ceiling_pull", false};
    case Operation::ll_dispatch:
      return {"ceiling_ll_dispatch", false};
    case Operation::ll_cast:
      return {"ceiling_ll_dispatch_cast", false};
    default:
      return {"ceiling_ll_combine", false};
  }
}

}  // namespace

CopyRun::CopyRun(Machine& machine, const Shape& shape, const Placement& placement, const CopyCase& request)
    : machine_(machine), shape_(shape), placement_(placement), case_(request) {
  const size_t bytes = input_rows() * input_row_bytes();
  // On the host device, which is there to test the kernels, two do.
  const size_t enough = machine.traits().kind == UCCLEP_DEVICE_HOST ? 1 : cold_bytes / bytes + 1;
  inputs_ = static_cast<int>(std::max<size_t>(2, enough));
  allocate();
  for (int rank = 0; rank < machine.ranks(); ++rank) fill(rank);
}

size_t CopyRun::input_rows() const {
  return combines() ? placement_.max_received() : placement_.tokens;
}
size_t CopyRun::input_row_bytes() const {
  return casts() ? shape_.combine_row_bytes() : case_.row_bytes;
}
size_t CopyRun::output_rows() const {
  if (combines()) return placement_.tokens;
  int max = 0;
  for (int rank = 0; rank < machine_.ranks(); ++rank) max = std::max(max, placement_.expanded(rank));
  return max;
}

size_t CopyRun::landing_bytes() const {
  const DeviceTraits& traits = machine_.traits();
  const size_t batches = (shape_.hidden + line_batch_quantised - 1) / line_batch_quantised;
  const size_t lines = casts() ? batches * (line_batch_bytes / traits.line_payload)
                               : (case_.row_bytes + traits.line_payload - 1) / traits.line_payload;
  const size_t rows =
      combines() ? static_cast<size_t>(placement_.tokens) * machine_.ranks() : placement_.max_received();
  return rows * lines * traits.line_bytes;
}

// The input of a pull, and the output of a push, lie in the windows.
void CopyRun::allocate() {
  const size_t input = inputs_ * input_rows() * input_row_bytes(), output = output_rows() * case_.row_bytes;
  const bool pull = case_.operation == Operation::pull, push = case_.operation == Operation::push;
  windows_ = machine_.share(pull ? input : push ? output : line_launches * case_.rounds * landing_bytes());
  for (int rank = 0; rank < machine_.ranks(); ++rank) {
    const auto allocate = [&](size_t bytes) { return machine_.allocate(rank, std::max<size_t>(bytes, 16)); };
    memory_.push_back({allocate(pull ? 0 : input), allocate(push ? 0 : output),
                       allocate(placement_.places[rank].size() * sizeof(int32_t)),
                       allocate(placement_.origins[rank].size() * sizeof(int32_t)),
                       allocate(placement_.slots == 0 ? 0 : placement_.copies[rank].size() * sizeof(int32_t))});
  }
}

void CopyRun::row_of(int input, int source, int token, int part, std::byte* row) const {
  const Kind kind = combines() ? Kind::expert_output : Kind::tokens;
  fill_row(ucclEpBfloat16, row_key(shape_, input, kind, source, token, part), row, input_row_bytes());
}

void CopyRun::arrival_of(int input, int source, int token, std::byte* row) const {
  if (!casts()) return row_of(input, source, token, 0, row);
  Shape shape = shape_;
  shape.quant = true;
  received_row(shape, input, source, token, row, row + shape.row_bytes());
}

// As the kernels do: fp32, in the order of the ranks, rounded once.
void CopyRun::sum_of(int input, int source, int token, std::byte* row) const {
  const size_t elements = case_.row_bytes / sizeof(uint16_t);
  std::vector<float> sum(elements), values(elements);
  for (int rank = 0; rank < machine_.ranks(); ++rank) {
    if (placement_.places[source][static_cast<size_t>(token) * machine_.ranks() + rank] < 0) continue;
    row_of(input, source, token, rank, row);
    decode_row(ucclEpBfloat16, row, elements, values.data());
    for (size_t i = 0; i < elements; ++i) sum[i] += values[i];
  }
  for (size_t i = 0; i < elements; ++i) {
    const uint16_t bits = to_bf16(sum[i]);
    std::memcpy(row + i * sizeof bits, &bits, sizeof bits);
  }
}

void CopyRun::fill(int rank) {
  const std::vector<int32_t>& origins = placement_.origins[rank];
  const auto write = [&](const DeviceArray& to, const std::vector<int32_t>& words) {
    machine_.write_rows(rank, to.data(), sizeof(int32_t), words.size(),
                        [&](size_t i, std::byte* where) { std::memcpy(where, &words[i], sizeof(int32_t)); });
  };
  write(memory_[rank].places, placement_.places[rank]);
  write(memory_[rank].origins, origins);
  if (placement_.slots > 0) write(memory_[rank].copies, placement_.copies[rank]);
  auto* rows = case_.operation == Operation::pull ? static_cast<unsigned char*>(windows_[rank]->data())
                                                  : memory_[rank].input.data();
  const size_t used = combines() ? origins.size() : static_cast<size_t>(placement_.tokens);
  for (int input = 0; input < inputs_; ++input) {
    machine_.write_rows(rank, rows + input * input_rows() * input_row_bytes(), input_row_bytes(), used,
                        [&](size_t i, std::byte* where) {
                          const auto row = static_cast<int>(i);
                          if (combines()) {
                            row_of(input, origins[row] / placement_.tokens, origins[row] % placement_.tokens, rank,
                                   where);
                          } else {
                            row_of(input, rank, row, 0, where);
                          }
                          // The byte with sign and exponent, so that no rounding hides it.
                          if (case_.corrupt && rank == 0 && row == 0) where[1] ^= std::byte{0xff};
                        });
  }
}

CeilingCopyArgs CopyRun::args(int rank, int launch, uint64_t epoch) const {
  const Memory& memory = memory_[rank];
  CeilingCopyArgs args{};
  args.ranks = static_cast<uint32_t>(machine_.ranks());
  args.rank = static_cast<uint32_t>(rank);
  args.tokens = static_cast<uint32_t>(placement_.tokens);
  args.received = static_cast<uint32_t>(placement_.received(rank));
  args.row_bytes = static_cast<uint32_t>(case_.row_bytes);
  args.rounds = static_cast<uint32_t>(case_.rounds);
  args.inputs = static_cast<uint32_t>(inputs_);
  args.first_input = static_cast<uint32_t>(launch % inputs_);
  args.input_stride = input_rows() * input_row_bytes();
  args.landings = static_cast<uint32_t>(line_launches * case_.rounds);
  args.first_landing = static_cast<uint32_t>(launch % line_launches * case_.rounds);
  args.landing_stride = landing_bytes();
  args.input = memory.input.data();
  args.output = memory.output.data();
  for (int r = 0; r < machine_.ranks(); ++r) args.windows[r] = static_cast<unsigned char*>(windows_[r]->data());
  args.places = reinterpret_cast<const int32_t*>(memory.places.data());
  args.origins = reinterpret_cast<const int32_t*>(memory.origins.data());
  args.copies = reinterpret_cast<const int32_t*>(memory.copies.data());
  args.slots = static_cast<uint32_t>(placement_.slots);
  args.epoch = epoch;
  args.limit = machine_.limit(rank);
  return args;
}

// As many warps as there is shared memory for, or all that a block has.
LaunchShape CopyRun::launch_shape() const {
  const DeviceTraits& traits = machine_.traits();
  const auto ranks = static_cast<uint32_t>(machine_.ranks());
  unsigned warps = traits.max_block / traits.wave;
  if (lines()) return {case_.sms, warps * traits.wave, 0};
  const bool pull = case_.operation == Operation::pull;
  const size_t of_warp = pull ? ceiling_pull_warp_bytes(ranks) : case_.row_bytes;
  const uint32_t barriers = pull ? ceiling_pull_stages * ranks : 1;
  const auto needed = [&](unsigned n) { return ceiling_barrier_bytes(barriers * n) + n * of_warp; };
  warps = std::min(warps, max_warps);
  while (warps > 0 && needed(warps) > traits.shared_bytes) --warps;
  if (warps == 0) {
    throw PerfError(fmt::format("rows of {} bytes do not fit into the {} bytes of shared memory of a block",
                                case_.row_bytes, traits.shared_bytes));
  }
  return {case_.sms, warps * traits.wave, needed(warps)};
}

double CopyRun::launch() {
  const int launches = lines() ? line_launches : 1;
  const uint64_t epochs = machine_.new_epochs(static_cast<uint64_t>(launches) * case_.rounds);
  const LaunchShape shape = launch_shape();
  const Kernel kernel = kernel_of(case_.operation);
  const double us = machine_.time(launches, [&](int rank, int turn, Device& device, ucclEpStream_t stream) {
    const CeilingCopyArgs copy = args(rank, launches_ + turn, epochs + static_cast<uint64_t>(turn) * case_.rounds);
    device.launch(kernel, shape, &copy, sizeof copy, stream);
  });
  launches_ += launches;
  return us / case_.rounds;
}

std::vector<double> CopyRun::times(int warmup, int iterations) {
  for (int i = 0; i < warmup; ++i) launch();
  std::vector<double> result;
  for (int i = 0; i < iterations; ++i) result.push_back(launch());
  return result;
}

std::vector<int32_t> CopyRun::origins_of_output(int rank) const {
  const std::vector<int32_t>& origins = placement_.origins[rank];
  if (placement_.slots == 0) return origins;
  std::vector<int32_t> result(placement_.expanded(rank));
  for (size_t i = 0; i < placement_.copies[rank].size(); ++i) {
    const int32_t row = placement_.copies[rank][i];
    if (row >= 0) result[row] = origins[i / placement_.slots];
  }
  return result;
}

Tally CopyRun::verify() {
  const int input = (launches_ - 1 + case_.rounds - 1) % inputs_;  // of the last round of the last launch
  Tally tally;
  std::vector<std::byte> expected(case_.row_bytes);
  for (int rank = 0; rank < machine_.ranks(); ++rank) {
    const void* rows = case_.operation == Operation::push ? windows_[rank]->data() : memory_[rank].output.data();
    const std::vector<int32_t> origins = combines() ? std::vector<int32_t>{} : origins_of_output(rank);
    const size_t count = combines() ? placement_.tokens : origins.size();
    machine_.read_rows(rank, rows, case_.row_bytes, count, [&](size_t i, const std::byte* row) {
      const auto index = static_cast<int>(i);
      if (combines()) {
        sum_of(input, rank, index, expected.data());
      } else {
        arrival_of(input, origins[i] / placement_.tokens, origins[i] % placement_.tokens, expected.data());
      }
      ++tally.verified;
      if (std::memcmp(row, expected.data(), case_.row_bytes) != 0) {
        tally.mistake(1, fmt::format("rank {}, row {}", rank, index));
      }
    });
  }
  return tally;
}

}  // namespace ucclep::perf
