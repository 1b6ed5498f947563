# SPDX-License-Identifier: Apache-2.0
"""Functions of any buffer, as DeepEP 2.5 has them."""
from .barrier import barrier
from .handle import (NCCLCommHandle, destroy_all_managed_nccl_comm, get_logical_domain_size, get_nccl_comm_handle,
                     get_physical_domain_size)
from .stream import get_comm_stream

__all__ = ["NCCLCommHandle", "barrier", "destroy_all_managed_nccl_comm", "get_comm_stream", "get_logical_domain_size",
           "get_nccl_comm_handle", "get_physical_domain_size"]
