# SPDX-License-Identifier: Apache-2.0
"""Data that a call cannot take: nothing is left out in silence."""
import warnings

import pytest
import ucclep

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from moe import EXPERTS, HIDDEN, TOKENS, TOP_K, Moe, difference, place  # noqa: E402

WRONG = [([0, 4], r"topk_idx\[1, 1\] is 4, expected -1 or an expert of 0..3"), ([0, 2 ** 32], r"\[1, 1\] is 4294967296"),
         ([-5, 0], r"topk_idx\[1, 0\] is -5"), ([3, 3], r"topk_idx\[1\] has expert 3 twice")]


def on_cpu(buffer):
    if buffer._streams.device.type != "cpu":
        pytest.skip("ids on a GPU are checked by kernels")


@pytest.mark.parametrize("ids, words", WRONG)
def test_ids_that_a_cpu_sees_raise(buffers, ids, words):
    def rank_main(buffer):
        on_cpu(buffer)
        x, topk_idx = torch.ones(2, HIDDEN, dtype=torch.bfloat16), torch.tensor([[-1, -1], ids])
        counts = torch.zeros(4, dtype=torch.int32)
        calls = {"get_dispatch_layout": lambda: buffer.get_dispatch_layout(topk_idx, 4),
                 "dispatch": lambda: buffer.dispatch(x, topk_idx=topk_idx, num_tokens_per_expert=counts),
                 "low_latency_dispatch": lambda: buffer.low_latency_dispatch(x, topk_idx, 2, 4)}
        for name, call in calls.items():
            with pytest.raises(ValueError, match=name + ": .*" + words):
                call()
    buffers(1, rank_main)


@pytest.mark.parametrize("ids, words", WRONG)
@pytest.mark.parametrize("make", [deep_ep.ElasticBuffer, deep_ep.EPBuffer])
def test_ids_that_a_cpu_sees_raise_elastic(buffers, make, ids, words):
    def rank_main(buffer):
        on_cpu(buffer)
        with pytest.raises(ValueError, match="dispatch: .*" + words):
            buffer.dispatch(torch.ones(2, 64, dtype=torch.bfloat16), torch.tensor([[-1, -1], ids]), num_experts=4)
    buffers(1, rank_main, make=lambda mpi: make(None, num_max_tokens_per_rank=8, hidden=64, comm=mpi))


def test_ids_of_combine_are_those_of_the_dispatch(buffers):
    moe = Moe(1, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        on_cpu(buffer)
        x, ids, weights = place(moe, buffer)
        got, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False)
        with pytest.raises(ValueError, match="topk_idx differs from that of the dispatch"):
            buffer.low_latency_combine(got, ids.flip(1), weights, handle)
        with pytest.raises(TypeError, match="handle is a list, expected the tuple that low_latency_dispatch returned"):
            buffer.low_latency_combine(got, ids, weights, [])
    buffers(1, rank_main)


def test_low_latency_handles_that_are_put_together_again(buffers):
    """Programs that hand on tensors only, as custom operators do, keep the handle's tensors and numbers apart."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        got, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False)
        whole, _, _ = buffer.low_latency_combine(got, ids, weights, handle)
        src_info, layout_range, *numbers = handle
        again, _, _ = buffer.low_latency_combine(got, ids, weights, (src_info.view(src_info.shape), layout_range, *numbers))
        assert torch.equal(again, whole)
        assert buffer.get_next_low_latency_combine_buffer(tuple(handle)).shape == got.shape
        with pytest.raises(RuntimeError, match="or its first tensor is a copy"):
            buffer.low_latency_combine(got, ids, weights, (src_info.clone(), layout_range, *numbers))
        for _ in range(2):
            _, _, (_, ranges, *_), event, _ = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False,
                                                                          async_finish=True)
            before = ranges._version
            event.current_stream_wait()
            assert torch.equal(ranges, layout_range) and ranges._version == before  # autograd may have saved it
        with pytest.raises(RuntimeError, match="the handle is too old"):
            buffer.low_latency_combine(got, ids, weights, tuple(handle))
    buffers(2, rank_main, low_latency_mode=True)


WRONG_COUNTS = {"num_tokens_per_rank": r"is \[3\], but topk_idx counts to \[2\]",
                "num_tokens_per_rdma_rank": r"is \[3\], but topk_idx counts to \[2\]",
                "num_tokens_per_expert": r"is \[2, 2, 1, 2\], but topk_idx counts to \[1, 1, 0, 1\]",
                "is_token_in_rank": r"has the shape \(1, 1\), expected \(2, 1\)"}


@pytest.mark.parametrize("name", WRONG_COUNTS)
def test_counts_that_are_not_of_the_routing(buffers, name):
    def rank_main(buffer):
        on_cpu(buffer)
        x, ids = torch.ones(2, HIDDEN, dtype=torch.bfloat16), torch.tensor([[0, 1], [3, -1]])
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, 4)
        how = dict(num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_rank, num_tokens_per_expert=per_expert,
                   is_token_in_rank=in_rank)
        wrong = in_rank[:1] if name == "is_token_in_rank" else how[name] + 1
        with pytest.raises(ValueError, match=f"dispatch: {name} {WRONG_COUNTS[name]}"):
            buffer.dispatch(x, topk_idx=ids, **{**how, name: wrong})
        got, *_, handle, _ = buffer.dispatch(x, topk_idx=ids, **how)
        assert torch.equal(buffer.combine(got, handle)[0], x)
    buffers(1, rank_main)


@pytest.mark.parametrize("in_place", [False, True])
def test_ids_that_combine_leaves_out(buffers, in_place):
    """A program may take selections away after the dispatch: their rows do not count."""
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, uneven=False)

    def rank_main(buffer):
        x, ids, weights = place(moe, buffer)
        ids = ids.clone()
        got, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, TOKENS, EXPERTS, use_fp8=False)
        whole, _, _ = buffer.low_latency_combine(got, ids, weights, handle)
        fewer = ids if in_place else ids.clone()
        fewer[::2, 1] = -1
        some, _, _ = buffer.low_latency_combine(got, fewer, weights, handle)
        kept = torch.where(fewer >= 0, weights, 0.0)
        for combined, counted in ((whole, weights), (some, kept)):
            assert difference(combined.cpu(), (x.float() * counted.sum(1, keepdim=True)).cpu()) < 1e-5
        assert torch.equal(some[1::2], whole[1::2]) and not torch.equal(some[::2], whole[::2])
    buffers(2, rank_main, low_latency_mode=True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_too_few_rows_raise_where_the_cpu_waits(buffers, asynchronous):
    moe = Moe(1, TOKENS, HIDDEN, EXPERTS, TOP_K)

    def rank_main(buffer):
        on_cpu(buffer)
        x, ids, weights = place(moe, buffer)
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        how = dict(num_tokens_per_rank=per_rank, is_token_in_rank=in_rank, num_tokens_per_expert=per_expert, topk_idx=ids,
                   topk_weights=weights, async_finish=asynchronous)
        with pytest.raises(ucclep.Overflow, match=f"receives {TOKENS} rows and keeps 3"):
            *_, event = buffer.dispatch(x, num_worst_tokens=3, **how)
            event.current_stream_wait()
        assert buffer.num_data_errors == 1
        got, *_, handle, event = buffer.dispatch(x, num_worst_tokens=TOKENS, **how)  # the next call is not concerned
        if asynchronous:
            event.current_stream_wait()
        assert torch.equal(got, x) and buffer.num_data_errors == 1
    buffers(1, rank_main)


def test_what_only_the_device_sees_is_counted_and_warned_of_once(buffers):
    """As on a GPU, where no thread waits."""
    def rank_main(buffer):
        errors, handle = buffer._streams.errors, buffer._groups.lease(
            "test", buffer._groups.get("test", num_experts=4, top_k=2, max_tokens_per_rank=4, max_token_bytes=16),
            ucclep.Layout.FLAT, ucclep.Mode.HT).handle
        wrong = torch.tensor([[0, 9]], device=buffer._streams.device)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            errors.warn_once()
            for _ in range(3):
                handle.update(wrong, stream=buffer._streams.here())
                buffer._comm.synchronize(buffer._streams.here())
                errors.warn_once()
        assert buffer.num_data_errors == 3 and len(heard) == 1 and issubclass(heard[0].category, RuntimeWarning)
        assert "has the id 9" in str(heard[0].message) and "num_data_errors" in str(heard[0].message)
    buffers(1, rank_main)
