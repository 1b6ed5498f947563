# SPDX-License-Identifier: Apache-2.0
"""Functions of process groups, where DeepEP 2.0 to 2.4 have them."""
from ..comm import (NCCLCommHandle, destroy_all_managed_nccl_comm, get_logical_domain_size, get_nccl_comm_handle,
                    get_physical_domain_size)

__all__ = ["NCCLCommHandle", "destroy_all_managed_nccl_comm", "get_logical_domain_size", "get_nccl_comm_handle",
           "get_physical_domain_size"]
