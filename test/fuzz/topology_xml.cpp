// SPDX-License-Identifier: Apache-2.0
// A saved hwloc file.
#include "plans.hpp"
#include "topology/machine_xml.hpp"

using namespace ucclep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::accepts([&] { fuzz::use(topology::machine_from_xml(text, "input.xml")); });
  return 0;
}
