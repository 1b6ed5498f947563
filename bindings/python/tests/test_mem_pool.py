# SPDX-License-Identifier: Apache-2.0
"""ucclep.torch.MemPool, and the functions behind it, which a framework's allocator calls."""
import ctypes

import pytest
import ucclep
from ucclep.library import check, lib

torch = pytest.importorskip("torch")
import ucclep.torch  # noqa: E402
from moe import EXPERTS, HIDDEN, ROOM, TOKENS, TOP_K, Moe, place  # noqa: E402

lib.ucclEpMemPoolAlloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
lib.ucclEpMemPoolAlloc.restype = ctypes.c_void_p
lib.ucclEpMemPoolFree.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
lib.ucclEpMemPoolFree.restype = None


def test_functions(ranks):
    def rank_main(comm):
        device = comm.info()["device_index"]
        with comm.alloc(1 << 16) as memory:
            with comm.register(memory) as window:
                check(lib.ucclEpMemPoolOpen(window.pointer))
                parts = [lib.ucclEpMemPoolAlloc(1000, device, None) for _ in range(3)]
                assert len(set(parts)) == 3 and all(0 <= part - memory.pointer <= memory.nbytes - 1000 for part in parts)
                for part in parts:
                    lib.ucclEpMemPoolFree(part, 1000, device, None)
                with pytest.raises(ucclep.InvalidUsage, match="already has a pool"):
                    check(lib.ucclEpMemPoolOpen(window.pointer))
            assert lib.ucclEpMemPoolAlloc(1000, device, None) is None
    ranks(2, rank_main)


def test_the_host_device_needs_none(ranks, device):
    if device != "host":
        pytest.skip("of the host device")

    def rank_main(comm):
        with pytest.raises(NotImplementedError, match="any memory of the process"):
            ucclep.torch.MemPool(comm, 1 << 20)
    ranks(1, rank_main)


def need_pools(device):
    if device != "cuda":
        pytest.skip("torch has memory pools for GPUs alone")
    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip(f"torch {torch.__version__} has no torch.cuda.MemPool (2.5)")


def test_tensors_of_a_pool(ranks, device):
    need_pools(device)

    def rank_main(comm):
        pool = ucclep.torch.MemPool(comm, 64 << 20)
        outside = torch.zeros(1000, device="cuda")
        with pool:
            inside = torch.ones(1 << 20, device="cuda")
            with pytest.raises(RuntimeError, match="out of memory"):
                torch.empty(65 << 20, dtype=torch.uint8, device="cuda")
        assert pool.holds(inside) and not pool.holds(outside) and inside.sum().item() == 1 << 20
        assert not pool.holds(torch.zeros(1000, device="cuda"))
        del inside
        pool.close()
    ranks(2, rank_main)


def test_dispatch_and_combine_in_a_pool(buffers, device):
    """The model's code is as ever: rows lie in the pool because they are made while it is used."""
    need_pools(device)
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        r = buffer.rank
        x, ids, weights = place(moe, buffer)
        pool = ucclep.torch.MemPool(buffer._comm, 64 << 20)
        for _ in range(3):
            with pool:
                per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
                rows, *_, handle, _ = buffer.dispatch(x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
                                                      num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights)
                assert pool.holds(rows)
                back = rows * 2
                assert pool.holds(back)
                combined, _, _ = buffer.combine(back, handle)
            assert torch.equal(rows.cpu(), moe.received(r, moe.x))
            expected = 2 * moe.x[r].float() * moe.ranks_of_tokens(r)[:, None]
            torch.testing.assert_close(combined.float().cpu(), expected, rtol=1e-2, atol=1e-2)
        del rows, back, combined, handle, per_rank, per_expert, in_rank
        torch.cuda.synchronize()
        pool.close()
    buffers(2, rank_main, num_nvl_bytes=2 * 2 * HIDDEN * ROOM)
