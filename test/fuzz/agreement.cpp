// SPDX-License-Identifier: Apache-2.0
// What ranks bring to an agreement, the first byte says how many of them.
#include "bootstrap/agreement.hpp"

#include "bootstrap/pieces.hpp"
#include "target.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  std::vector<std::string> contributions(1 + input.byte() % 8);
  PieceReader reader(input.take_all());
  for (std::string& one : contributions) one = reader.next().value_or("");
  const Agreement::Verdict verdict = Agreement::judge(contributions);
  fuzz::require(verdict.code == ucclEpSuccess || !verdict.message.empty(), "a refusal has an error message");
  return 0;
}
