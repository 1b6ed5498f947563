// SPDX-License-Identifier: Apache-2.0
#include "device/host/runtime.hpp"

#include "device/host/sleep.hpp"

namespace ucclep::executor {
namespace {

constinit std::atomic<uint32_t> fences[2];  // by Scope

}  // namespace

constinit const Runtime own_runtime{
    .exchange = exchange,
    .order_warp = order_warp,
    .sync_block = sync_block,
    .pause = pause,
    .poll = poll,
    .bulk_load = bulk_load,
    .bulk_wait_loaded = bulk_wait_loaded,
    .bulk_store = bulk_store,
    .bulk_wait_read = bulk_wait_read,
    .bulk_wait_written = bulk_wait_written,
    .store_torn = store_torn,
    .flush_torn = flush_torn,
    .sleepers = &sleepers,
    .wake_sleepers = wake_sleepers,
    .fences = fences,
};

}  // namespace ucclep::executor
