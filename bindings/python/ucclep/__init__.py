# SPDX-License-Identifier: Apache-2.0
"""libucclep for Python: Mixture-of-Experts dispatch and combine on tensors of any framework.

    with ucclep.Communicator.from_env() as comm:
        with ucclep.Group(comm, num_experts=E, top_k=K, max_tokens_per_rank=T, max_token_bytes=2 * H) as group:
            handle = group.handle(ucclep.Layout.EXPERT_MAJOR, ucclep.Mode.LL)
            handle.dispatch(tokens, rows, topk_idx=ids, topk_weights=weights)
            ...                                  # the experts change the rows
            handle.combine(rows, result)
            comm.synchronize()

Each name means what its namesake in include/ucclep/ucclep.h means. A call that fails raises an `Error`.
"""
from .communicator import Communicator
from .enums import DataType, Device, ExpertIds, Layout, Mode, OverflowRows, Quant, ReplicaChoice
from .errors import (Aborted, Error, InternalError, InvalidArgument, InvalidUsage, NotSupported, OutOfMemory, Overflow,
                     RemoteError, SystemCallError, Timeout, UnhandledDeviceError)
from .graph import Graph
from .group import Group, limits
from .handle import Handle
from .library import build_info, version
from .memory import Memory, Window
from .rendezvous import unique_id
from .stream import Event, Stream
from .tensor import TensorView, tensor

__version__ = version()

__all__ = [
    "Aborted", "Communicator", "DataType", "Device", "Error", "Event", "ExpertIds", "Graph", "Group", "Handle",
    "InternalError", "InvalidArgument", "InvalidUsage", "Layout", "Memory", "Mode", "NotSupported", "OutOfMemory",
    "Overflow", "OverflowRows", "Quant", "RemoteError", "ReplicaChoice", "Stream", "SystemCallError", "TensorView",
    "Timeout", "UnhandledDeviceError", "Window", "build_info", "limits", "tensor", "unique_id", "version",
]
