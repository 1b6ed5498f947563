// SPDX-License-Identifier: Apache-2.0
// A row on its way out, sent by any scope: one thread, some lanes, a warp or a block. In two steps with a sync of the
// scope between them, which all groups of a warp take together:
//   put_lines (LINE form) or put_bytes (BULK form);  Coop::sync();  end_lines, or a publish of the row's epoch
//
// clang-format off
// | step      | what it writes                    | made visible by                                        |
// |-----------|-----------------------------------|--------------------------------------------------------|
// | put_lines | whole warps: lines, epochs inside | each line by itself                                    |
// |           | less: the data of the lines       | end_lines: fence_acq_rel (system), then the epochs     |
// | put_bytes | the row                           | the caller's publish of an epoch word (system release) |
// clang-format on
//
// each(store): calls store(address) for each place where the row goes. word(offset): 8 bytes of the row.
#pragma once
#include "ucclep/device/arch/types.hpp"
#include "ucclep/device/layout/window.hpp"
#include "ucclep/device/rows/line.hpp"
#include "ucclep/device/simt/simt.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

// A line is one store of neighbouring lanes: who is less than a warp cannot be sure to write it at once.
template <class Coop>
constexpr bool whole_warps = false;
template <>
inline constexpr bool whole_warps<warp> = true;
template <>
inline constexpr bool whole_warps<block> = true;

// Of a scope, those who read or write together without a sync of the scope: a warp of a block, or all of a smaller
// scope.
template <class Coop>
struct Near {
  static UCCLEP_FN uint32_t rank() { return whole_warps<Coop> ? lane_id() : Coop::rank(); }
  static UCCLEP_FN uint32_t size() { return whole_warps<Coop> ? wave_size : Coop::size(); }
  // Which of the scope's this one is, and how many there are.
  static UCCLEP_FN uint32_t index() { return whole_warps<Coop> ? Coop::rank() / wave_size : 0; }
  static UCCLEP_FN uint32_t count() { return whole_warps<Coop> ? Coop::size() / wave_size : 1; }
  // The sum of all members' values.
  static UCCLEP_FN uint32_t sum(uint32_t value) {
    for (uint32_t mask = 1; mask < size(); mask *= 2) value += shfl_xor(value, mask);
    return value;
  }
};

constexpr uint32_t batch_puts = 4;  // batches or vectors that are read before the first of them is stored

template <class Coop, class Each, class Word>
UCCLEP_FN void put_lines(uint32_t bytes, uint64_t epoch, Each&& each, Word&& word) {
  if constexpr (whole_warps<Coop>) {
    const uint32_t all = line_batches(bytes), step = Coop::size() / wave_size;
    UCCLEP_KEEP_LOOP
    for (uint32_t first = Coop::rank() / wave_size; first < all; first += batch_puts * step) {
      LineBatch batch[batch_puts] = {};
      for (uint32_t i = 0; i < batch_puts; ++i) {
        const uint32_t index = first + i * step, begin = index * line_batch_bytes;
        if (index >= all) continue;
        batch[i].fill(batch_length(bytes, index),
                      [&](uint32_t s, uint32_t half) { return word(begin + LineBatch::offset(s) + 8 * half); });
      }
      for (uint32_t i = 0; i < batch_puts; ++i) {
        const uint32_t index = first + i * step;
        if (index >= all) continue;
        each([&](char* lines) {
          batch[i].send(lines + index * LineBatch::lines * line_bytes, batch_length(bytes, index), epoch);
        });
      }
    }
  } else {
    UCCLEP_KEEP_LOOP
    for (uint32_t at = 8 * Coop::rank(); at < bytes; at += 8 * Coop::size()) {
      const uint64_t value = word(at);
      const uint32_t to = at / line_payload * line_bytes + at % line_payload;
      each([&](char* lines) { store_relaxed<Scope::system>(reinterpret_cast<uint64_t*>(lines + to), value); });
    }
  }
}

template <class Coop, class Each>
UCCLEP_FN void end_lines(uint32_t bytes, uint64_t epoch, Each&& each) {
  if constexpr (!whole_warps<Coop>) {
    fence_acq_rel<Scope::system>();
    const uint32_t lines = (bytes + line_payload - 1) / line_payload;
    for (uint32_t i = Coop::rank(); i < lines; i += Coop::size()) {
      const uint32_t to = i * line_bytes + line_payload;
      each([&](char* row) { store_relaxed<Scope::system>(reinterpret_cast<uint64_t*>(row + to), epoch); });
    }
  }
}

// Lane verb: 8 bytes of a row's scales, zero past the last. Where these have the alignment of floats, two loads at
// once; else byte by byte.
UCCLEP_FN uint64_t scale_word(const char* scales, uint32_t at, uint32_t all) {
  typedef uint32_t AnyWord __attribute__((may_alias));
  const char* from = scales + at;
  if (at + 8 <= all && reinterpret_cast<uint64_t>(from) % 4 == 0) {
    const auto* halves = reinterpret_cast<const AnyWord*>(from);
    return halves[0] | uint64_t{halves[1]} << 32;
  }
  const uint32_t left = at < all ? all - at : 0, count = left < 8 ? left : 8;
  uint64_t word = 0;
  UCCLEP_KEEP_LOOP
  for (uint32_t i = 0; i < count; ++i) {
    word |= uint64_t{static_cast<unsigned char>(from[i])} << 8 * i;
  }
  return word;
}

// bytes: a multiple of 16. All members call each() together, also those that have nothing left.
template <class Coop, class Each, class Word>
UCCLEP_FN void put_bytes(uint32_t bytes, Each&& each, Word&& word) {
  const uint32_t step = 16 * Coop::size();
  UCCLEP_KEEP_LOOP
  for (uint32_t begin = 0; begin < bytes; begin += batch_puts * step) {
    const uint32_t first = begin + 16 * Coop::rank();
    vec16 values[batch_puts] = {};
    for (uint32_t i = 0; i < batch_puts; ++i) {
      const uint32_t at = first + i * step;
      if (at >= bytes) continue;
      const uint64_t low = word(at), high = word(at + 8);
      values[i] = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                   static_cast<uint32_t>(high >> 32)};
    }
    for (uint32_t i = 0; i < batch_puts; ++i) {
      const uint32_t at = first + i * step;
      each([&](char* row) {
        if (at < bytes) store16(row + at, values[i]);
      });
    }
  }
}

}  // namespace UCCLEP_SIMT_NAMESPACE
