// SPDX-License-Identifier: Apache-2.0
// Which transport ranks on several machines use where none was named: the first of those that transport::offers lists
// which all ranks have, over one kind of network.
#pragma once
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace ucclep {

struct RankOffers {
  std::string host;
  std::vector<transport::Offer> offers;
};

struct TransportChoice {
  transport::Offer chosen;  // its transport is empty where none serves all ranks
  std::string passed_over;  // "verbs (rank 3 on b: ..), ofi:efa (..)"; empty: the first one serves
};

// ranks: at least one, of which all list the same transports.
TransportChoice choose_transport(const std::vector<RankOffers>& ranks);

// For other ranks.
std::string pack(const std::vector<transport::Offer>& offers);
std::vector<transport::Offer> parse_offers(const std::string& text);

}  // namespace ucclep
