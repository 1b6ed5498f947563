// SPDX-License-Identifier: Apache-2.0
// The part of a GPU driver that the library uses: one table that libcuda (12.0 and newer) and libamdhip64 (6.0 and
// newer) both fill. HIP mirrors the CUDA driver API closely enough that one signature serves both: handles are
// pointers, structs have one layout, codes and flags one value. Where they differ, DriverFacts says how. No vendor
// header is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ucclep::gpu {

using Code = int;           // CUresult, hipError_t
using DeviceOrdinal = int;  // CUdevice, hipDevice_t
struct Opaque;
using Context = Opaque*;
using Stream = Opaque*;
using Event = Opaque*;
using Module = Opaque*;
using Function = Opaque*;
using AllocationHandle = uint64_t;  // CUmemGenericAllocationHandle; a pointer in HIP

// Codes with a meaning for the library. Both drivers number them alike.
inline constexpr Code success = 0, out_of_memory = 2, no_device = 100, no_binary_for_gpu = 209, unsupported_ptx = 222,
                      not_found = 500, not_ready = 600, peer_access_already_enabled = 704;

inline constexpr unsigned host_portable = 1, host_mapped = 2;  // flags of host_alloc and host_register
inline constexpr unsigned stream_non_blocking = 1;
// Of streams. What is outside a GPU's range counts as its end.
inline constexpr int normal_priority = 0, highest_priority = std::numeric_limits<int>::min();
inline constexpr unsigned event_untimed = 2;
inline constexpr int function_max_dynamic_shared = 8;

// CUmemAllocationProp, hipMemAllocationProp.
struct Location {
  int type;
  int id;
};
struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* unused;
  uint8_t compression, rdma_capable;
  uint16_t usage;
  uint8_t reserved[4];
};
static_assert(sizeof(AllocationProperties) == 32);
inline constexpr int allocation_pinned = 1, location_device = 1, handle_posix_fd = 1, granularity_recommended = 1;

// CUmemAccessDesc, hipMemAccessDesc.
struct Access {
  Location location;
  int flags;
};
inline constexpr int access_read_write = 3;

// CUipcMemHandle, hipIpcMemHandle_t: passed by value.
struct IpcHandle {
  char bytes[64];
};
inline constexpr unsigned ipc_lazy_peer_access = 1;

// CUlaunchAttribute, CUlaunchConfig.
struct LaunchAttribute {
  int name;
  alignas(8) int value;
  char rest[60];
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  const LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);
// The kernel's blocks may begin before the launch ahead of it has ended, when all of that one's have said so or ended.
inline constexpr LaunchAttribute early_start{6, 1, {}};

// What stream_is_capturing answers; anything else means a capture, also a broken one.
inline constexpr int capture_none = 0;
// A thread in this mode may do what a capture forbids, its own or one of another thread.
inline constexpr int capture_mode_relaxed = 2;
// Codes from the first to the last say that something cannot be done in a capture, or to what was captured.
inline constexpr Code first_of_capture = 900, last_of_capture = 908;

struct DriverApi {
  Code (*init)(unsigned flags);
  Code (*driver_version)(int* version);
  Code (*error_string)(Code code, const char** text);

  Code (*device_count)(int* count);
  Code (*device_get)(DeviceOrdinal* device, int index);
  Code (*device_name)(char* name, int bytes, DeviceOrdinal device);
  Code (*device_attribute)(int* value, int attribute, DeviceOrdinal device);
  Code (*device_can_access_peer)(int* can, DeviceOrdinal device, DeviceOrdinal peer);
  Code (*peer_attribute)(int* value, int attribute, DeviceOrdinal device, DeviceOrdinal peer);                // CUDA
  Code (*link_type)(DeviceOrdinal device, DeviceOrdinal peer, uint32_t* hsa_link_type, uint32_t* hop_count);  // HIP

  Code (*primary_context_retain)(Context* context, DeviceOrdinal device);
  Code (*primary_context_release)(DeviceOrdinal device);
  Code (*context_get_current)(Context* context);
  Code (*context_set_current)(Context context);
  Code (*context_get_device)(DeviceOrdinal* device);
  Code (*enable_peer_context)(Context peer, unsigned flags);       // CUDA
  Code (*enable_peer_device)(DeviceOrdinal peer, unsigned flags);  // HIP

  Code (*mem_alloc)(void** data, size_t bytes);
  Code (*mem_free)(void* data);
  Code (*memset_async)(void* data, unsigned char value, size_t bytes, Stream stream);
  Code (*memcpy_async)(void* to, const void* from, size_t bytes, Stream stream);                 // CUDA
  Code (*memcpy_async_kind)(void* to, const void* from, size_t bytes, int kind, Stream stream);  // HIP
  Code (*host_alloc)(void** data, size_t bytes, unsigned flags);
  Code (*host_free)(void* data);
  Code (*host_register)(void* data, size_t bytes, unsigned flags);
  Code (*host_unregister)(void* data);
  Code (*host_device_address)(void** on_device, void* data, unsigned flags);
  Code (*address_range)(void** base, size_t* bytes, void* data);
  Code (*ipc_get)(IpcHandle* handle, void* base);
  Code (*ipc_open)(void** base, IpcHandle handle, unsigned flags);
  Code (*ipc_close)(void* base);
  Code (*dma_buf)(void* fd, void* data, size_t bytes, int type, unsigned long long flags);  // CUDA
  Code (*flush_nic_writes)(int target, int scope);                                          // CUDA

  Code (*allocation_granularity)(size_t* bytes, const AllocationProperties* properties, int option);
  Code (*allocation_create)(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                            unsigned long long flags);
  Code (*allocation_retain)(AllocationHandle* handle, void* data);
  Code (*allocation_release)(AllocationHandle handle);
  Code (*allocation_export)(void* shareable, AllocationHandle handle, int type, unsigned long long flags);
  Code (*allocation_import)(AllocationHandle* handle, void* shareable, int type);
  Code (*address_reserve)(void** data, size_t bytes, size_t alignment, void* wanted, unsigned long long flags);
  Code (*address_free)(void* data, size_t bytes);
  Code (*map)(void* data, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags);
  Code (*unmap)(void* data, size_t bytes);
  Code (*set_access)(void* data, size_t bytes, const Access* access, size_t count);
  Code (*get_access)(unsigned long long* flags, const Location* location, void* data);

  Code (*stream_create)(Stream* stream, unsigned flags, int priority);
  Code (*stream_destroy)(Stream stream);
  Code (*stream_query)(Stream stream);
  Code (*stream_wait_event)(Stream stream, Event event, unsigned flags);
  Code (*stream_write)(Stream stream, void* word, uint32_t value, unsigned flags);
  Code (*stream_is_capturing)(Stream stream, int* status);
  Code (*thread_capture_mode)(int* mode);  // exchanges it
  Code (*event_create)(Event* event, unsigned flags);
  Code (*event_destroy)(Event event);
  Code (*event_record)(Event event, Stream stream);
  Code (*event_query)(Event event);
  Code (*event_elapsed_ms)(float* ms, Event begin, Event end);

  Code (*module_load)(Module* module, const void* image);
  Code (*module_unload)(Module module);
  Code (*module_function)(Function* function, Module module, const char* name);
  Code (*function_set_attribute)(Function function, int attribute, int value);
  Code (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                 unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** args, void** extra);
  Code (*launch_cooperative)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** args);
  Code (*launch_with)(const LaunchConfig* config, Function function, void** args, void** extra);  // CUDA
};

// Calls visit(member, name in libcuda, name in libamdhip64) for every function. NULL: that driver has none.
template <class Visit>
void each_function(DriverApi& api, Visit&& visit) {
  visit(api.init, "cuInit", "hipInit");
  visit(api.driver_version, "cuDriverGetVersion", "hipDriverGetVersion");
  visit(api.error_string, "cuGetErrorString", "hipDrvGetErrorString");

  visit(api.device_count, "cuDeviceGetCount", "hipGetDeviceCount");
  visit(api.device_get, "cuDeviceGet", "hipDeviceGet");
  visit(api.device_name, "cuDeviceGetName", "hipDeviceGetName");
  visit(api.device_attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute");
  visit(api.device_can_access_peer, "cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer");
  visit(api.peer_attribute, "cuDeviceGetP2PAttribute", nullptr);
  visit(api.link_type, nullptr, "hipExtGetLinkTypeAndHopCount");

  visit(api.primary_context_retain, "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain");
  visit(api.primary_context_release, "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease");
  visit(api.context_get_current, "cuCtxGetCurrent", "hipCtxGetCurrent");
  visit(api.context_set_current, "cuCtxSetCurrent", "hipCtxSetCurrent");
  visit(api.context_get_device, "cuCtxGetDevice", "hipCtxGetDevice");
  visit(api.enable_peer_context, "cuCtxEnablePeerAccess", nullptr);
  visit(api.enable_peer_device, nullptr, "hipDeviceEnablePeerAccess");

  visit(api.mem_alloc, "cuMemAlloc_v2", "hipMalloc");
  visit(api.mem_free, "cuMemFree_v2", "hipFree");
  visit(api.memset_async, "cuMemsetD8Async", "hipMemsetD8Async");
  visit(api.memcpy_async, "cuMemcpyAsync", nullptr);
  visit(api.memcpy_async_kind, nullptr, "hipMemcpyAsync");
  visit(api.host_alloc, "cuMemHostAlloc", "hipHostMalloc");
  visit(api.host_free, "cuMemFreeHost", "hipHostFree");
  visit(api.host_register, "cuMemHostRegister_v2", "hipHostRegister");
  visit(api.host_unregister, "cuMemHostUnregister", "hipHostUnregister");
  visit(api.host_device_address, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer");
  visit(api.address_range, "cuMemGetAddressRange_v2", "hipMemGetAddressRange");
  visit(api.ipc_get, "cuIpcGetMemHandle", "hipIpcGetMemHandle");
  visit(api.ipc_open, "cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle");
  visit(api.ipc_close, "cuIpcCloseMemHandle", "hipIpcCloseMemHandle");
  visit(api.dma_buf, "cuMemGetHandleForAddressRange", nullptr);
  visit(api.flush_nic_writes, "cuFlushGPUDirectRDMAWrites", nullptr);

  visit(api.allocation_granularity, "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity");
  visit(api.allocation_create, "cuMemCreate", "hipMemCreate");
  visit(api.allocation_retain, "cuMemRetainAllocationHandle", "hipMemRetainAllocationHandle");
  visit(api.allocation_release, "cuMemRelease", "hipMemRelease");
  visit(api.allocation_export, "cuMemExportToShareableHandle", "hipMemExportToShareableHandle");
  visit(api.allocation_import, "cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle");
  visit(api.address_reserve, "cuMemAddressReserve", "hipMemAddressReserve");
  visit(api.address_free, "cuMemAddressFree", "hipMemAddressFree");
  visit(api.map, "cuMemMap", "hipMemMap");
  visit(api.unmap, "cuMemUnmap", "hipMemUnmap");
  visit(api.set_access, "cuMemSetAccess", "hipMemSetAccess");
  visit(api.get_access, "cuMemGetAccess", "hipMemGetAccess");

  visit(api.stream_create, "cuStreamCreateWithPriority", "hipStreamCreateWithPriority");
  visit(api.stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy");
  visit(api.stream_query, "cuStreamQuery", "hipStreamQuery");
  visit(api.stream_wait_event, "cuStreamWaitEvent", "hipStreamWaitEvent");
  visit(api.stream_write, "cuStreamWriteValue32_v2", "hipStreamWriteValue32");
  visit(api.stream_is_capturing, "cuStreamIsCapturing", "hipStreamIsCapturing");
  visit(api.thread_capture_mode, "cuThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode");
  visit(api.event_create, "cuEventCreate", "hipEventCreateWithFlags");
  visit(api.event_destroy, "cuEventDestroy_v2", "hipEventDestroy");
  visit(api.event_record, "cuEventRecord", "hipEventRecord");
  visit(api.event_query, "cuEventQuery", "hipEventQuery");
  visit(api.event_elapsed_ms, "cuEventElapsedTime", "hipEventElapsedTime");

  visit(api.module_load, "cuModuleLoadData", "hipModuleLoadData");
  visit(api.module_unload, "cuModuleUnload", "hipModuleUnload");
  visit(api.module_function, "cuModuleGetFunction", "hipModuleGetFunction");
  visit(api.function_set_attribute, "cuFuncSetAttribute", "hipFuncSetAttribute");
  visit(api.launch, "cuLaunchKernel", "hipModuleLaunchKernel");
  visit(api.launch_cooperative, "cuLaunchCooperativeKernel", "hipModuleLaunchCooperativeKernel");
  visit(api.launch_with, "cuLaunchKernelEx", nullptr);
}

}  // namespace ucclep::gpu
