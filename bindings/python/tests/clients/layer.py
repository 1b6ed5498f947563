# SPDX-License-Identifier: Apache-2.0
"""A layer of experts on two processes, and what it computes in one."""
import os

import torch
import torch.distributed as dist

EXPERTS, TOP_K, TOKENS = 8, 2, 20


class Layer:
    def __init__(self, hidden, dtype=torch.float32):
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.group, self.rank, self.ranks = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
        self.local, self.hidden = EXPERTS // self.ranks, hidden
        generator = torch.Generator().manual_seed(1)
        rank = self.rank
        draws = [(torch.randn(TOKENS, hidden, generator=generator), torch.rand(TOKENS, EXPERTS, generator=generator),
                  torch.rand(TOKENS, TOP_K, generator=generator), torch.randn(TOKENS, hidden, generator=generator))
                 for _ in range(self.ranks)]
        self.x, self.ids, self.weights = draws[rank][0].to(dtype), draws[rank][1].topk(TOP_K, 1).indices, draws[rank][2]
        self.turn = draws[rank][3]
        self.matrices = torch.randn(EXPERTS, hidden, hidden, generator=generator) / 8
        self.factors = torch.rand(EXPERTS, generator=generator)
        self.checks = 0

    # ---- training: experts are matrices, and gradients are compared ----

    def leaves(self):
        """x and weights that want gradients."""
        return self.x.clone().requires_grad_(), self.weights.clone().requires_grad_()

    def expert(self, rows, local):
        return torch.tanh(rows @ self.matrices[self.rank * self.local + local])

    def experts(self, rows, counts):
        """Of rows that lie by expert; zeros behind them."""
        parts = rows[:sum(counts)].split(counts)
        out = torch.cat([self.expert(part, i) for i, part in enumerate(parts)])
        return torch.cat([out, torch.zeros(len(rows) - len(out), self.hidden)])

    def check_training(self, what, y, x, weights):
        """y, and the gradients of x and of weights (a leaf or its gradient), are those of one process."""
        ours = y.detach()
        (y * self.turn).sum().backward()
        gradients = x.grad, weights() if callable(weights) else weights.grad
        ref_x, ref_w = self.leaves()
        gates = torch.zeros(TOKENS, EXPERTS).scatter_add(1, self.ids, ref_w)
        ref = sum(gates[:, e, None] * torch.tanh(ref_x @ self.matrices[e]) for e in range(EXPERTS))
        (ref * self.turn).sum().backward()
        for got, expected in zip((ours, *gradients), (ref.detach(), ref_x.grad, ref_w.grad)):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        self._passed(what)

    # ---- inference: experts are factors ----

    def scaled(self, rows, local_ids, weights):
        """bf16 of rows with the weights and factors of their local experts; -1 is none."""
        total = torch.zeros(rows.shape, dtype=torch.float32)
        for e in range(self.local):
            gate = torch.where(local_ids == e, weights, torch.zeros_like(weights)).sum(1, keepdim=True)
            total += gate * self.factors[self.rank * self.local + e] * torch.nan_to_num(rows.float())
        return total.to(torch.bfloat16)

    @property
    def own_factors(self):
        return self.factors[self.rank * self.local:(self.rank + 1) * self.local]

    def check_inference(self, what, y, fp8=False):
        gates = torch.zeros(TOKENS, EXPERTS).scatter_add(1, self.ids, self.weights) * self.factors
        expected = self.x.float() * gates.sum(1, keepdim=True)
        torch.testing.assert_close(y.float(), expected, rtol=0.1 if fp8 else 0.02, atol=0.02)
        self._passed(what)

    def _passed(self, what):
        self.checks += 1
        print(f"rank {self.rank}: {what} is right", flush=True)

    def end(self):
        print(f"{self.checks} checks passed", flush=True)
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)  # frameworks start threads


def from_fp8(rows, scales):
    return (rows.float().unflatten(-1, (-1, 128)) * scales.unsqueeze(-1)).flatten(-2)
