// SPDX-License-Identifier: Apache-2.0
// What the executor does for lanes; ucclep/device/arch/host_executor.hpp says what each function is. Kernels call them
// through the table own_runtime.
#pragma once
#include <cstdint>

#include "ucclep/device/arch/host_executor.hpp"

namespace ucclep::executor {

// verbs.cpp
uint64_t exchange(Verb verb, uint64_t value, uint32_t argument);
void order_warp(Verb verb);
bool sync_block(bool vote);
void pause();
void poll(const void* address);

// bulk.cpp
void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);
void bulk_wait_loaded(uint64_t* barrier, uint32_t phase);
void bulk_store(bool active, void* global, const void* shared, uint32_t bytes);
void bulk_wait_read();
void bulk_wait_written();

// torn.cpp
void store_torn(uint64_t* to, uint64_t first, uint64_t second);
void flush_torn();

}  // namespace ucclep::executor
