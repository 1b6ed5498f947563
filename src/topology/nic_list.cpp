// SPDX-License-Identifier: Apache-2.0
#include "topology/nic_list.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "topology/words.hpp"

namespace ucclep::topology {
namespace {

std::string names_of(const Machine& machine) {
  if (machine.nics.empty()) return "no NIC";
  std::vector<std::string> names;
  names.reserve(machine.nics.size());
  for (const Nic& nic : machine.nics) names.push_back(nic.name);
  return join(names, ", ");
}

bool in_software(const Nic& nic) {
  return nic.place.host_bridge < 0;
}

int kind_of(const Nic& nic) {
  if (nic.rdma) return 0;
  return in_software(nic) ? 2 : 1;
}

}  // namespace

bool goes_by(const Nic& nic, const std::string& name) {
  return name == nic.name || name == nic.name + "-rdm" ||
         std::ranges::find(nic.interfaces, name) != nic.interfaces.end();
}

std::vector<int> nics_by_name(const Machine& machine, const std::vector<std::string>& names, const std::string& owner) {
  std::vector<int> indexes;
  for (const std::string& name : names) {
    const auto nic = std::ranges::find_if(machine.nics, [&](const Nic& each) { return goes_by(each, name); });
    if (nic == machine.nics.end()) {
      fail(ucclEpInvalidArgument, "{}: the NIC {} does not exist on {}, which has {}", owner, name, machine.name,
           names_of(machine));
    }
    const auto index = static_cast<int>(nic - machine.nics.begin());
    if (std::ranges::find(indexes, index) != indexes.end()) {
      fail(ucclEpInvalidArgument, "{}: {} is named twice: name each NIC once", owner, nic->name);
    }
    indexes.push_back(index);
  }
  return indexes;
}

std::vector<int> best_nics(const Machine& machine) {
  int best = 3;
  for (const Nic& nic : machine.nics) {
    if (nic.up) best = std::min(best, kind_of(nic));
  }
  const auto qualifies = [&](const Nic& nic) { return nic.up && kind_of(nic) == best; };
  double fastest = 0;
  for (const Nic& nic : machine.nics) {
    if (qualifies(nic)) fastest = std::max(fastest, nic.gigabits);
  }
  std::vector<int> indexes;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    const bool slow = nic.gigabits > 0 && nic.gigabits * 4 < fastest;
    if (qualifies(nic) && !slow) indexes.push_back(static_cast<int>(i));
  }
  return indexes;
}

}  // namespace ucclep::topology
