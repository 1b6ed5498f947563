// SPDX-License-Identifier: Apache-2.0
// Objects of libfabric with an owner.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <memory>

namespace ucclep::transport::ofi {

struct Close {
  template <class Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <class Object>
using Owned = std::unique_ptr<Object, Close>;

}  // namespace ucclep::transport::ofi
