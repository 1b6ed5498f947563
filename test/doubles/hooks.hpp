// SPDX-License-Identifier: Apache-2.0
// What a test can ask of a double that is loaded in its process, beyond what a driver offers.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
// On the calling thread: so many calls succeed, the next one answers the code. Functions that undo something are
// neither counted nor refused: when they fail, nobody can repair it. calls < 0: none fails.
using UcclepDoubleFailAfter = void(int calls, int code);
// Whether the call that fail_after asked for has failed.
using UcclepDoubleHasFailed = bool();
// Streams that were made with a priority above the normal one.
using UcclepDoubleServiceStreams = int();
// Allocations, mappings, streams, events, modules and retained contexts that nobody has given back.
using UcclepDoubleLiveObjects = int();
// Bytes of devices and of the host that are allocated or pinned.
using UcclepDoubleLiveBytes = void(int64_t* device, int64_t* host);
// How often a thread that prefers this NUMA node, one of the first 64, had host memory allocated, or pinned.
using UcclepDoubleHostMemoryNear = void(int node, int* allocated, int* pinned);
// For doubles of NICs. How one gets at memory: bits; 0: it is the host's.
enum { ucclep_double_of_device = 1, ucclep_double_by_address = 2, ucclep_double_by_dma_buf = 4 };
using UcclepDoubleNicAccess = int(const void* data);
// What one writes. In memory of a device whose platform orders nothing it lies there when the device is flushed.
using UcclepDoubleNicWrite = void(void* to, const void* from, size_t bytes);
// How often devices were flushed, with that scope.
using UcclepDoubleFlushes = int(int scope);

UcclepDoubleFailAfter ucclep_double_fail_after;
UcclepDoubleHasFailed ucclep_double_has_failed;
UcclepDoubleServiceStreams ucclep_double_service_streams;
UcclepDoubleLiveObjects ucclep_double_live_objects;
UcclepDoubleLiveBytes ucclep_double_live_bytes;
UcclepDoubleHostMemoryNear ucclep_double_host_memory_near;
UcclepDoubleNicAccess ucclep_double_nic_access;
UcclepDoubleNicWrite ucclep_double_nic_write;
UcclepDoubleFlushes ucclep_double_flushes;
}
