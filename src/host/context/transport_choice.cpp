// SPDX-License-Identifier: Apache-2.0
#include "host/context/transport_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace ucclep {
namespace {

using Json = nlohmann::json;

// Why all ranks cannot use their offer of this index; empty: they can.
std::string obstacle(const std::vector<RankOffers>& ranks, size_t index) {
  const std::string& network = ranks[0].offers[index].network;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const transport::Offer& offer = ranks[rank].offers[index];
    if (offer.network.empty()) return fmt::format("rank {} on {}: {}", rank, ranks[rank].host, offer.lack);
    if (offer.network != network) {
      return fmt::format("rank 0 on {} has {}, rank {} on {} has {}", ranks[0].host, network, rank, ranks[rank].host,
                         offer.network);
    }
  }
  return {};
}

}  // namespace

TransportChoice choose_transport(const std::vector<RankOffers>& ranks) {
  size_t fewest = ranks[0].offers.size();
  for (const RankOffers& rank : ranks) fewest = std::min(fewest, rank.offers.size());
  TransportChoice choice;
  for (size_t i = 0; i < fewest; ++i) {
    const std::string why = obstacle(ranks, i);
    if (why.empty()) {
      choice.chosen = ranks[0].offers[i];
      return choice;
    }
    choice.passed_over +=
        fmt::format("{}{} ({})", choice.passed_over.empty() ? "" : ", ", ranks[0].offers[i].transport, why);
  }
  return choice;
}

std::string pack(const std::vector<transport::Offer>& offers) {
  Json json = Json::array();
  for (const transport::Offer& offer : offers) json.push_back({offer.transport, offer.network, offer.lack});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<transport::Offer> parse_offers(const std::string& text) {
  try {
    std::vector<transport::Offer> offers;
    for (const Json& one : Json::parse(text)) offers.push_back({one.at(0), one.at(1), one.at(2)});
    return offers;
  } catch (const Json::exception& error) {
    fail(ucclEpInternalError, "cannot parse the transports of a rank: {}", error.what());
  }
}

}  // namespace ucclep
