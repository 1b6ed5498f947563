// SPDX-License-Identifier: Apache-2.0
// The objects of libfabric as the library holds them, and what makes them.
#pragma once
#include "doubles/fabric/wire.hpp"

namespace ucclep::test {

// Functions of an object; what is not filled in is not called.
template <class Ops>
Ops table(void (*fill)(Ops&)) {
  Ops ops{};
  ops.size = sizeof(Ops);
  fill(ops);
  return ops;
}

inline Domain& domain_of(fid_domain* domain) {
  return static_cast<Domain&>(*domain);
}
inline End& end_of(fid* fid) {
  return static_cast<End&>(*reinterpret_cast<fid_ep*>(fid));
}

int register_region(fid* domain, const fi_mr_attr* wanted, uint64_t flags, fid_mr** made);
int open_end(fid_domain* domain, fi_info* info, fid_ep** made, void* context);

}  // namespace ucclep::test
