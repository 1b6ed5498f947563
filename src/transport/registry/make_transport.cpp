// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "transport/faulty/faulty.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/registry/plugin.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/verbs.hpp"

namespace ucclep::transport {
namespace {

struct BuiltIn {
  const char* name;
  std::unique_ptr<Transport> (*make)(const std::string& argument);
};
constexpr BuiltIn built_in[] = {
    {"faulty", make_faulty}, {"loopback", make_loopback}, {"ofi", make_ofi}, {"verbs", make_verbs}};

}  // namespace

std::string built_in_transports() {
  std::string names;
  for (const BuiltIn& one : built_in) names += (names.empty() ? "" : ", ") + std::string(one.name);
  return names;
}

std::unique_ptr<Transport> make_transport(const std::string& name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string kind = name.substr(0, colon);
  const std::string argument = name.substr(std::min(colon + 1, name.size()));
  const auto* found =
      std::find_if(std::begin(built_in), std::end(built_in), [&](const BuiltIn& one) { return one.name == kind; });
  return found != std::end(built_in) ? found->make(argument) : load_plugin(kind, argument);
}

}  // namespace ucclep::transport
