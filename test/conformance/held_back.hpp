// SPDX-License-Identifier: Apache-2.0
// Rows of a dispatch that have come, as if they had not.
#pragma once
#include <vector>

#include "conformance/late_stores.hpp"
#include "conformance/scenario.hpp"

namespace ucclep::test {

// The epochs of the group's first dispatch that say of some rows that they are here: taken out of this rank's window,
// as if peers had not sent them yet, and put back.
class HeldBack {
 public:
  // later(source, token): of which rows.
  template <class Later>
  HeldBack(const ucclEpDeviceGroup& group, const Scenario& scenario, Later&& later) : group_(group) {
    for (int source = 0; source < scenario.ranks; ++source) {
      for (int64_t token = 0; token < scenario.tokens_of(source); ++token) {
        later_.push_back(later(source, token) ? 1 : 0);
      }
      hold(source, scenario.ll(), scenario.row_bytes());
      later_.clear();
    }
    require(!words_.empty(), "there is no row to hold back");
  }
  void let_go() {
    for (uint64_t* const word : words_) __atomic_store_n(word, seq, __ATOMIC_RELEASE);
    words_.clear();
  }

 private:
  static constexpr uint64_t seq = 1;

  void hold(int source, bool ll, int64_t row_bytes) {
    const uint32_t slot = group_.shape.slot_of(seq), from = static_cast<uint32_t>(source);
    const MetaLayout meta = MetaLayout::of(group_.shape.top_k);
    const uint64_t metas = ll ? group_.layout.ll_meta_of(slot, from) : group_.layout.ht_meta_of(slot, from);
    const uint64_t header = group_.layout.header(group_.shape, Kind::dispatch, slot, from);
    const uint64_t said = *words_at(group_, group_.rank, header + HeaderLayout::rows * sizeof(Packet));
    const uint64_t form = ll ? said >> 32 : 0, places = ll ? group_.shape.ll_tokens : group_.shape.ht_tokens;
    const uint64_t lines_of_meta = ceil_div(meta.body_bytes(), 8), lines = lines_of_meta + ceil_div(row_bytes, 8);
    for (uint64_t i = 0; i < (form != 0 ? later_.size() : places); ++i) {
      if (form != 0) {  // LINE, by token: all behind its meta
        const uint64_t row = group_.layout.ll_lines_of(slot, from) + i * lines * sizeof(Packet);
        for (uint64_t l = lines_of_meta; later_[i] != 0 && l < lines; ++l) hide(row + l * sizeof(Packet) + 8);
        continue;
      }
      const uint64_t row = metas + i * meta.bytes;
      const uint64_t token = *words_at(group_, group_.rank, row) & 0xffffffff;
      if (token < later_.size() && later_[token] != 0) hide(row + meta.epoch);
    }
  }
  void hide(uint64_t offset) {
    uint64_t* const word = words_at(group_, group_.rank, offset);
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seq) return;
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    words_.push_back(word);
  }

  const ucclEpDeviceGroup group_;
  std::vector<int> later_;
  std::vector<uint64_t*> words_;
};

}  // namespace ucclep::test
