# SPDX-License-Identifier: Apache-2.0
"""python -m ucclep.bench: times of dispatch and combine by tokens, and what a Python call costs over the C call.

Ranks are those of python -m torch.distributed.run, one GPU each, or else threads of this process on the host device.
Times are medians of the slowest rank, by events around an operation; bandwidth counts rows sent to ranks, the own one
included. perf/ has the C++ tools, which verify what they time.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import statistics
import sys
import threading
import time
from typing import Any, Callable

from . import Communicator, DataType, Device, Group, Handle, Layout, Memory, Mode, TensorView, _tool, unique_id, version
from .dlpack import contiguous_strides
from .enums import ITEM_BYTES
from .library import lib
from .tensor import SHARED


class Workload:
    """The tensors of one rank: bf16 rows, and distinct experts drawn for each token."""

    def __init__(self, comm: Communicator, options: argparse.Namespace, tokens: int, mode: Mode):
        self.comm = comm
        self.tokens = tokens
        self.memories: list[Memory] = []
        experts = options.experts // comm.nranks
        rows = (experts, comm.nranks * tokens) if mode == Mode.LL else (comm.nranks * tokens,)
        draw = random.Random(comm.rank)
        self.choices = [draw.sample(range(options.experts), options.topk) for _ in range(tokens)]
        self.x = self._tensor(DataType.BFLOAT16, tokens, options.hidden)
        self.ids = self._tensor(DataType.INT64, tokens, options.topk)
        self.weights = self._tensor(DataType.FLOAT32, tokens, options.topk)
        self.rows = self._tensor(DataType.BFLOAT16, *rows, options.hidden)
        self.result = self._tensor(DataType.BFLOAT16, tokens, options.hidden)
        flat = [expert for choice in self.choices for expert in choice]
        source = (ctypes.c_int64 * len(flat))(*flat)
        comm.copy(self.ids.struct.data, ctypes.addressof(source), ctypes.sizeof(source))
        comm.synchronize()
        # Bytes of the rows that leave for ranks: one for each rank that has an expert of the token.
        destinations = sum(len({expert // experts for expert in choice}) for choice in self.choices)
        self.bytes = destinations * options.hidden * ITEM_BYTES[DataType.BFLOAT16]

    def _tensor(self, dtype: DataType, *sizes: int) -> TensorView:
        count = ITEM_BYTES[dtype]
        for size in sizes:
            count *= size
        self.memories.append(self.comm.alloc(count))
        memory = self.memories[-1]
        return TensorView((memory, memory.pointer, dtype, sizes, contiguous_strides(sizes), SHARED, True))

    def free(self) -> None:
        for memory in self.memories:
            memory.free()


def operations(work: Workload, handle: Handle, mode: Mode, stream: Any) -> dict[str, Callable[[], None]]:
    """By name; each leaves the handle ready for the next."""
    if mode == Mode.LL:
        return {"ll dispatch": lambda: handle.dispatch(work.x, work.rows, topk_idx=work.ids, topk_weights=work.weights,
                                                       stream=stream),
                "ll combine": lambda: handle.combine(work.rows, work.result, stream=stream)}
    return {"ht update": lambda: handle.update(work.ids, stream=stream),
            "ht dispatch": lambda: handle.dispatch(work.x, work.rows, stream=stream),
            "ht combine": lambda: handle.combine(work.rows, work.result, stream=stream)}


def measure(comm: Communicator, options: argparse.Namespace, tokens: int, mode: Mode) -> list[dict]:
    """A line for each operation: its median time on this rank."""
    work = Workload(comm, options, tokens, mode)
    shape = dict(num_experts=options.experts, top_k=options.topk, max_tokens_per_rank=tokens if mode == Mode.HT else 1,
                 ll_max_tokens_per_rank=tokens if mode == Mode.LL else 1, max_token_bytes=2 * options.hidden)
    times: dict[str, list[float]] = {}
    calls: dict[str, list[float]] = {}
    with Group(comm, **shape) as group, comm.stream() as stream, comm.event() as before, comm.event() as after:
        handle = group.handle(Layout.EXPERT_MAJOR if mode == Mode.LL else Layout.FLAT, mode)
        for turn in range(options.warmup + options.iterations):
            for name, operation in operations(work, handle, mode, stream).items():
                before.record(stream)
                begin = time.perf_counter()
                operation()
                call = time.perf_counter() - begin
                after.record(stream)
                stream.synchronize()
                if turn >= options.warmup:
                    times.setdefault(name, []).append(before.elapsed_ms(after) * 1000)
                    calls.setdefault(name, []).append(call * 1e6)
    work.free()
    return [{"operation": name, "tokens": tokens, "us": statistics.median(times[name]),
             "call_us": statistics.median(calls[name]), "bytes": 0 if name == "ht update" else work.bytes}
            for name in times]


def call_cost(comm: Communicator, options: argparse.Namespace) -> float:
    """Microseconds that Handle.dispatch takes over the C function: that of ctypes, and of describing its tensors."""
    work = Workload(comm, options, 1, Mode.LL)
    turns = 200
    with Group(comm, num_experts=options.experts, top_k=options.topk, max_tokens_per_rank=1,
               max_token_bytes=2 * options.hidden) as group, comm.stream() as stream:
        handle = group.handle(Layout.EXPERT_MAJOR, Mode.LL)
        handle.update(work.ids, stream=stream)

        x, rows, weights = (_Foreign(view, comm) for view in (work.x, work.rows, work.weights))

        def python() -> None:
            handle.dispatch(x, rows, topk_weights=weights, stream=stream)

        def bare() -> None:
            lib.ucclEpDispatch(handle.pointer, handle._dispatch_in, handle._dispatch_out, handle._dispatch_config,
                               stream.pointer)

        def empty() -> None:
            lib.ucclEpStreamDestroy(comm.pointer, None)

        cost = {}
        for function in (python, bare, empty):
            spent = []
            for _ in range(turns):
                begin = time.thread_time()  # what this thread works: others of the process take Python's lock in between
                function()
                spent.append(time.thread_time() - begin)
                stream.synchronize()
            cost[function] = min(spent) * 1e6  # the rest is what else the machine does
    work.free()
    return cost[python] - cost[bare] + cost[empty]


class _Foreign:
    """A tensor as frameworks have them: with each call it is described anew."""

    def __init__(self, view: TensorView, comm: Communicator):
        t = view.struct
        self.is_cuda = comm.device != Device.HOST
        self.dtype, self.shape = DataType(t.dtype).name.lower(), tuple(t.sizes[:t.ndim])
        self._data, self._strides = t.data, tuple(t.strides[:t.ndim])

    def data_ptr(self) -> int:
        return self._data

    def stride(self) -> tuple:
        return self._strides


def run_rank(comm: Communicator, options: argparse.Namespace) -> dict:
    lines = []
    for mode in options.mode:
        for tokens in options.ll_tokens if mode == Mode.LL else options.ht_tokens:
            lines += measure(comm, options, tokens, mode)
    return {"rank": comm.rank, "device": comm.info()["device_name"], "lines": lines,
            "python_us_over_c": call_cost(comm, options)}


def run_threads(options: argparse.Namespace) -> list[dict]:
    id_ = unique_id()
    results: list[dict] = [{}] * options.ranks
    failures: list[BaseException] = []

    def rank_main(rank: int) -> None:
        try:
            with Communicator(options.ranks, rank, id_, device="host") as comm:
                results[rank] = run_rank(comm, options)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(options.ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def run_processes(options: argparse.Namespace) -> list[dict]:
    """This process is a rank; rank 0 hears what the others measured."""
    import torch.distributed as dist
    dist.init_process_group("gloo")
    index = int(os.environ.get("LOCAL_RANK", 0))
    results: list = [None] * dist.get_world_size()
    with Communicator.from_torch(device_index=index) as comm:
        dist.all_gather_object(results, run_rank(comm, options))
    dist.destroy_process_group()
    return results


def slowest(results: list[dict]) -> list[dict]:
    """For each operation the rank that took longest."""
    return [max(lines, key=lambda line: line["us"]) for lines in zip(*(result["lines"] for result in results))]


def draw(path: str, lines: list[dict], title: str) -> None:
    """Times by tokens, one curve for each operation."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name in dict.fromkeys(line["operation"] for line in lines):
        points = [(line["tokens"], line["us"]) for line in lines if line["operation"] == name]
        axes.plot(*zip(*points), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="tokens of a rank", ylabel="us", title=title)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def options_of(arguments: list[str]) -> argparse.Namespace:
    def count(least: int) -> Callable[[str], int]:
        def of(text: str) -> int:
            if not text.strip().isdigit() or int(text) < least:
                raise argparse.ArgumentTypeError(f"{text!r}: expected {least} or more")
            return int(text)
        return of

    def counts(text: str) -> list[int]:
        return [count(1)(number) for number in text.split(",")]

    def modes(text: str) -> list[Mode]:
        known = {"ll": Mode.LL, "ht": Mode.HT}
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected ll, ht, or both as in ll,ht")
        return [known[name] for name in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m ucclep.bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=count(1), default=4, help="threads, without torch.distributed.run (4)")
    parser.add_argument("--mode", type=modes, default="ll,ht", help="ll, ht, or a list (ll,ht)")
    parser.add_argument("--ll-tokens", type=counts, default="1,8,32,128", help="tokens per rank in LL, a list (1,8,32,128)")
    parser.add_argument("--ht-tokens", type=counts, default="128,512", help="tokens per rank in HT, a list (128,512)")
    parser.add_argument("--hidden", type=count(1), default=7168, help="elements per row (7168)")
    parser.add_argument("--experts", type=count(1), default=256, help="experts of all ranks (256)")
    parser.add_argument("--topk", type=count(1), default=8, help="experts per token (8)")
    parser.add_argument("--warmup", type=count(0), default=2, help="warm-up iterations (2)")
    parser.add_argument("--iterations", type=count(1), default=10, help="timed iterations (10)")
    parser.add_argument("--json", help="a file for the results, which is replaced")
    parser.add_argument("--plot", help="a picture for the results, .png or .svg (matplotlib)")
    options = parser.parse_args(arguments)
    if options.topk > options.experts:
        parser.error(f"argument --topk: {options.topk}: expected at most --experts {options.experts}")
    return options


def main() -> int:
    options = options_of(sys.argv[1:])
    results = run_processes(options) if "RANK" in os.environ else run_threads(options)
    if int(os.environ.get("RANK", 0)) != 0:
        return 0
    lines = slowest(results)
    title = f"libucclep {version()}, {len(results)} ranks on {results[0]['device']}"
    print(f"{title}; hidden {options.hidden}, {options.experts} experts, top-{options.topk}, bf16")
    print(f"{'operation':<12} {'tokens':>7} {'us':>12} {'GB/s':>8} {'call us':>9}")
    for line in lines:
        rate = f"{line['bytes'] / line['us'] / 1000:8.2f}" if line["bytes"] else "       -"
        print(f"{line['operation']:<12} {line['tokens']:>7} {line['us']:>12.1f} {rate} {line['call_us']:>9.1f}")
    cost = max(result["python_us_over_c"] for result in results)
    print(f"a Python call costs {cost:.1f} us over the C call")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"title": title, "lines": lines, "python_us_over_c": cost}, file, indent=1)
    if options.plot:
        draw(options.plot, lines, title)
    return 0


if __name__ == "__main__":
    _tool.run("ucclep.bench", main)
