# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.info: the version, the device of this process, its topology, and which transports work here."""
from __future__ import annotations

import argparse
import os
import threading

from . import Communicator, Error, Group, _tool, build_info, unique_id
from .library import lib


def transports() -> list[str]:
    """The built-in transports that networks are crossed with, as the library lists them."""
    line = next(line for line in build_info().splitlines() if line.startswith("transports:"))
    names = line.split(":", 1)[1].split("(")[0].split(",")
    return [name.strip() for name in names if name.strip() not in ("plugins", "faulty")]


def try_transport(name: str) -> str:
    """Joins two threads, as if each were on a machine of its own; returns "works", or why it does not."""
    id_ = unique_id()
    answers = [""] * 2

    def rank_main(rank: int) -> None:
        try:
            with Communicator(2, rank, id_, device="host", transport=name, ranks_per_node=1, timeout_ms=10000) as comm:
                Group(comm, num_experts=2, top_k=1, max_tokens_per_rank=1, max_token_bytes=64).destroy()
                info = comm.info()
                answers[rank] = "works" + (f", over {info['nics']}" if info["nics"] else "")
        except Error as error:
            answers[rank] = error.message

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers[0]


def device_lines() -> list[str]:
    """The device of a communicator of one rank, and the plan for it."""
    with Communicator(1, 0, unique_id()) as comm:
        info = comm.info()
        lines = [f"device: {comm.device.name.lower()} {info['device_index']} ({info['device_name']}) "
                 f"on {info['node_name']}"]
        return lines + topology_lines(comm.topology())


def topology_lines(topology: dict) -> list[str]:
    """Machines, and what each rank has of them."""
    lines = []
    for machine in topology["machines"]:
        cores = sum(len(numa["cores"]) for numa in machine["numa_nodes"])
        nics = [f"{nic['name']}{'' if nic['up'] else ' (down)'}" for nic in machine["nics"]]
        lines.append(f"machine {machine['name']}: {cores} cores, {len(machine['gpus'])} GPUs, "
                     f"NICs {', '.join(nics) or 'none'}")
    for number, rank in enumerate(topology["ranks"]):
        nics = [f"{nic['name']} (rail {nic['rail']}, {nic['path']})" for nic in rank["nics"]]
        cpus = [str(proxy["cpu"]) for proxy in rank["proxies"]]
        lines.append(f"rank {number}: node {rank['node']}, domain {rank['domain']}, NICs {', '.join(nics) or 'none'}, "
                     f"proxy threads on CPUs {', '.join(cpus) or 'none'}")
    return lines


def main() -> int:
    argparse.ArgumentParser(prog="python -m ucclep.info", description=__doc__,
                            epilog="Exit code: 0, or 1 where no device can be used.").parse_args()
    print(build_info().rstrip())
    print("library:", lib._name)
    for name, value in sorted(os.environ.items()):
        if name.startswith("UCCLEP_"):
            print(f"environment: {name}={value}")
    code = 0
    try:
        print("\n".join(device_lines()))
    except Error as error:
        print("device: none,", error.message)
        code = 1
    for name in transports():
        print(f"transport {name}: {try_transport(name)}")
    return code


if __name__ == "__main__":
    _tool.run("ucclep.info", main)
