// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/agreement.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "bootstrap/pieces.hpp"
#include "bootstrap/roll_call.hpp"

namespace ucclep {
namespace {

struct Contribution {
  std::string call;
  ucclEpResult_t code = ucclEpInternalError;
  std::string message;
  std::vector<std::pair<std::string, std::string>> fields;
};

std::optional<Contribution> parse(const std::string& bytes) {
  PieceReader reader(bytes);
  Contribution result;
  auto call = reader.next();
  auto code = reader.next();
  auto message = reader.next();
  if (!call || !code || code->size() != 1 || !message) return std::nullopt;
  result.call = *call;
  result.code = result_of(code->front());
  result.message = *message;
  while (!reader.at_end()) {
    auto name = reader.next();
    auto value = reader.next();
    if (!name || !value) return std::nullopt;
    result.fields.emplace_back(*name, *value);
  }
  return result;
}

// Names the odd ones out: the value that most ranks gave is right, rank 0's where there are as many of each.
std::string describe_difference(const std::string& field, const std::vector<std::string>& values) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t i = 0; i < values.size(); ++i) ranks_of[values[i]].push_back(static_cast<int>(i));
  const std::string* usual = &values.front();
  for (const auto& [value, ranks] : ranks_of) {
    if (ranks.size() > ranks_of[*usual].size()) usual = &value;
  }
  auto show = [](const std::string& value) { return value.empty() ? std::string("nothing") : value; };
  std::string text = field + " differs between ranks: ";
  for (const auto& [value, ranks] : ranks_of) {
    if (value != *usual) text += fmt::format("{} gave {}, ", name_ranks(ranks), show(value));
  }
  return text + fmt::format("{} gave {}", name_ranks(ranks_of[*usual]), show(*usual));
}

}  // namespace

Agreement& Agreement::error(const Error& error) {
  if (!failed()) {
    code_ = error.code();
    message_ = error.what();
  }
  return *this;
}

std::string Agreement::contribution() const {
  std::string bytes;
  put_piece(bytes, call_);
  put_piece(bytes, std::string(1, static_cast<char>(code_)));
  put_piece(bytes, message_);
  for (const auto& [name, value] : fields_) {
    put_piece(bytes, name);
    put_piece(bytes, value);
  }
  return bytes;
}

Agreement::Verdict Agreement::judge(const std::vector<std::string>& contributions) {
  std::vector<Contribution> all;
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    auto contribution = parse(contributions[rank]);
    if (!contribution) {
      return {ucclEpInternalError, fmt::format("cannot parse the agreement message of rank {}", rank)};
    }
    if (rank > 0 && contribution->call != all.front().call) {
      return {ucclEpInvalidUsage,
              fmt::format("the ranks do not make the same calls in the same order: rank 0 is in {}, rank {} in {}",
                          all.front().call, rank, contribution->call)};
    }
    all.push_back(std::move(*contribution));
  }
  // A timeout is often the echo of what went wrong on another rank.
  for (bool timeouts : {false, true}) {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].code == ucclEpSuccess || (all[rank].code == ucclEpTimeout) != timeouts) continue;
      return {all[rank].code, fmt::format("rank {}: {}", rank, all[rank].message)};
    }
  }
  const auto& reference = all.front().fields;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (!std::equal(reference.begin(), reference.end(), all[rank].fields.begin(), all[rank].fields.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first; })) {
      return {
          ucclEpInvalidArgument,
          fmt::format("rank {} and rank 0 compare different settings: all ranks need the same version of the library",
                      rank)};
    }
  }
  for (size_t field = 0; field < reference.size(); ++field) {
    std::vector<std::string> values;
    values.reserve(all.size());
    for (const Contribution& one : all) values.push_back(one.fields[field].second);
    if (std::any_of(values.begin(), values.end(), [&](const std::string& value) { return value != values.front(); })) {
      return {ucclEpInvalidArgument, describe_difference(reference[field].first, values)};
    }
  }
  return {};
}

}  // namespace ucclep
