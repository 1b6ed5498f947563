// SPDX-License-Identifier: Apache-2.0
#include "topology/nic_deal.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace ucclep::topology {
namespace {

// Ranks may see different parts of the machine, in which an index means different NICs: names say what is the same.
using Names = std::vector<std::string>;

Names nearest(const Seat& seat) {
  std::vector<std::pair<Distance, std::string>> candidates;
  candidates.reserve(seat.nics.size());
  for (const int index : seat.nics) {
    candidates.emplace_back(distance_to(seat, index), seat.machine->nics[static_cast<size_t>(index)].name);
  }
  Names names;
  if (candidates.empty()) return names;
  const Distance min = std::ranges::min(candidates, {}, [](const auto& each) { return each.first; }).first;
  for (const auto& [from_gpu, nic] : candidates) {
    if (from_gpu == min) names.push_back(nic);
  }
  return names;
}

class Dealer {
 public:
  // Shares `nics` among the seats, of which each gets at least one.
  void deal(const Names& nics, const std::vector<size_t>& seats, std::vector<Names>& hands) {
    Names unused;
    std::ranges::copy_if(nics, std::back_inserter(unused), [&](const std::string& nic) { return users_[nic] == 0; });
    if (unused.size() < seats.size()) {
      for (const size_t seat : seats) {
        give(std::ranges::min(nics, {}, [&](const std::string& nic) { return users_[nic]; }), hands[seat]);
      }
      return;
    }
    const size_t own = unused.size() / seats.size();
    for (size_t i = 0; i < seats.size(); ++i) {
      for (size_t k = 0; k < own; ++k) give(unused[i * own + k], hands[seats[i]]);
      for (size_t k = own * seats.size(); k < unused.size(); ++k) give(unused[k], hands[seats[i]]);
    }
  }

 private:
  void give(const std::string& nic, Names& hand) {
    ++users_[nic];
    hand.push_back(nic);
  }

  std::map<std::string, int> users_;
};

}  // namespace

Distance distance_to(const Seat& seat, int nic) {
  if (seat.gpu < 0) return {};
  return distance(seat.machine->gpus[static_cast<size_t>(seat.gpu)].place,
                  seat.machine->nics[static_cast<size_t>(nic)].place);
}

std::vector<std::vector<int>> deal_nics(const std::vector<Seat>& seats) {
  // Ranks with few choices come first: the others can go out of their way.
  std::map<std::pair<size_t, Names>, std::vector<size_t>> groups;
  for (size_t i = 0; i < seats.size(); ++i) {
    Names names = nearest(seats[i]);
    if (names.empty()) continue;
    const size_t count = names.size();
    groups[{count, std::move(names)}].push_back(i);
  }
  std::vector<Names> hands(seats.size());
  Dealer dealer;
  for (const auto& [key, members] : groups) dealer.deal(key.second, members, hands);

  std::vector<std::vector<int>> dealt(seats.size());
  for (size_t i = 0; i < seats.size(); ++i) {
    for (const int index : seats[i].nics) {
      const std::string& name = seats[i].machine->nics[static_cast<size_t>(index)].name;
      if (std::ranges::find(hands[i], name) != hands[i].end()) dealt[i].push_back(index);
    }
    std::ranges::sort(dealt[i]);
  }
  return dealt;
}

}  // namespace ucclep::topology
