// SPDX-License-Identifier: Apache-2.0
// The kernels of the table as entry points: compiled once for every GPU, and for the host at both wave sizes.
#include "device/kernels/trace_clock.hpp"
#include "ucclep/device/ht/combine.hpp"
#include "ucclep/device/ht/dispatch.hpp"
#include "ucclep/device/ht/nodes/network.hpp"
#include "ucclep/device/ll/combine_small.hpp"
#include "ucclep/device/ll/combine_tiles.hpp"
#include "ucclep/device/ll/network.hpp"
#include "ucclep/device/ll/tiles.hpp"
#include "ucclep/device/protocol/expert_map.hpp"
#include "ucclep/device/protocol/routing_counts.hpp"
#include "ucclep/device/recovery/ht.hpp"
#include "ucclep/device/recovery/ll.hpp"
#include "ucclep/device/rows/quantise.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

#define KERNEL(name, Args, ...) \
  UCCLEP_KERNEL(name, Args) {   \
    __VA_ARGS__(args);          \
  }
#include "device/kernels/kernels.def"

}  // namespace UCCLEP_SIMT_NAMESPACE
