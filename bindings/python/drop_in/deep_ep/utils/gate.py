# SPDX-License-Identifier: Apache-2.0
"""Scores of experts with which rank 0 gets more tokens than the others."""
from __future__ import annotations

import torch


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _weighted(draw: torch.Tensor, num_ranks: int, factor: float) -> torch.Tensor:
    scores = draw.clone()
    scores[:, :draw.shape[1] // num_ranks] *= factor
    return scores


def _excess(scores: torch.Tensor, num_ranks: int, num_topk: int) -> float:
    """Tokens that go to rank 0, over the average of the others."""
    tokens, experts = scores.shape
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(num_topk, 1).indices, True)
    counts = chosen.view(tokens, num_ranks, experts // num_ranks).any(2).sum(0).double()
    return (counts[0] / counts[1:].mean().clamp(min=1)).item()


def get_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float,
                          precise: bool) -> torch.Tensor:
    """[T, E] scores by whose top-k rank 0 gets `ratio` times the tokens of another rank.

    With `precise` as exactly as these tokens allow; without it, as for tokens in general.
    """
    if ratio < 1:
        raise ValueError(f"ratio is {ratio}, expected at least 1")
    draw = torch.rand((num_tokens, num_experts), device=_device(), dtype=torch.float32)
    if ratio == 1 and not precise or num_ranks == 1:
        return draw
    measured = draw if precise else torch.rand_like(draw)
    least, most = 0.01, 100.0
    for _ in range(40):  # by halves: more weight is never fewer tokens
        middle = (least + most) / 2
        if _excess(_weighted(measured, num_ranks, middle), num_ranks, num_topk) < ratio:
            least = middle
        else:
            most = middle
    return _weighted(draw, num_ranks, most)


def get_precise_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float) -> torch.Tensor:
    """get_unbalanced_scores with `precise`."""
    return get_unbalanced_scores(num_tokens, num_experts, num_ranks, num_topk, ratio, True)


def get_random_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int, ratio: float) -> torch.Tensor:
    """get_unbalanced_scores without `precise`."""
    return get_unbalanced_scores(num_tokens, num_experts, num_ranks, num_topk, ratio, False)
