# SPDX-License-Identifier: Apache-2.0
"""How long functions take."""
from __future__ import annotations

import os
import re
import sys
import time
from statistics import mean
from typing import Any, Callable

import torch

L2_BYTES = 256 << 20  # more than any GPU has


def flush_l2_cache(enabled: bool = True) -> None:
    """Later kernels find nothing of theirs in the GPU's cache."""
    if enabled and torch.cuda.is_available():
        torch.empty(L2_BYTES, dtype=torch.uint8, device="cuda").zero_()


def bench(fn: Callable[[], Any], num_warmups: int = 30, num_tests: int = 30, post_fn: Callable[[], Any] | None = None,
          flush_l2: bool = True) -> tuple:
    """(average, least, greatest) seconds of a call: by the GPU's events, else by the CPU's clock."""
    for _ in range(num_warmups):
        fn()
    seconds = [_once(fn, post_fn, flush_l2) for _ in range(num_tests)]
    return mean(seconds), min(seconds), max(seconds)


def _once(fn: Callable[[], Any], post_fn: Callable[[], Any] | None, flush_l2: bool) -> float:
    if not torch.cuda.is_available():
        begin = time.perf_counter()
        fn()
        seconds = time.perf_counter() - begin
    else:
        flush_l2_cache(flush_l2)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        fn()
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) / 1e3
    if post_fn is not None:
        post_fn()
    return seconds


def bench_kineto(fn: Callable[[], Any], kernel_names: str | tuple, num_tests: int = 30, suppress_kineto_output: bool = False,
                 trace_path: str | None = None, flush_l2: bool = True, barrier_comm_profiling: bool = False,
                 num_kernels_per_period: int = 1, barrier: Callable[[], Any] | None = None) -> Any:
    """Average seconds of the kernels whose names contain `kernel_names`, by torch's profiler.

    With num_kernels_per_period = n a list for each name: of every nth such kernel, from the first, the second .. on. Our
    kernels have names of their own, so a name that no kernel has stands for the call as a whole.
    """
    names = kernel_names if isinstance(kernel_names, tuple) else (kernel_names,)
    whole, _, _ = bench(fn, 2, num_tests, barrier, flush_l2)
    kernels: list = []
    if torch.cuda.is_available():
        kernels = _profiled(fn, num_tests, suppress_kineto_output, trace_path, flush_l2)
    found = [_averages([seconds for key, seconds in kernels if name in key], num_kernels_per_period, whole) for name in names]
    return tuple(found) if isinstance(kernel_names, tuple) else found[0]


def _averages(seconds: list, period: int, whole: float) -> Any:
    if len(seconds) < period:
        seconds = [whole / period] * period
    averages = [mean(seconds[i::period]) for i in range(period)]
    return averages if period > 1 else averages[0]


def _profiled(fn: Callable[[], Any], num_tests: int, quiet: bool, trace_path: str | None, flush_l2: bool) -> list:
    """[(name, seconds)] of kernels, in the order in which they began."""
    silent = suppress_stdout_stderr if quiet else empty_suppress
    with silent(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(num_tests):
            flush_l2_cache(flush_l2)
            fn()
        torch.cuda.synchronize()
    if trace_path is not None:
        profiler.export_chrome_trace(trace_path)
    begun = sorted(profiler.events(), key=lambda event: event.time_range.start)
    return [(event.name, event.time_range.elapsed_us() / 1e6) for event in begun]


class empty_suppress:  # noqa: N801
    """A `with` block without effect."""

    def __enter__(self) -> empty_suppress:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class suppress_stdout_stderr:  # noqa: N801
    """Nothing that the process prints in the `with` block is seen."""

    def __enter__(self) -> suppress_stdout_stderr:
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = [os.dup(1), os.dup(2)]
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in zip((1, 2), self._kept):
            os.dup2(kept, number)
            os.close(kept)


def parse_num_bytes(text: str) -> int:
    """Of "4096", "64K", "1.5 GiB": powers of 1024."""
    match = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes, expected for example 4096, 64K or 1.5GiB")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))
