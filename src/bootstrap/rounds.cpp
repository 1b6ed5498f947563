// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rounds.hpp"

#include <fmt/format.h>

#include "bootstrap/agreement.hpp"
#include "bootstrap/pieces.hpp"
#include "bootstrap/roll_call.hpp"

namespace ucclep {
namespace {

const char* name_of(wire::RoundKind kind) {
  switch (kind) {
    case wire::RoundKind::gather:
      return "an allgather";
    case wire::RoundKind::collect:
      return "a collection of texts";
    case wire::RoundKind::agree:
      return "an agreement";
    case wire::RoundKind::living:
      return "a call among surviving ranks";
    case wire::RoundKind::exchange:
      return "an exchange of pieces";
    case wire::RoundKind::exchange_living:
      return "an exchange among surviving ranks";
  }
  return "an unknown call";
}

// Whoever is gone holds up nobody.
bool goes_on_without(wire::RoundKind kind) {
  return kind == wire::RoundKind::living || kind == wire::RoundKind::exchange_living;
}

}  // namespace

Rounds::Rounds(int nranks) : nranks_(static_cast<size_t>(nranks)), gone_(nranks_) {}

std::vector<Rounds::Delivery> Rounds::add_part(int rank, uint64_t sequence, wire::RoundKind kind, std::string part) {
  auto [entry, is_new] = rounds_.try_emplace(sequence);
  Round& round = entry->second;
  auto index = static_cast<size_t>(rank);
  if (is_new) {
    round.kind = kind;
    round.first_rank = rank;
    round.present.resize(nranks_);
    round.parts.resize(nranks_);
  }
  if (round.present[index]) return {};
  bool late = round.ended;
  if (!late) check_fit(round, rank, kind, part.size());
  round.present[index] = 1;
  if (!round.ended) {
    round.parts[index] = std::move(part);
    try_end(round);
  }
  std::vector<Delivery> deliveries;
  if (late) {
    deliveries.push_back({rank, sequence, round.code, payload_of(round, index)});
  } else if (round.ended) {
    deliveries = deliver_to_present(sequence, round);
  }
  forget_if_over(entry);
  return deliveries;
}

std::vector<Rounds::Delivery> Rounds::give_up(int rank, uint64_t sequence, uint64_t waited_ms) {
  auto entry = rounds_.find(sequence);
  if (entry == rounds_.end() || entry->second.ended) return {};  // its end is on the way already
  Round& round = entry->second;
  std::vector<int> missing;
  for (size_t i = 0; i < nranks_; ++i) {
    if (!round.present[i] && gone_[i].empty()) missing.push_back(static_cast<int>(i));
  }
  end(round, ucclEpTimeout,
      fmt::format("{} did not arrive within {} ms, then rank {} gave up{}", name_ranks(missing), waited_ms, rank,
                  remark_));
  return deliver_to_present(sequence, round);
}

std::vector<Rounds::Delivery> Rounds::leave(int rank, const std::string& message) {
  std::string& gone = gone_[static_cast<size_t>(rank)];
  if (!gone.empty()) return {};
  gone = message;
  std::vector<Delivery> all;
  for (auto entry = rounds_.begin(); entry != rounds_.end();) {
    auto current = entry++;
    Round& round = current->second;
    if (!round.ended) {
      // Even if its part is there: whatever the others would agree on, they could not do it with this rank.
      if (round.present[static_cast<size_t>(rank)] && !goes_on_without(round.kind)) {
        end(round, ucclEpRemoteError, message);
      } else {
        try_end(round);
      }
      if (round.ended) {
        auto deliveries = deliver_to_present(current->first, round);
        all.insert(all.end(), deliveries.begin(), deliveries.end());
      }
    }
    forget_if_over(current);
  }
  return all;
}

void Rounds::check_fit(Round& round, int rank, wire::RoundKind kind, size_t bytes) {
  if (rank == round.first_rank) return;
  size_t expected = round.parts[static_cast<size_t>(round.first_rank)].size();
  if (kind != round.kind) {
    end(round, ucclEpInvalidUsage,
        fmt::format("the ranks do not make the same calls in the same order: rank {} is in {}, rank {} in {}",
                    round.first_rank, name_of(round.kind), rank, name_of(kind)));
  } else if (kind == wire::RoundKind::gather && bytes != expected) {
    end(round, ucclEpInvalidUsage,
        fmt::format("the ranks do not make the same calls in the same order: rank {} sent {} bytes, rank {} sent {}",
                    round.first_rank, expected, rank, bytes));
  }
}

void Rounds::try_end(Round& round) {
  const std::string* gone = nullptr;
  bool expecting = false;
  for (size_t i = 0; i < nranks_; ++i) {
    if (round.present[i]) continue;
    if (gone_[i].empty()) {
      expecting = true;
    } else if (gone == nullptr) {
      gone = &gone_[i];
    }
  }
  if (gone != nullptr && !goes_on_without(round.kind)) {
    end(round, ucclEpRemoteError, *gone);
  } else if (!expecting) {
    finish(round);
  }
}

void Rounds::finish(Round& round) const {
  if (round.kind == wire::RoundKind::agree) {
    Agreement::Verdict verdict = Agreement::judge(round.parts);
    return end(round, verdict.code, std::move(verdict.message));
  }
  if (round.kind == wire::RoundKind::exchange || round.kind == wire::RoundKind::exchange_living) {
    return finish_exchange(round);
  }
  std::string all;
  for (const std::string& part : round.parts) all += part;
  end(round, ucclEpSuccess, std::move(all));
}

// Each gets its column: what a rank sends and gets grows with the ranks, not with their square.
void Rounds::finish_exchange(Round& round) const {
  std::vector<std::string> columns(nranks_);
  for (size_t from = 0; from < nranks_; ++from) {
    PieceReader pieces(round.parts[from]);
    for (size_t to = 0; to < nranks_; ++to) {
      auto piece = round.present[from] ? pieces.next() : std::string();
      if (!piece) {
        return end(
            round, ucclEpRemoteError,
            fmt::format("rank {} sent {} pieces to an exchange, expected {}, one for each rank", from, to, nranks_));
      }
      put_piece(columns[to], *piece);
    }
  }
  for (std::string& column : columns) round.own.push_back(std::make_shared<const std::string>(std::move(column)));
  end(round, ucclEpSuccess, {});
}

std::shared_ptr<const std::string> Rounds::payload_of(const Round& round, size_t rank) {
  return round.own.empty() ? round.payload : round.own[rank];
}

void Rounds::end(Round& round, ucclEpResult_t code, std::string payload) {
  round.ended = true;
  round.code = code;
  round.payload = std::make_shared<const std::string>(std::move(payload));
  round.parts.assign(round.parts.size(), std::string());
}

std::vector<Rounds::Delivery> Rounds::deliver_to_present(uint64_t sequence, const Round& round) const {
  std::vector<Delivery> deliveries;
  for (size_t i = 0; i < nranks_; ++i) {
    if (round.present[i] && gone_[i].empty()) {
      deliveries.push_back({static_cast<int>(i), sequence, round.code, payload_of(round, i)});
    }
  }
  return deliveries;
}

void Rounds::forget_if_over(Entry entry) {
  const Round& round = entry->second;
  if (!round.ended) return;
  for (size_t i = 0; i < nranks_; ++i) {
    if (!round.present[i] && gone_[i].empty()) return;
  }
  rounds_.erase(entry);
}

}  // namespace ucclep
