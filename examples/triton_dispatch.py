# SPDX-License-Identifier: Apache-2.0
"""Two kernels in Triton that dispatch and combine by themselves: each program sends rows when it has made them, polls for rows of
others, and lets an expert work on a row as soon as it is there.

    python examples/triton_dispatch.py                                                              one rank on one GPU
    python -m torch.distributed.run --nproc_per_node 2 examples/triton_dispatch.py --share-gpus     more ranks than GPUs

Needs libucclep_device.bc: `make device-library`, and UCCLEP_DEVICE_LIBRARY=build/device-library where it is not installed.
Expert e multiplies a row by 1 + e. What comes back is compared with the host's sums.
"""
import argparse
import os
import sys

try:
    import triton
    import triton.language as tl
except ImportError:
    print("triton_dispatch.py: skipped, triton is not installed")
    sys.exit(0)
import ucclep
import ucclep.triton as ep

HIDDEN, EXPERTS, TOP_K, TOKENS, PROGRAMS, WARPS = 1024, 16, 4, 48, 8, 4


@triton.jit
def dispatch(handle, ops, x, rows, experts, weights, received, good, first_expert, tokens, zones, zone_rows,
             H: tl.constexpr, K: tl.constexpr, DTYPE: tl.constexpr):
    """Sends x * 2, and multiplies what comes by 1 + its expert."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    op = ops + program * ep.OPERATION_BYTES
    columns = tl.arange(0, H)
    ok = ep.ll_dispatch_begin(handle, op, H, DTYPE, 0, 0, K, 1)
    for token in range(program, tokens, programs):
        row = rows + token * H
        tl.store(row + columns, tl.load(x + token * H + columns) * 2)
        ok &= ep.ll_dispatch_send(op, token, row, 0, experts + token * K, 8, weights + token * K)
    ok &= ep.ll_dispatch_end(op, tokens)
    for zone in range(zones):
        count = ep.ll_dispatch_rows(op, zone)  # polls until everybody has said how many come
        for index in range(zone * zone_rows + program, zone * zone_rows + count, programs):
            ok &= ep.ll_dispatch_recv(op, received, 0, 0, 0, 0, index, index + 1)
            row = received + index * H
            tl.store(row + columns, tl.load(row + columns) * (1 + first_expert + zone))
    tl.store(good + program, ok)


@triton.jit(do_not_specialize=["round_number"])
def combine(handle, group, ops, received, result, good, tokens, zones, zone_rows, ranks, round_number,
            H: tl.constexpr, K: tl.constexpr, DTYPE: tl.constexpr):
    """Sends the experts' rows home, sums what comes back, and meets the other ranks by a signal."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    op = ops + program * ep.OPERATION_BYTES
    ok = ep.ll_combine_begin(handle, op, H, DTYPE, K)
    for zone in range(zones):
        count = ep.ll_combine_rows(op, zone)
        for index in range(zone * zone_rows + program, zone * zone_rows + count, programs):
            ok &= ep.ll_combine_send(op, index, received + index * H)
    ok &= ep.ll_combine_end(op)
    for token in range(program, tokens, programs):
        ok &= ep.ll_combine_recv(op, result, 0, 0, token, token + 1)
    if program == 0:
        for peer in range(ranks):
            ok &= ep.signal(group, peer, 0)
        ok &= ep.wait_signal(group, 0, ranks * round_number)
    tl.store(good + program, ok)


def wrong_values(comm, group, handle, device, round_number):
    """One round of both kernels; how many values of the result, and how many flags, are not what they should be."""
    import torch
    random = torch.Generator().manual_seed(100 * round_number + comm.rank)
    x = torch.randint(-8, 8, (TOKENS, HIDDEN), generator=random).float()
    ids = torch.rand(TOKENS, EXPERTS, generator=random).topk(TOP_K).indices
    gates = 2.0 ** -torch.randint(0, 4, (TOKENS, TOP_K), generator=random)  # so that every sum is exact
    local = EXPERTS // comm.nranks
    zone_rows = comm.nranks * TOKENS
    on_device = [tensor.to(device) for tensor in (x, torch.zeros_like(x), ids, gates)]
    received = torch.full((local, zone_rows, HIDDEN), float("nan"), device=device)
    result = torch.full((TOKENS, HIDDEN), float("nan"), device=device)
    ops = torch.zeros(PROGRAMS * ep.OPERATION_BYTES.value, dtype=torch.uint8, device=device)
    good = torch.zeros(2, PROGRAMS, dtype=torch.int32, device=device)
    shape = dict(H=HIDDEN, K=TOP_K, DTYPE=int(ucclep.DataType.FLOAT32), num_warps=WARPS, **ep.launch_options())
    dispatch[(PROGRAMS,)](handle.device_address, ops, *on_device, received, good[0], comm.rank * local, TOKENS, local, zone_rows, **shape)
    combine[(PROGRAMS,)](handle.device_address, group.device_address, ops, received, result, good[1], TOKENS, local, zone_rows,
                         comm.nranks, round_number, **shape)
    torch.cuda.synchronize()
    expected = 2 * x * (gates * (1 + ids)).sum(1, keepdim=True)
    return (result.cpu() != expected).sum().item() + (good.cpu() != 1).sum().item()


def run(comm, device, rounds):
    shape = dict(num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=TOKENS, max_token_bytes=4 * HIDDEN, num_signals=1,
                 timeout_ms=120_000)  # ranks compile before their first launches, some longer than others
    with ucclep.Group(comm, **shape) as group:
        handle = group.handle(ucclep.Layout.EXPERT_MAJOR, ucclep.Mode.LL)
        wrong = sum(wrong_values(comm, group, handle, device, number) for number in range(1, rounds + 1))
        comm.check_async_error()
        print(f"rank {comm.rank}: {wrong} of {rounds * TOKENS * HIDDEN} values are wrong", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share-gpus", action="store_true", help="more ranks than GPUs: under NVIDIA's MPS, else they take turns")
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("triton_dispatch.py: skipped, torch is not installed")
        return 0
    if not torch.cuda.is_available():
        print("triton_dispatch.py: skipped, torch sees no GPU")
        return 0
    local, local_ranks = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if local_ranks > torch.cuda.device_count() and not arguments.share_gpus:
        parser.error(f"{local_ranks} ranks, but {torch.cuda.device_count()} GPUs: each rank needs one; use --share-gpus to let ranks share them")
    index = local % torch.cuda.device_count()
    torch.cuda.set_device(index)
    settings = dict(device="cuda", device_index=index)
    alone = "RANK" not in os.environ
    with ucclep.Communicator(1, 0, ucclep.unique_id(), **settings) if alone else ucclep.Communicator.from_env(**settings) as comm:
        return 1 if run(comm, torch.device("cuda", index), arguments.rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
