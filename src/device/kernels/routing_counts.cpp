// SPDX-License-Identifier: Apache-2.0
#include "ucclep/device/protocol/routing_counts.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

UCCLEP_KERNEL(routing_counts, RoutingCountsArgs) {
  count_routing(args);
}

}  // namespace UCCLEP_SIMT_NAMESPACE
