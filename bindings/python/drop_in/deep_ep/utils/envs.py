# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a test: processes, seeds, and what the machine can do."""
from __future__ import annotations

import inspect
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..comm import get_logical_domain_size, get_physical_domain_size

__all__ = ["EnvOverride", "check_fast_rdma_atomic_support", "check_nvlink_connections", "check_torch_deterministic", "dist_print",
           "get_global_seed", "get_local_seed", "get_logical_domain_size", "get_nvlink_gbs", "get_physical_domain_size",
           "get_rdma_gbs", "get_sm_read_gbs", "get_sm_write_gbs", "init_dist", "init_seed"]

NICS = Path("/sys/class/infiniband")

_local_rank: int = 0
_seeds = {"global": 0, "local": 0}


class EnvOverride:
    """Sets environment variables in a `with` block: (name, value, whether to set it)."""

    def __init__(self, envs: list):
        self._envs = {name: value for name, value, wanted in envs if wanted}
        self._before: dict = {}

    def __enter__(self) -> EnvOverride:
        self._before = {name: os.environ.get(name) for name in self._envs}
        os.environ.update(self._envs)
        return self

    def __exit__(self, *_: Any) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def init_seed(global_seed: int) -> None:
    """Seeds torch and random, differently on each rank."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    _seeds.update({"global": global_seed, "local": global_seed * 1000003 + rank})
    torch.manual_seed(_seeds["local"])
    random.seed(_seeds["local"])


def get_local_seed() -> int:
    """This rank's."""
    return _seeds["local"]


def get_global_seed() -> int:
    """The argument of init_seed."""
    return _seeds["global"]


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """[collective] Prints on every rank, or on the first of each node."""
    if not once_in_node or _local_rank == 0:
        print(s, flush=True)
    dist.barrier()


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> tuple:
    """(rank, ranks, group) by MASTER_ADDR, MASTER_PORT, and as DeepEP's tests have them, WORLD_SIZE nodes of which this is RANK.

    As there, new tensors are bf16 and lie on the rank's GPU by default; without a GPU, on the CPU.
    """
    global _local_rank
    _local_rank = local_rank
    nodes, node = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    where = f"tcp://{os.environ.get('MASTER_ADDR', '127.0.0.1')}:{os.environ.get('MASTER_PORT', '8361')}"
    how: dict = {"init_method": where, "world_size": nodes * num_local_ranks, "rank": node * num_local_ranks + local_rank}
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        how["backend"] = "nccl"
        if "device_id" in inspect.signature(dist.init_process_group).parameters:
            how["device_id"] = torch.device("cuda", local_rank)
    else:
        how["backend"] = "gloo"
    dist.init_process_group(**how)
    torch.set_default_dtype(torch.bfloat16)
    if hasattr(torch, "set_default_device"):
        torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    init_seed(seed)
    return dist.get_rank(), dist.get_world_size(), dist.new_group(list(range(dist.get_world_size())))


def check_nvlink_connections(group: Any) -> None:
    """Nothing to check: the library finds how ranks reach each other."""


def check_torch_deterministic() -> None:
    """Raises where torch fills memory that has just been allocated: beside an operation, that would overwrite rows."""
    fills = getattr(getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory", False)
    if torch.are_deterministic_algorithms_enabled() and fills:
        raise RuntimeError("torch.utils.deterministic.fill_uninitialized_memory is True with deterministic algorithms: set it to "
                           "False")


def _unknown(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> float:
        raise NotImplementedError(f"{name}: libucclep does not plan by rates of hardware; measure with `python -m ucclep.bench`")
    refuse.__name__, refuse.__doc__ = name, "Not covered: raises NotImplementedError."
    return refuse


get_sm_read_gbs = _unknown("get_sm_read_gbs")
get_sm_write_gbs = _unknown("get_sm_write_gbs")


def get_nvlink_gbs(factor: float = 0.9) -> float:
    """`factor` of what the first GPU's NVLinks carry together, in GB/s; 0 where there is no NVLink."""
    try:
        said = subprocess.run(["nvidia-smi", "nvlink", "-s"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    first = said.split("GPU 1:")[0]
    return factor * sum(map(float, re.findall(r"Link \d+: *([\d.]+) GB/s", first)))


def get_rdma_gbs(nic_name: str = "mlx5_0") -> float:
    """What a port of the NIC carries in GB/s, as the kernel says; 0 where there is no such NIC."""
    for rate in sorted((NICS / nic_name / "ports").glob("*/rate")):
        gigabits = re.match(r"[\d.]+", rate.read_text())
        if gigabits:
            return float(gigabits[0]) / 8
    return 0


def check_fast_rdma_atomic_support(nic_name: str = "mlx5_0") -> bool:
    """False: the library uses no atomic operations of NICs."""
    return False
