# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of tests and benchmarks."""
from __future__ import annotations

from typing import Any

import torch

from ..rows import FP8

GROUP = 128  # elements that share a scale


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """How different two tensors are: 0 where they are equal."""
    one, other = (tensor.double().add(1).flatten() for tensor in (x, y))  # 1 more, so that zeros have a size
    return ((one - other).square().sum() / (one.dot(one) + other.dot(other))).item()


def safe_div(a: float, b: float) -> float:
    """a / b, and 0 / 0 = 0."""
    return 0 if a == b == 0 else a / b


def ceil_div(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """The least multiple of y that is not below x."""
    return ceil_div(x, y) * y


def _groups(x: torch.Tensor) -> torch.Tensor:
    """[T, groups, 128], filled up with zeros."""
    missing = align(x.shape[1], GROUP) - x.shape[1]
    return torch.nn.functional.pad(x, (0, missing)).view(x.shape[0], -1, GROUP)


def _e4m3(x: torch.Tensor) -> torch.Tensor:
    """fp32 of at most 448 as e4m3, rounded to nearest even: its bytes, where torch has no such type."""
    if FP8 is not torch.uint8:
        return x.to(FP8)
    size = x.abs()
    step = torch.exp2(torch.frexp(size)[1].clamp(min=-5) - 4.0)  # between neighbours: three bits of mantissa
    steps = torch.round(size / step)  # to even
    value = steps * step
    exponent = torch.frexp(value)[1] - 1
    normal = (exponent + 7) * 8 + (value * torch.exp2(3.0 - exponent)).int() - 8
    code = torch.where(value < 2.0 ** -6, (value * 512).int(), normal)
    return (code + 128 * torch.signbit(x).int()).to(torch.uint8)


def _from_e4m3(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.uint8:
        return x.float()
    bits = x.int()
    exponent, mantissa = bits >> 3 & 15, (bits & 7).float()
    size = torch.where(exponent == 0, mantissa / 512, (1 + mantissa / 8) * torch.exp2(exponent - 7.0))
    return torch.where(bits >= 128, -size, size)


def per_token_cast_to_fp8(x: torch.Tensor) -> tuple:
    """(x [T, H] as e4m3, a fp32 scale for 128 elements each)."""
    groups = _groups(x.float())
    largest = groups.abs().amax(2, keepdim=True).clamp(min=1e-4)
    values = _e4m3((groups * (448 / largest)).clamp(-448, 448))
    return values.flatten(1)[:, :x.shape[1]].contiguous(), largest[..., 0] / 448


def per_token_cast_back(x_fp8: torch.Tensor, x_scales: torch.Tensor) -> torch.Tensor:
    """bf16 of what per_token_cast_to_fp8 returned; int32 scales are four exponents each."""
    if x_scales.dtype == torch.int32:
        exponents = torch.stack([x_scales >> shift & 255 for shift in (0, 8, 16, 24)], -1).reshape(x_fp8.shape[0], -1)
        x_scales = torch.exp2(exponents[:, :ceil_div(x_fp8.shape[1], GROUP)] - 127.0)
    groups = _groups(_from_e4m3(x_fp8)) * x_scales.float().reshape(x_fp8.shape[0], -1, 1)
    return groups.flatten(1)[:, :x_fp8.shape[1]].to(torch.bfloat16).contiguous()


def inplace_unique(x: torch.Tensor, num_slots: int) -> None:
    """Leaves each value of 0..num_slots-1 once in a row, in descending order, and -1 behind them."""
    there = torch.zeros((x.shape[0], num_slots + 1), dtype=torch.bool, device=x.device)
    there.scatter_(1, torch.where(x < 0, num_slots, x).long(), True)
    slots = torch.arange(num_slots, device=x.device)
    ordered = torch.where(there[:, :-1], slots, -1).sort(1, descending=True).values
    count = min(num_slots, x.shape[1])
    x.fill_(-1)
    x[:, :count] = ordered[:, :count].to(x.dtype)


def create_grouped_scores(scores: torch.Tensor, group_idx: torch.Tensor, num_groups: int) -> torch.Tensor:
    """The scores of the groups that a token has chosen, [T, E]; 0 elsewhere."""
    chosen = torch.zeros((scores.shape[0], num_groups), dtype=torch.bool, device=scores.device).scatter_(1, group_idx, True)
    return scores * chosen.repeat_interleave(scores.shape[1] // num_groups, 1)


def hash_tensor(t: torch.Tensor) -> int:
    """The sum of its bits as int32."""
    return t.contiguous().view(torch.int32).sum().item()


def hash_tensors(*tensors: Any) -> int:
    """Of tensors, tuples of them, and None."""
    value = 0
    for t in tensors:
        value ^= hash_tensors(*t) if isinstance(t, (tuple, list)) else hash_tensor(t) if isinstance(t, torch.Tensor) else 0
    return value


def count_bytes(*tensors: Any) -> int:
    """Of tensors, tuples of them, and None."""
    return sum(count_bytes(*t) if isinstance(t, (tuple, list)) else 0 if t is None else t.numel() * t.element_size()
               for t in tensors)
