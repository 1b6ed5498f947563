# SPDX-License-Identifier: Apache-2.0
"""Trains a small layer of experts on several ranks.

    python -m torch.distributed.run --nproc_per_node 4 examples/moe_layer.py      experts shared out to 4 ranks
    python examples/moe_layer.py                                                  the same layer in one process

On GPUs, one for each rank (or --share-gpus), where torch has some, else on the CPU. Both print the same losses.
"""
import argparse
import os

import torch
import torch.distributed as dist
import ucclep.torch
from torch import nn

HIDDEN, INNER, EXPERTS, TOP_K, BATCH = 64, 128, 8, 2, 128


class Experts(nn.Module):
    """Some of the experts; rows come sorted by expert."""

    def __init__(self, first, count):
        super().__init__()
        weights = torch.Generator().manual_seed(2)
        up = torch.randn(EXPERTS, HIDDEN, INNER, generator=weights) / HIDDEN ** 0.5
        down = torch.randn(EXPERTS, INNER, HIDDEN, generator=weights) / INNER ** 0.5
        self.up = nn.Parameter(up[first:first + count].clone())
        self.down = nn.Parameter(down[first:first + count].clone())

    def forward(self, rows, counts):
        done = [nn.functional.gelu(part @ self.up[i]) @ self.down[i] for i, part in enumerate(rows.split(counts))]
        return torch.cat(done)


class MoeLayer(nn.Module):
    """x + sum over the top k experts of gate x expert(norm(x))."""

    def __init__(self, group=None, rank=0, nranks=1):
        super().__init__()
        torch.manual_seed(1)
        self.group = group
        self.norm = nn.LayerNorm(HIDDEN)
        self.router = nn.Linear(HIDDEN, EXPERTS)
        self.experts = Experts(rank * EXPERTS // nranks, EXPERTS // nranks)

    def forward(self, x):
        h = self.norm(x)
        gates, ids = self.router(h).softmax(-1).topk(TOP_K)
        return x + (self.apart(h, ids, gates) if self.group else self.together(h, ids, gates))

    def apart(self, h, ids, gates):
        rows, row_gates, routing = ucclep.torch.dispatch(self.group, h, ids, gates)
        return ucclep.torch.combine(self.experts(rows, routing.tokens_per_expert) * row_gates[:, None], routing)

    def together(self, h, ids, gates):
        order = ids.flatten().argsort(stable=True)
        tokens = order // TOP_K
        rows = self.experts(h[tokens], ids.flatten().bincount(minlength=EXPERTS).tolist())
        return torch.zeros_like(h).index_add(0, tokens, rows * gates.flatten()[order, None])


def batch_of(step):
    """What all ranks see together: rows, and what the layer has to learn."""
    random = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(BATCH, HIDDEN, generator=random)
    return x, x + torch.tanh(x.roll(1, 1))


def train(layer, steps, rank, nranks, device):
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    shared = [*layer.norm.parameters(), *layer.router.parameters()]  # each rank has these, and a part of the batch
    losses = []
    for step in range(steps):
        x, y = (part.chunk(nranks)[rank].to(device) for part in batch_of(step))
        loss = ((layer(x) - y) ** 2).sum() / (BATCH * HIDDEN)
        optimizer.zero_grad()
        loss.backward()
        total = loss.detach().clone()
        if nranks > 1:
            for tensor in [parameter.grad for parameter in shared] + [total]:
                dist.all_reduce(tensor)
        optimizer.step()
        losses.append(total.item())
        if rank == 0 and (step % 10 == 0 or step == steps - 1):
            print(f"step {step}: loss {losses[-1]:.6f}", flush=True)
    return losses


def gpu_of_rank(parser, share_gpus):
    """The index of this rank's GPU: one of its own, or with --share-gpus its number modulo the GPUs."""
    local, ranks, gpus = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if ranks > gpus and not share_gpus:
        parser.error(f"{ranks} ranks, but {gpus} GPUs: each rank needs one; use --share-gpus to let ranks share them")
    return local % gpus


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--share-gpus", action="store_true", help="more ranks than GPUs: under NVIDIA's MPS, else they take turns")
    arguments = parser.parse_args()
    steps = arguments.steps
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", gpu_of_rank(parser, arguments.share_gpus)) if on_gpu else torch.device("cpu")
    if "RANK" not in os.environ:
        train(MoeLayer().to(device), steps, 0, 1, device)
        return
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu and not arguments.share_gpus else "gloo")  # NCCL wants a GPU for each rank
    settings = {"device_index": device.index} if on_gpu else {"device": "host"}
    with ucclep.Communicator.from_torch(**settings) as comm:
        shape = dict(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=BATCH, max_token_bytes=4 * HIDDEN)
        with ucclep.Group(comm, **shape) as group:
            train(MoeLayer(group, comm.rank, comm.nranks).to(device), steps, comm.rank, comm.nranks, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
