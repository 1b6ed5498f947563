// SPDX-License-Identifier: Apache-2.0
#include "transport/ofi/ofi.hpp"

#include <utility>

#include "base/error.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/library.hpp"
#include "transport/ofi/provider.hpp"

namespace ucclep::transport {
namespace {

class Ofi : public Transport {
 public:
  explicit Ofi(std::string provider) : library_(ofi::Library::get()), provider_(std::move(provider)) {}
  std::unique_ptr<Endpoint> open(const Config& config) override {
    return std::make_unique<ofi::OfiEndpoint>(library_, ofi::choose(library_, provider_, config), config);
  }
  bool takes_nics() const override { return provider_ != "shm"; }

 private:
  const ofi::Library& library_;
  std::string provider_;
};

}  // namespace

std::string ofi_network(const std::string& provider) {
  if (!ofi::has(ofi::Library::get(), provider)) {
    fail(ucclEpNotSupported, "ofi: libfabric has no provider {} here that writes with immediate data", provider);
  }
  return "libfabric's " + provider;
}

std::unique_ptr<Transport> make_ofi(const std::string& provider) {
  return std::make_unique<Ofi>(provider);
}

}  // namespace ucclep::transport
