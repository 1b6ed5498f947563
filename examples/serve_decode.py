# SPDX-License-Identifier: Apache-2.0
"""Decodes with low-latency dispatch and combine, captured once and replayed for each token.

    python -m torch.distributed.run --nproc_per_node 4 examples/serve_decode.py

On GPUs one CUDA graph holds dispatch, experts and combine. The host device captures the library's operations alone, so
there a graph on either side of the experts stands for it. Each step has another routing; what comes back is checked.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import ucclep

HIDDEN, EXPERTS, TOP_K, BATCH = 256, 16, 4, 8


class Decoder:
    """Expert e multiplies a row by 1 + e / EXPERTS. All tensors are made once: graphs know their addresses."""

    def __init__(self, comm, group, device):
        local = EXPERTS // comm.nranks
        self.handle = group.handle(ucclep.Layout.EXPERT_MAJOR, ucclep.Mode.LL)
        self.x = torch.zeros(BATCH, HIDDEN, dtype=torch.bfloat16, device=device)
        self.ids = torch.zeros(BATCH, TOP_K, dtype=torch.int64, device=device)
        self.gates = torch.zeros(BATCH, TOP_K, device=device)
        self.rows = torch.zeros(local, comm.nranks * BATCH, HIDDEN, dtype=torch.bfloat16, device=device)
        self.y = torch.zeros_like(self.x)
        mine = torch.arange(comm.rank * local, (comm.rank + 1) * local, device=device)
        self.factors = (1 + mine / EXPERTS).to(torch.bfloat16)[:, None, None]

    def dispatch(self, stream):
        self.handle.dispatch(self.x, self.rows, topk_idx=self.ids, topk_weights=self.gates, stream=stream)

    def experts(self):
        self.rows *= self.factors

    def combine(self, stream):
        self.handle.combine(self.rows, self.y, stream=stream)

    def expected(self):
        return self.x.float() * (self.gates * (1 + self.ids / EXPERTS)).sum(1, keepdim=True)


def captured_on_gpu(decoder):
    decoder.dispatch(torch.cuda.current_stream())  # the first calls allocate
    decoder.combine(torch.cuda.current_stream())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.dispatch(torch.cuda.current_stream())
        decoder.experts()
        decoder.combine(torch.cuda.current_stream())

    def step():
        graph.replay()
        torch.cuda.synchronize()
    return step


def captured_on_host(decoder, comm):
    stream = comm.stream()
    with comm.graph(stream) as there:
        decoder.dispatch(stream)
    with comm.graph(stream) as back:
        decoder.combine(stream)

    def step():
        there.launch(stream)
        stream.synchronize()
        decoder.experts()
        back.launch(stream)
        stream.synchronize()
    return step


def gpu_of_rank(parser, share_gpus):
    """The index of this rank's GPU: one of its own, or with --share-gpus its number modulo the GPUs."""
    local, ranks, gpus = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if ranks > gpus and not share_gpus:
        parser.error(f"{ranks} ranks, but {gpus} GPUs: each rank needs one; use --share-gpus to let ranks share them")
    return local % gpus


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20, help="how many to decode")
    parser.add_argument("--share-gpus", action="store_true", help="more ranks than GPUs: under NVIDIA's MPS, else they take turns")
    arguments = parser.parse_args()
    tokens = arguments.tokens
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", gpu_of_rank(parser, arguments.share_gpus)) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    settings = {"device_index": device.index} if on_gpu else {"device": "host"}
    with ucclep.Communicator.from_torch(**settings) as comm:
        shape = dict(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=BATCH, max_token_bytes=2 * HIDDEN)
        with ucclep.Group(comm, **shape) as group:
            decoder = Decoder(comm, group, device)
            step = captured_on_gpu(decoder) if on_gpu else captured_on_host(decoder, comm)
            random = torch.Generator().manual_seed(comm.rank)
            begin = time.perf_counter()
            for _ in range(tokens):
                decoder.x.copy_(torch.randn(decoder.x.shape, generator=random))
                gates, ids = torch.rand(BATCH, EXPERTS, generator=random).topk(TOP_K)
                decoder.gates.copy_(gates / gates.sum(1, keepdim=True))
                decoder.ids.copy_(ids)
                step()
                torch.testing.assert_close(decoder.y.float(), decoder.expected(), rtol=2e-2, atol=2e-2)
            if comm.rank == 0:
                print(f"{tokens} tokens for each of {BATCH} sequences on {comm.nranks} ranks, all right, "
                      f"{(time.perf_counter() - begin) / tokens * 1e3:.2f} ms each")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
