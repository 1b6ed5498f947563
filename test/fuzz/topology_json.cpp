// SPDX-License-Identifier: Apache-2.0
// What another rank says of itself: a line of facts, then its machine.
#include "plans.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  topology::RankFacts facts;
  fuzz::accepts([&] { facts = topology::parse_facts(std::string(input.take_line())); });
  fuzz::accepts([&] { fuzz::use(topology::parse_machine(std::string(input.take_all())), facts); });
  return 0;
}
