# SPDX-License-Identifier: Apache-2.0
"""Where tokens go, computed by torch on the tensors' device, without other ranks."""
from __future__ import annotations

import torch


def layout_of(topk_idx: torch.Tensor, num_experts: int, ranks: int) -> tuple:
    """(tokens for each rank, selections of each expert, [T, R] whether a token goes to a rank)."""
    if num_experts % ranks:
        raise ValueError(f"num_experts is {num_experts}, expected a multiple of {ranks} ranks")
    ids = topk_idx.to(torch.int64)
    # What counts as -1 goes to a column behind the last.
    ids = torch.where((ids >= 0) & (ids < num_experts), ids, num_experts)
    chosen = torch.zeros((ids.shape[0], num_experts + 1), dtype=torch.bool, device=ids.device).scatter_(1, ids, True)
    chosen = chosen[:, :num_experts]
    in_rank = chosen.reshape(len(ids), ranks, num_experts // ranks).any(2)
    return in_rank.sum(0).to(torch.int32), chosen.sum(0).to(torch.int32), in_rank


#: Experts that a token may have: the library's limit.
MOST_CHOICES = 32


def ids_of(chosen: torch.Tensor, call: str, may_wait: bool) -> torch.Tensor:
    """first_choices(), where more choices raise if the CPU knows or may wait for the GPU to know."""
    chosen = chosen.to(torch.bool)
    if chosen.shape[1] > MOST_CHOICES and len(chosen) and (may_wait or not chosen.is_cuda):
        most = int(chosen.sum(1).max())
        if most > MOST_CHOICES:
            raise ValueError(f"{call}: a token has {most} destinations, expected at most {MOST_CHOICES}")
    return first_choices(chosen)


def first_choices(chosen: torch.Tensor) -> torch.Tensor:
    """[T, K] int64: the columns that are True in a row, ascending, then -1. K is 32, or the number of columns.

    Of a row with more than 32 the last id is there twice: the library's kernels leave a record of that.
    """
    columns = chosen.shape[1]
    keys = torch.where(chosen, torch.arange(columns, 0, -1, dtype=torch.int32, device=chosen.device), 0)
    keys = keys.topk(min(columns, MOST_CHOICES), 1).values.long()
    ids = torch.where(keys > 0, columns - keys, -1)
    if columns > MOST_CHOICES:
        ids[:, -1] = torch.where(chosen.sum(1) > MOST_CHOICES, ids[:, -2], ids[:, -1])
    return ids


def only_to(topk_idx: torch.Tensor, in_rank: torch.Tensor, num_experts: int) -> tuple:
    """(ids without those of ranks to which a token does not go, [T, R] where that leads)."""
    ids = topk_idx.to(torch.int64)
    owners = torch.div(ids.clamp(0, num_experts - 1), num_experts // in_rank.shape[1], rounding_mode="floor")
    allowed = in_rank.to(torch.bool).gather(1, owners)
    kept = torch.where(allowed, ids, -1).to(topk_idx.dtype)
    leads = layout_of(kept, num_experts, in_rank.shape[1])[2]
    if not in_rank.is_cuda and not torch.equal(leads, in_rank.to(torch.bool)):
        token, rank = (leads != in_rank).nonzero()[0].tolist()
        raise ValueError(f"dispatch: is_token_in_rank[{token}, {rank}] is True, but topk_idx[{token}] has no expert of rank "
                         f"{rank}: leave out topk_idx, or this rank")
    return kept, leads
