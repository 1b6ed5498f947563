// SPDX-License-Identifier: Apache-2.0
// The kernels of the table as entry points: compiled once for every GPU, and for the host at both wave sizes.
#include "device/kernels/trace_clock.hpp"
#include "ucclep/device/high_throughput.hpp"
#include "ucclep/device/ht_mend.hpp"
#include "ucclep/device/ht_network.hpp"
#include "ucclep/device/ht_ring_network.hpp"
#include "ucclep/device/ll_combine_few.hpp"
#include "ucclep/device/ll_dispatch_few.hpp"
#include "ucclep/device/ll_mend.hpp"
#include "ucclep/device/ll_network.hpp"
#include "ucclep/device/quantise.hpp"
#include "ucclep/device/routing_counts.hpp"

namespace UCCLEP_SIMT_NAMESPACE {

#define KERNEL(name, Args, blocks, ...) \
  UCCLEP_KERNEL(name, Args) {           \
    __VA_ARGS__(args);                  \
  }
#include "device/kernels/kernels.def"

}  // namespace UCCLEP_SIMT_NAMESPACE
