# SPDX-License-Identifier: Apache-2.0
"""The structs and functions of ucclep/ucclep.h for ctypes. tests/test_abi.py compares them with the compiled header."""
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p

Allgather = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
Alloc = CFUNCTYPE(c_int, POINTER(c_void_p), c_size_t, c_void_p)
Free = CFUNCTYPE(c_int, c_void_p, c_void_p)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


class Struct(ctypes.Structure):
    """What every struct of the API begins with; made as the INIT macros make it."""

    MAGIC = 0
    _fields_ = [("size", c_uint), ("magic", c_uint)]

    def __init__(self, **fields):
        names = [name for name, _ in self._fields_]
        for name in fields:
            if name not in names:
                raise TypeError(f"{name} is unknown, expected some of {', '.join(names)}")
        super().__init__(ctypes.sizeof(type(self)), self.MAGIC, **fields)


class Tensor(Struct):
    MAGIC = 0x55450001
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ndim", c_int), ("sizes", c_int64 * 4), ("strides", c_int64 * 4)]


TensorPointer = POINTER(Tensor)


def _pointers(*names: str) -> list:
    """Fields that hold addresses of structs: assigning an integer is what costs least."""
    return [(name, c_void_p) for name in names]


class CommConfig(Struct):
    MAGIC = 0x55450002
    _fields_ = [("device", c_int), ("device_index", c_int), ("transport", c_char_p), ("nics", c_char_p),
                ("ranks_per_node", c_int), ("ranks_per_domain", c_int), ("proxy_threads", c_int), ("timeout_ms", c_int)]

    def __init__(self, **fields):
        super().__init__(**{"device_index": -1, **fields})


class Bootstrap(Struct):
    MAGIC = 0x55450003
    _fields_ = [("ctx", c_void_p), ("allgather", Allgather)]


class CommInfo(Struct):
    MAGIC = 0x55450004
    _fields_ = [("rank", c_int), ("nranks", c_int), ("device", c_int), ("device_index", c_int), ("node", c_int),
                ("num_nodes", c_int), ("domain_size", c_int), ("proxy_threads", c_int), ("transport", c_char * 32),
                ("nics", c_char * 256), ("node_name", c_char * 64), ("device_name", c_char * 64),
                ("window_bytes", c_uint64)]


class AsyncError(Struct):
    MAGIC = 0x55450005
    _fields_ = [("code", c_int), ("op", c_char * 32), ("phase", c_char * 32), ("rank", c_int), ("peer", c_int),
                ("epoch", c_uint64), ("waited_ms", c_uint64), ("text", c_char * 512)]


class Stats(Struct):
    MAGIC = 0x55450006
    _fields_ = [(name, c_uint64) for name in
                ("commands", "messages", "bytes_sent", "bytes_received", "ring_full_stalls", "credit_stalls",
                 "nic_stalls", "reorder_depth_max")]


class GroupConfig(Struct):
    MAGIC = 0x55450007
    _fields_ = [("num_experts", c_int), ("top_k", c_int), ("max_tokens_per_rank", c_int),
                ("ll_max_tokens_per_rank", c_int), ("max_token_bytes", c_int64), ("max_recv_tokens_per_rank", c_int64),
                ("num_sms", c_int), ("timeout_ms", c_int), ("enable_mask", c_int), ("overflow", c_int),
                ("alloc_fn", Alloc), ("free_fn", Free), ("alloc_ctx", c_void_p), ("num_signals", c_int),
                ("max_in_flight", c_int), ("nranks", c_int), ("window_bytes", c_int64),
                *_pointers("experts_per_rank"), ("num_logical_experts", c_int), ("replica_choice", c_int)]


class GroupLimits(Struct):
    MAGIC = 0x55450008
    _fields_ = [(name, c_int64) for name in
                ("device_bytes", "host_bytes", "max_top_k", "max_experts", "max_tokens_per_rank", "max_token_bytes",
                 "max_ranks", "epoch_bits", "tokens_per_round", "whole_bytes")]


class HandleConfig(Struct):
    MAGIC = 0x55450009
    _fields_ = [("mode", c_int), ("layout", c_int), ("expert_alignment", c_int), ("expert_ids", c_int),
                *_pointers("handle_mem"), ("tile_rows", c_int), ("waves", c_int), ("max_tokens", c_int64)]


class Counters(Struct):
    MAGIC = 0x5545000A
    _fields_ = _pointers("tokens_per_expert", "expert_offsets", "tokens_per_rank", "recv_total", "recv_total_host",
                         "tokens_per_expert_unpadded", "tokens_per_expert_rank")


class RoutingCounts(Struct):
    MAGIC = 0x5545000B
    _fields_ = _pointers("tokens_per_rank", "tokens_per_expert", "is_token_in_rank", "tokens_per_logical_expert")


class DispatchInputs(Struct):
    MAGIC = 0x5545000C
    _fields_ = _pointers("tokens", "scales", "topk_weights", "topk_idx")


class DispatchOutputs(Struct):
    MAGIC = 0x5545000D
    _fields_ = _pointers("tokens", "scales", "topk_idx", "topk_weights", "src_info", "cumulative_tokens_per_expert",
                         "wait_ns", "counters")


class CombineInputs(Struct):
    MAGIC = 0x5545000E
    _fields_ = _pointers("tokens", "scales", "topk_weights", "bias", "bias2")


class CombineOutputs(Struct):
    MAGIC = 0x5545000F
    _fields_ = _pointers("tokens", "topk_weights", "wait_ns")


class DispatchConfig(Struct):
    MAGIC = 0x55450010
    _fields_ = [("send_only", c_int), ("quant", c_int), ("round_scale", c_int), ("pass_", c_int), ("num_sms", c_int)]


class CombineConfig(Struct):
    MAGIC = 0x55450011
    _fields_ = [("send_only", c_int), ("pass_", c_int), ("num_sms", c_int), ("quant", c_int), ("done_target", c_int)]


class Tiles(Struct):
    MAGIC = 0x55450012
    _fields_ = [*_pointers("tile_ready", "tile_done", "rows_final", "tile_expert", "first_row", "src_info", "weights",
                           "row_at", "scales_at"), ("capacity", c_int64), ("tiles", c_int64)]


_pointer = c_void_p
_out = POINTER(c_void_p)
_stream = c_void_p

#: Argument types by function; all return a code, but those of STRINGS.
FUNCTIONS = {
    "ucclEpGetVersion": [POINTER(c_int)],
    "ucclEpGetBuildInfo": [_pointer, POINTER(c_size_t)],
    "ucclEpGetUniqueId": [POINTER(UniqueId)],
    "ucclEpCommInitRank": [_out, c_int, UniqueId, c_int, POINTER(CommConfig)],
    "ucclEpCommInitBootstrap": [_out, c_int, c_int, POINTER(Bootstrap), POINTER(CommConfig)],
    "ucclEpCommCount": [_pointer, POINTER(c_int)],
    "ucclEpCommUserRank": [_pointer, POINTER(c_int)],
    "ucclEpCommGetInfo": [_pointer, POINTER(CommInfo)],
    "ucclEpCommGetTopology": [_pointer, _pointer, POINTER(c_size_t)],
    "ucclEpCommGetAsyncError": [_pointer, POINTER(AsyncError)],
    "ucclEpCommClearAsyncError": [_pointer],
    "ucclEpCommGetStats": [_pointer, POINTER(Stats)],
    "ucclEpCommAbort": [_pointer],
    "ucclEpCommDestroy": [_pointer],
    "ucclEpMemAlloc": [_pointer, _out, c_size_t],
    "ucclEpMemFree": [_pointer, _pointer],
    "ucclEpMemAllocHost": [_pointer, _out, c_size_t],
    "ucclEpMemFreeHost": [_pointer, _pointer],
    "ucclEpMemcpy": [_pointer, _pointer, _pointer, c_size_t, _stream],
    "ucclEpStreamCreate": [_pointer, _out],
    "ucclEpStreamDestroy": [_pointer, _stream],
    "ucclEpStreamSynchronize": [_pointer, _stream],
    "ucclEpStreamWaitEvent": [_pointer, _stream, _pointer],
    "ucclEpEventCreate": [_pointer, _out],
    "ucclEpEventDestroy": [_pointer, _pointer],
    "ucclEpEventRecord": [_pointer, _pointer, _stream],
    "ucclEpEventSynchronize": [_pointer, _pointer],
    "ucclEpEventElapsed": [_pointer, _pointer, _pointer, POINTER(c_float)],
    "ucclEpStreamBeginCapture": [_pointer, _stream],
    "ucclEpStreamEndCapture": [_pointer, _stream, _out],
    "ucclEpGraphLaunch": [_pointer, _pointer, _stream],
    "ucclEpGraphDestroy": [_pointer, _pointer],
    "ucclEpWindowRegister": [_pointer, _pointer, c_size_t, _out],
    "ucclEpWindowDeregister": [_pointer, _pointer],
    "ucclEpMemPoolOpen": [_pointer],
    "ucclEpGroupQuery": [_pointer, POINTER(GroupConfig), POINTER(GroupLimits)],
    "ucclEpGroupCreate": [_out, _pointer, POINTER(GroupConfig)],
    "ucclEpGroupDestroy": [_pointer],
    "ucclEpGroupSetExpertMap": [_pointer, TensorPointer, TensorPointer, _stream],
    "ucclEpGetRoutingCounts": [_pointer, TensorPointer, POINTER(RoutingCounts), _stream],
    "ucclEpMaskQuery": [_pointer, _pointer, _stream],
    "ucclEpMaskUpdate": [_pointer, POINTER(c_int), _stream],
    "ucclEpMaskClear": [_pointer, _stream],
    "ucclEpHandleMemSize": [_pointer, POINTER(HandleConfig), POINTER(c_size_t)],
    "ucclEpHandleCreate": [_out, _pointer, POINTER(HandleConfig)],
    "ucclEpHandleDestroy": [_pointer],
    "ucclEpHandleUpdate": [_pointer, TensorPointer, POINTER(Counters), _stream],
    "ucclEpHandleWaitCounts": [_pointer, POINTER(c_int64), POINTER(c_int64)],
    "ucclEpHandleGetTiles": [_pointer, POINTER(Tiles)],
    "ucclEpDispatch": [_pointer, POINTER(DispatchInputs), POINTER(DispatchOutputs), POINTER(DispatchConfig), _stream],
    "ucclEpCombine": [_pointer, POINTER(CombineInputs), POINTER(CombineOutputs), POINTER(CombineConfig), _stream],
    "ucclEpComplete": [_pointer, _stream],
    "ucclEpCompleteWave": [_pointer, c_int, _stream],
    "ucclEpWaveDone": [_pointer, c_int, _stream],
    "ucclEpCompleteDispatch": [_pointer, POINTER(DispatchOutputs), POINTER(DispatchConfig), _stream],
    "ucclEpCompleteCombine": [_pointer, POINTER(CombineInputs), POINTER(CombineOutputs), POINTER(CombineConfig),
                              _stream],
    "ucclEpGroupGetDevice": [_pointer, _pointer],
    "ucclEpHandleGetDevice": [_pointer, _pointer],
    "ucclEpWindowGetDevice": [_pointer, _pointer],
    "ucclEpDispatchGetDevice": [_pointer, POINTER(DispatchInputs), POINTER(DispatchOutputs), POINTER(DispatchConfig),
                                _pointer],
    "ucclEpCombineGetDevice": [_pointer, POINTER(CombineInputs), POINTER(CombineOutputs), POINTER(CombineConfig),
                               _pointer],
}
STRINGS = {"ucclEpGetErrorString": [c_int], "ucclEpGetLastError": [c_void_p]}
