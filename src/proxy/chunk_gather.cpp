// SPDX-License-Identifier: Apache-2.0
#include "proxy/chunk_gather.hpp"

#include <algorithm>

namespace ucclep::proxy {

ChunkGather::ChunkGather(const Places& places, uint32_t in_flight, const KindNumbers& first)
    : places_(places), in_flight_(in_flight), first_(first), newest_(first), slots_(size_t{num_kinds} * in_flight) {
  uint64_t counts = 0;
  for (uint32_t kind = 0; kind < num_kinds; ++kind) {
    first_count_[kind] = counts;
    counts += uint64_t{in_flight} * places.chunks(kind);
  }
  counts_.resize(counts);
}

uint64_t ChunkGather::seq_of(Kind kind, uint32_t epoch) const {
  const uint64_t newest = newest_[static_cast<uint32_t>(kind)];
  return newest +
         static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(epoch - static_cast<uint32_t>(newest))));
}

uint32_t ChunkGather::index(Kind kind, uint64_t seq) const {
  return static_cast<uint32_t>(kind) * in_flight_ + static_cast<uint32_t>(seq % in_flight_);
}

uint16_t& ChunkGather::count(Kind kind, uint64_t seq, uint32_t chunk) {
  const auto k = static_cast<uint32_t>(kind);
  return counts_[first_count_[k] + seq % in_flight_ * places_.chunks(k) + chunk];
}

const char* ChunkGather::accept(const Command& command, Command* whole) {
  *whole = {};
  if (command.kind() >= num_kinds) return "the kind of operation does not exist";
  const auto kind = static_cast<Kind>(command.kind());
  const uint64_t seq = seq_of(kind, command.epoch());
  if (const char* wrong = open(kind, seq, command)) return wrong;
  return command.operation() == CommandOp::put ? put(kind, seq, command, whole) : header(kind, seq, command, whole);
}

// What a slot holds is N operations old when the next one comes: its peers have read it, so all of it has been sent.
const char* ChunkGather::open(Kind kind, uint64_t seq, const Command& command) {
  Slot& slot = slots_[index(kind, seq)];
  const KindPlaces& places = places_.of(command);
  const uint64_t first = first_[static_cast<uint32_t>(kind)];
  if (static_cast<int64_t>(seq) <= static_cast<int64_t>(first) || seq < slot.seq) return "its operation has ended";
  if (seq == slot.seq) return slot.places == &places ? nullptr : "its operation has rows of another kind";
  const bool over = slot.seq == 0 || (slot.total != unknown && slot.gone == slot.places->chunks_of(slot.total));
  if (!over) return "its slot still holds an operation that has not been sent completely";
  slot = {};
  slot.seq = seq;
  slot.places = &places;
  slot.destination = command.destination();
  slot.flags = command.flags();
  const uint32_t chunks = places.chunks();
  if (chunks > 0) std::fill_n(&count(kind, seq, 0), chunks, uint16_t{0});
  uint64_t& newest = newest_[static_cast<uint32_t>(kind)];
  newest = std::max(newest, seq);
  return nullptr;
}

const char* ChunkGather::put(Kind kind, uint64_t seq, const Command& command, Command* whole) {
  const KindPlaces& places = places_.of(command);
  const uint32_t row = command.row(), rows = command.rows(), end = row + rows;
  if (rows == 0 || end > places.rows) return "it has no rows, or its rows go beyond the group's places";
  const uint32_t row_bytes = command.bytes() / rows, chunk = row / places.rows_per_chunk;
  if (row_bytes * rows != command.bytes() || row_bytes % 16 != 0 || row_bytes == 0 || row_bytes > places.row_bytes) {
    return "its number of bytes does not fit its number of rows";
  }
  if ((end - 1) / places.rows_per_chunk != chunk) return "its rows belong to several chunks";
  Slot& slot = slots_[index(kind, seq)];
  if (slot.row_bytes != 0 && slot.row_bytes != row_bytes)
    return "its rows differ in length from earlier rows of the operation";
  if (slot.total != unknown && end > slot.total) return "its rows go beyond those that the header announced";
  uint16_t& there = count(kind, seq, chunk);
  if (there + rows > places.rows_per_chunk) return "some of its rows were put before";
  there = static_cast<uint16_t>(there + rows);
  waiting_ += rows;
  slot.row_bytes = row_bytes;
  slot.end = std::max(slot.end, end);
  close_if_whole(kind, seq, chunk, whole);
  return nullptr;
}

const char* ChunkGather::header(Kind kind, uint64_t seq, const Command& command, Command* whole) {
  const KindPlaces& places = places_.of(command);
  Slot& slot = slots_[index(kind, seq)];
  const uint32_t total = command.row();
  if (slot.total != unknown) return "its operation has a header already";
  if (total > places.rows || total < slot.end)
    return "it announces more rows than the group has places, or fewer than were put";
  if (command.bytes() > places.header_bytes) return "it is longer than a header of the group";
  slot.total = total;
  // A last chunk that is shorter could not be known as whole before.
  if (total % places.rows_per_chunk != 0) close_if_whole(kind, seq, total / places.rows_per_chunk, whole);
  return nullptr;
}

void ChunkGather::close_if_whole(Kind kind, uint64_t seq, uint32_t chunk, Command* whole) {
  if (is_whole(kind, seq, chunk)) *whole = leave(kind, seq, chunk);
}

uint32_t ChunkGather::rows_of(const Slot& slot, uint32_t chunk) const {
  const uint32_t max = slot.places->rows_per_chunk, first = chunk * max;
  return slot.total == unknown ? max : first >= slot.total ? 0 : std::min(max, slot.total - first);
}

bool ChunkGather::is_whole(Kind kind, uint64_t seq, uint32_t chunk) {
  const uint32_t rows = rows_of(slots_[index(kind, seq)], chunk);
  return rows != 0 && count(kind, seq, chunk) == rows;
}

Command ChunkGather::leave(Kind kind, uint64_t seq, uint32_t chunk) {
  Slot& slot = slots_[index(kind, seq)];
  const uint32_t rows = count(kind, seq, chunk);
  ++slot.gone;
  waiting_ -= rows;
  return CommandFields{.epoch = static_cast<uint32_t>(seq),
                       .row = chunk * slot.places->rows_per_chunk,
                       .bytes = rows * slot.row_bytes,
                       .destination = slot.destination,
                       .rows = static_cast<uint16_t>(rows),
                       .operation = CommandOp::put,
                       .kind = static_cast<uint8_t>(kind),
                       .flags = slot.flags};
}

}  // namespace ucclep::proxy
