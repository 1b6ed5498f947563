# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine by torch.distributed alone, to compare with."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from .envs import get_global_seed


def _gather(tensor: torch.Tensor) -> list:
    """The tensors of all ranks, whose first sizes may differ."""
    counts = [torch.empty(1, dtype=torch.int64, device=tensor.device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([tensor.shape[0]], device=tensor.device))
    sizes = [int(count) for count in counts]
    # As bytes, for not every backend has every type.
    row_bytes = math.prod(tensor.shape[1:]) * tensor.element_size()
    mine = torch.zeros((max(sizes), row_bytes), dtype=torch.uint8, device=tensor.device)
    mine[:tensor.shape[0]] = tensor.contiguous().view(torch.uint8).view(tensor.shape[0], row_bytes)
    every = [torch.empty_like(mine) for _ in sizes]
    dist.all_gather(every, mine)
    return [part[:size].view(tensor.dtype).view(size, *tensor.shape[1:]) for part, size in zip(every, sizes)]


def dispatch(x: Any, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, num_max_tokens_per_rank: int,
             num_experts: int) -> tuple:
    """(rows, local topk_idx, weights, source rank x num_max_tokens_per_rank + token, rows of each source rank).

    Rows lie by source rank, then by token.
    """
    rank, local = dist.get_rank(), num_experts // dist.get_world_size()
    ids = [part - rank * local for part in _gather(topk_idx)]
    wanted = [((part >= 0) & (part < local)).any(1) for part in ids]

    def received(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([part[mask] for part, mask in zip(_gather(tensor), wanted)])

    rows = tuple(map(received, x)) if isinstance(x, tuple) else received(x)
    mine = torch.cat([part[mask] for part, mask in zip(ids, wanted)])
    mine = torch.where((mine >= 0) & (mine < local), mine, -1)
    weights = None if topk_weights is None else received(topk_weights)
    tokens = torch.cat([source * num_max_tokens_per_rank + mask.nonzero()[:, 0] for source, mask in enumerate(wanted)])
    counts = torch.tensor([int(mask.sum()) for mask in wanted], dtype=torch.int32, device="cpu")
    return rows, mine, weights, tokens.int(), counts


def generate_pre_combine_data(src_token_global_idx: torch.Tensor, num_max_tokens_per_rank: int, num_topk: int,
                              hidden: int) -> torch.Tensor:
    """[N, K, H] bf16 that every rank can compute of a token: a sine whose period depends on token and selection."""
    to = src_token_global_idx.device
    count = dist.get_world_size() * num_max_tokens_per_rank * num_topk
    number = src_token_global_idx.long()[:, None] * num_topk + torch.arange(num_topk, device=to)
    period = ((number * 131071 % count).float() + 1) / count
    place = torch.arange(1, hidden + 1, dtype=torch.float32, device=to)
    return torch.sin(period[..., None] * place + math.sin(float(get_global_seed()))).to(torch.bfloat16)


def ordered_accumulate(data: torch.Tensor, initial_value: torch.Tensor | None = None) -> torch.Tensor:
    """The sums over k of [N, K, H], in fp32, one after the other, rounded to the data's type."""
    shape = (data.shape[0], data.shape[2])
    total = torch.zeros(shape, dtype=torch.float32, device=data.device) if initial_value is None else initial_value.float()
    for k in range(data.shape[1]):
        total = total + data[:, k].float()
    return total.to(data.dtype)


def combine(y: torch.Tensor, topk_idx: torch.Tensor, num_scaleout_ranks: int, num_scaleup_ranks: int, num_experts: int,
            bias: Any, reduce_in_local: bool, reduce_in_scaleup: bool) -> torch.Tensor:
    """[T, H]: the sum of y [T, K, H], which is rounded also for each rank, and for each scale-up domain, if that is wanted."""
    local = num_experts // (num_scaleout_ranks * num_scaleup_ranks)
    if reduce_in_local:
        y = _grouped(y, torch.div(topk_idx, local, rounding_mode="floor"))
    if reduce_in_scaleup:
        y = _grouped(y, torch.div(topk_idx, local * num_scaleup_ranks, rounding_mode="floor"))
    biases = bias if isinstance(bias, tuple) else () if bias is None else (bias,)
    return ordered_accumulate(y, sum(b.float() for b in biases) if biases else None)


def _grouped(y: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
    """The sum of each group at the place of its last member, zeros at those of the others."""
    same = group[:, :, None] == group[:, None, :]
    last = ~(same & torch.ones_like(same).triu(1)).any(2)
    sums = torch.stack([ordered_accumulate(y * same[:, k, :, None]) for k in range(y.shape[1])], 1)
    return sums * last[..., None]
