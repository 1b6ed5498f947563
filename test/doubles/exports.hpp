// SPDX-License-Identifier: Apache-2.0
// The functions of the double under the names that they have in the driver's library. Their types are those of the
// library's table. A name that a driver does not have is hidden by the version script.
#pragma once
#include "doubles/double.hpp"
#include "support/graph_api.hpp"

namespace ucclep::doubles {

template <class Member>
using Export = std::remove_pointer_t<Member>;
using Table = DriverApi;

Export<decltype(Table::init)> init asm(VENDOR("cuInit", "hipInit"));
Export<decltype(Table::driver_version)> driver_version asm(VENDOR("cuDriverGetVersion", "hipDriverGetVersion"));
Export<decltype(Table::error_string)> error_string asm(VENDOR("cuGetErrorString", "hipDrvGetErrorString"));

Export<decltype(Table::device_count)> device_count asm(VENDOR("cuDeviceGetCount", "hipGetDeviceCount"));
Export<decltype(Table::device_get)> device_get asm(VENDOR("cuDeviceGet", "hipDeviceGet"));
Export<decltype(Table::device_name)> device_name asm(VENDOR("cuDeviceGetName", "hipDeviceGetName"));
Export<decltype(Table::device_attribute)> device_attribute asm(VENDOR("cuDeviceGetAttribute", "hipDeviceGetAttribute"));
Export<decltype(Table::device_can_access_peer)> device_can_access_peer asm(VENDOR("cuDeviceCanAccessPeer",
                                                                                  "hipDeviceCanAccessPeer"));
Export<decltype(Table::peer_attribute)> peer_attribute asm(VENDOR("cuDeviceGetP2PAttribute", "no_hip_peer_attribute"));
Export<decltype(Table::link_type)> link_type asm(VENDOR("no_cuda_link_type", "hipExtGetLinkTypeAndHopCount"));

Export<decltype(Table::primary_context_retain)> primary_context_retain asm(VENDOR("cuDevicePrimaryCtxRetain",
                                                                                  "hipDevicePrimaryCtxRetain"));
Export<decltype(Table::primary_context_release)> primary_context_release asm(VENDOR("cuDevicePrimaryCtxRelease_v2",
                                                                                    "hipDevicePrimaryCtxRelease"));
Export<decltype(Table::context_get_current)> context_get_current asm(VENDOR("cuCtxGetCurrent", "hipCtxGetCurrent"));
Export<decltype(Table::context_set_current)> context_set_current asm(VENDOR("cuCtxSetCurrent", "hipCtxSetCurrent"));
Export<decltype(Table::context_get_device)> context_get_device asm(VENDOR("cuCtxGetDevice", "hipCtxGetDevice"));
Export<decltype(Table::enable_peer_context)> enable_peer_context asm(VENDOR("cuCtxEnablePeerAccess",
                                                                            "no_hip_enable_peer_context"));
Export<decltype(Table::enable_peer_device)> enable_peer_device asm(VENDOR("no_cuda_enable_peer_device",
                                                                          "hipDeviceEnablePeerAccess"));

Export<decltype(Table::mem_alloc)> mem_alloc asm(VENDOR("cuMemAlloc_v2", "hipMalloc"));
Export<decltype(Table::mem_free)> mem_free asm(VENDOR("cuMemFree_v2", "hipFree"));
Export<decltype(Table::memset_async)> memset_async asm(VENDOR("cuMemsetD8Async", "hipMemsetD8Async"));
Export<decltype(Table::memcpy_async)> memcpy_async asm(VENDOR("cuMemcpyAsync", "no_hip_memcpy_async"));
Export<decltype(Table::memcpy_async_kind)> memcpy_async_kind asm(VENDOR("no_cuda_memcpy_async_kind", "hipMemcpyAsync"));
Export<decltype(Table::host_alloc)> host_alloc asm(VENDOR("cuMemHostAlloc", "hipHostMalloc"));
Export<decltype(Table::host_free)> host_free asm(VENDOR("cuMemFreeHost", "hipHostFree"));
Export<decltype(Table::host_register)> host_register asm(VENDOR("cuMemHostRegister_v2", "hipHostRegister"));
Export<decltype(Table::host_unregister)> host_unregister asm(VENDOR("cuMemHostUnregister", "hipHostUnregister"));
Export<decltype(Table::host_device_address)> host_device_address asm(VENDOR("cuMemHostGetDevicePointer_v2",
                                                                            "hipHostGetDevicePointer"));
Export<decltype(Table::address_range)> address_range asm(VENDOR("cuMemGetAddressRange_v2", "hipMemGetAddressRange"));
Export<decltype(Table::ipc_get)> ipc_get asm(VENDOR("cuIpcGetMemHandle", "hipIpcGetMemHandle"));
Export<decltype(Table::ipc_open)> ipc_open asm(VENDOR("cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle"));
Export<decltype(Table::ipc_close)> ipc_close asm(VENDOR("cuIpcCloseMemHandle", "hipIpcCloseMemHandle"));
Export<decltype(Table::dma_buf)> dma_buf asm(VENDOR("cuMemGetHandleForAddressRange", "no_hip_dma_buf"));
Export<decltype(Table::flush_nic_writes)> flush_nic_writes asm(VENDOR("cuFlushGPUDirectRDMAWrites",
                                                                      "no_hip_flush_nic_writes"));

Export<decltype(Table::allocation_granularity)> allocation_granularity asm(VENDOR("cuMemGetAllocationGranularity",
                                                                                  "hipMemGetAllocationGranularity"));
Export<decltype(Table::allocation_create)> allocation_create asm(VENDOR("cuMemCreate", "hipMemCreate"));
Export<decltype(Table::allocation_retain)> allocation_retain asm(VENDOR("cuMemRetainAllocationHandle",
                                                                        "hipMemRetainAllocationHandle"));
Export<decltype(Table::allocation_release)> allocation_release asm(VENDOR("cuMemRelease", "hipMemRelease"));
Export<decltype(Table::allocation_export)> allocation_export asm(VENDOR("cuMemExportToShareableHandle",
                                                                        "hipMemExportToShareableHandle"));
Export<decltype(Table::allocation_import)> allocation_import asm(VENDOR("cuMemImportFromShareableHandle",
                                                                        "hipMemImportFromShareableHandle"));
Export<decltype(Table::address_reserve)> address_reserve asm(VENDOR("cuMemAddressReserve", "hipMemAddressReserve"));
Export<decltype(Table::address_free)> address_free asm(VENDOR("cuMemAddressFree", "hipMemAddressFree"));
Export<decltype(Table::map)> map asm(VENDOR("cuMemMap", "hipMemMap"));
Export<decltype(Table::unmap)> unmap asm(VENDOR("cuMemUnmap", "hipMemUnmap"));
Export<decltype(Table::set_access)> set_access asm(VENDOR("cuMemSetAccess", "hipMemSetAccess"));
Export<decltype(Table::get_access)> get_access asm(VENDOR("cuMemGetAccess", "hipMemGetAccess"));

Export<decltype(Table::stream_create)> stream_create asm(VENDOR("cuStreamCreateWithPriority",
                                                                "hipStreamCreateWithPriority"));
Export<decltype(Table::stream_destroy)> stream_destroy asm(VENDOR("cuStreamDestroy_v2", "hipStreamDestroy"));
Export<decltype(Table::stream_query)> stream_query asm(VENDOR("cuStreamQuery", "hipStreamQuery"));
Export<decltype(Table::stream_wait_event)> stream_wait_event asm(VENDOR("cuStreamWaitEvent", "hipStreamWaitEvent"));
Export<decltype(Table::stream_write)> stream_write asm(VENDOR("cuStreamWriteValue32_v2", "hipStreamWriteValue32"));
Export<decltype(Table::stream_is_capturing)> stream_is_capturing asm(VENDOR("cuStreamIsCapturing",
                                                                            "hipStreamIsCapturing"));
Export<decltype(Table::thread_capture_mode)> thread_capture_mode asm(VENDOR("cuThreadExchangeStreamCaptureMode",
                                                                            "hipThreadExchangeStreamCaptureMode"));
Export<decltype(Table::event_create)> event_create asm(VENDOR("cuEventCreate", "hipEventCreateWithFlags"));
Export<decltype(Table::event_destroy)> event_destroy asm(VENDOR("cuEventDestroy_v2", "hipEventDestroy"));
Export<decltype(Table::event_record)> event_record asm(VENDOR("cuEventRecord", "hipEventRecord"));
Export<decltype(Table::event_query)> event_query asm(VENDOR("cuEventQuery", "hipEventQuery"));
Export<decltype(Table::event_elapsed_ms)> event_elapsed_ms asm(VENDOR("cuEventElapsedTime", "hipEventElapsedTime"));

using test::GraphApi;
Export<decltype(GraphApi::begin_capture)> begin_capture asm(VENDOR("cuStreamBeginCapture_v2", "hipStreamBeginCapture"));
Export<decltype(GraphApi::end_capture)> end_capture asm(VENDOR("cuStreamEndCapture", "hipStreamEndCapture"));
Export<decltype(GraphApi::instantiate)> graph_instantiate asm(VENDOR("cuGraphInstantiateWithFlags",
                                                                     "hipGraphInstantiateWithFlags"));
Export<decltype(GraphApi::launch)> graph_launch asm(VENDOR("cuGraphLaunch", "hipGraphLaunch"));
Export<decltype(GraphApi::destroy_executable)> graph_destroy_executable asm(VENDOR("cuGraphExecDestroy",
                                                                                   "hipGraphExecDestroy"));
Export<decltype(GraphApi::destroy)> graph_destroy asm(VENDOR("cuGraphDestroy", "hipGraphDestroy"));

Export<decltype(Table::module_load)> module_load asm(VENDOR("cuModuleLoadData", "hipModuleLoadData"));
Export<decltype(Table::module_unload)> module_unload asm(VENDOR("cuModuleUnload", "hipModuleUnload"));
Export<decltype(Table::module_function)> module_function asm(VENDOR("cuModuleGetFunction", "hipModuleGetFunction"));
Export<decltype(Table::function_set_attribute)> function_set_attribute asm(VENDOR("cuFuncSetAttribute",
                                                                                  "hipFuncSetAttribute"));
Export<decltype(Table::launch)> launch asm(VENDOR("cuLaunchKernel", "hipModuleLaunchKernel"));
Export<decltype(Table::launch_cooperative)> launch_cooperative asm(VENDOR("cuLaunchCooperativeKernel",
                                                                          "hipModuleLaunchCooperativeKernel"));
Export<decltype(Table::launch_with)> launch_with asm(VENDOR("cuLaunchKernelEx", "no_hip_launch_with"));

}  // namespace ucclep::doubles
