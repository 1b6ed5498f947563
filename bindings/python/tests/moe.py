# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a deep_ep test send, seen by all of them, and what each then has to receive."""
import pytest
import torch

HIDDEN, EXPERTS, TOP_K, TOKENS = 256, 16, 4, 40
ROOM = 64  # tokens per rank that a buffer has room for
NRANKS = [2, 4, pytest.param(8, marks=pytest.mark.more)]  # eight ranks, on few cores, take longer than the others together


def place(moe, buffer):
    """The rank's tensors on its device."""
    to, r = buffer._streams.device, buffer.rank
    return moe.x[r].to(to), moe.ids[r].to(to), moe.weights[r].to(to)


class Moe:
    def __init__(self, nranks, tokens, hidden, num_experts, top_k, seed=1, masked=0.0, uneven=True, device="cpu"):
        generator = torch.Generator().manual_seed(seed)
        self.nranks, self.hidden, self.num_experts, self.top_k = nranks, hidden, num_experts, top_k
        self.local = num_experts // nranks
        self.x, self.ids, self.weights = [], [], []
        for rank in range(nranks):
            count = max(0, tokens - rank) if uneven else tokens
            scores = torch.rand(count, num_experts, generator=generator)
            ids = scores.topk(top_k, dim=1).indices if count else torch.zeros(0, top_k, dtype=torch.int64)
            ids[torch.rand(ids.shape, generator=generator) < masked] = -1
            self.ids.append(ids.to(device))
            self.weights.append(torch.rand(count, top_k, generator=generator).to(device))
            self.x.append(torch.randn(count, hidden, generator=generator).to(torch.bfloat16).to(device))

    def in_rank(self, source, rank):
        """[T] whether a token of `source` goes to `rank`."""
        owners = torch.where(self.ids[source] >= 0, self.ids[source] // self.local, -1)
        return (owners == rank).any(1)

    def sources(self, rank):
        """[(source, tokens that come from it)], in the order of the rows."""
        return [(source, self.in_rank(source, rank).nonzero().flatten()) for source in range(self.nranks)]

    def received(self, rank, of):
        """The rows of `of` (a tensor for each rank) that a rank receives."""
        return torch.cat([of[source][tokens] for source, tokens in self.sources(rank)])

    def received_ids(self, rank):
        """Local ids; -1 for experts of other ranks."""
        local = self.received(rank, self.ids) - rank * self.local
        return torch.where((local >= 0) & (local < self.local), local, -1)

    def received_weights(self, rank):
        return torch.where(self.received_ids(rank) >= 0, self.received(rank, self.weights), 0.0)

    def tokens_per_expert(self, rank):
        """Rows of each local expert."""
        ids = self.received_ids(rank)
        return [(ids == expert).sum().item() for expert in range(self.local)]

    def ranks_of_tokens(self, source):
        """[T] to how many ranks a token goes."""
        return torch.stack([self.in_rank(source, rank) for rank in range(self.nranks)]).sum(0)


def difference(a, b):
    """1 - cosine-like similarity, as DeepEP's tests measure it."""
    if not a.numel():
        return 0.0
    a, b = a.double() + 1, b.double() + 1
    return (1 - 2 * (a * b).sum() / (a * a + b * b).sum()).item()


def from_fp8(rows, scales):
    """fp8 rows (their bytes, where torch has no such type) and a scale for 128 elements each, to fp32."""
    bits = rows.view(torch.uint8).to(torch.int32)
    exponent, mantissa = bits >> 3 & 15, (bits & 7).float()
    value = torch.where(exponent == 0, mantissa / 512, (1 + mantissa / 8) * torch.exp2(exponent.float() - 7))
    value = torch.where(bits >= 128, -value, value)
    return (value.unflatten(-1, (-1, 128)) * scales.unsqueeze(-1)).flatten(-2)


def to_fp8(x):
    """The reverse of from_fp8 by a search, for small tensors; scales are per 128."""
    groups = x.float().unflatten(-1, (-1, 128))
    scales = groups.abs().amax(-1).clamp(min=1e-4) / 448
    table = from_fp8(torch.arange(127, dtype=torch.uint8).repeat(128, 1).t().contiguous(), torch.ones(127, 1))[:, 0].contiguous()
    scaled = groups / scales.unsqueeze(-1)
    index = torch.searchsorted(table, scaled.abs().contiguous()).clamp(max=126)
    bits = index + torch.where(scaled < 0, 128, 0)
    return bits.to(torch.uint8).flatten(-2), scales
