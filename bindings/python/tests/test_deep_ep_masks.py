# SPDX-License-Identifier: Apache-2.0
"""deep_ep.Buffer with enable_shrink: ranks that stop are masked, and the others go on (C13)."""
import threading

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from moe import EXPERTS, HIDDEN, TOP_K, Moe, difference, place  # noqa: E402

MAX_TOKENS = 24
RANKS = 4


@pytest.fixture
def deadline(monkeypatch):
    """For this long the others wait for each rank that does not come; only so long may one of them be late."""
    monkeypatch.delenv("UCCLEP_TIMEOUT_MS", raising=False)
    monkeypatch.setattr(deep_ep.low_latency, "MASK_AFTER_MS", 3000)


def masks(buffer):
    status = torch.full((buffer.group_size,), 7, dtype=torch.int32, device=buffer._streams.device)
    buffer.low_latency_query_mask_buffer(status)
    return status.tolist()


class Round:
    """A dispatch and a combine in which `silent` ranks do not dispatch, and `gone` ranks do not combine."""

    def __init__(self, buffer, moe, seed):
        self.buffer, self.moe = buffer, moe
        self.x, self.ids, self.weights = place(moe, buffer)
        self.scale = 1 + seed

    def dispatch(self, silent=()):
        buffer, moe, r = self.buffer, self.moe, self.buffer.rank
        self.rows, counts, self.handle, _, _ = buffer.low_latency_dispatch(self.x * self.scale, self.ids, MAX_TOKENS, EXPERTS,
                                                                           use_fp8=False)
        for expert in range(moe.local):
            expected = [moe.x[source][(moe.ids[source] == r * moe.local + expert).any(1)] * self.scale
                        for source in range(moe.nranks) if source not in silent]
            expected = torch.cat(expected)
            assert counts[expert].item() == len(expected)
            assert torch.equal(self.rows[expert, :len(expected)].cpu(), expected)

    def combine(self, gone=()):
        moe, r = self.moe, self.buffer.rank
        combined, _, _ = self.buffer.low_latency_combine(self.rows, self.ids, self.weights, self.handle)
        living = torch.ones_like(moe.ids[r], dtype=torch.bool)
        for rank in gone:
            living &= moe.ids[r] // moe.local != rank
        expected = moe.x[r].float() * self.scale * torch.where(living, moe.weights[r], 0.0).sum(1, keepdim=True)
        assert not combined.isnan().any() and difference(combined.cpu(), expected) < 1e-5


@pytest.mark.parametrize("at, stopped", [("dispatch", {1, 3}), ("combine", {2})])
def test_c13_the_others_go_on_without_ranks_that_stop(buffers, deadline, at, stopped):
    moe = Moe(RANKS, MAX_TOKENS, HIDDEN, EXPERTS, TOP_K)
    shown = [int(rank in stopped) for rank in range(RANKS)]
    meet = threading.Barrier(RANKS)

    def rank_main(buffer):
        whole = Round(buffer, moe, 0)
        whole.dispatch(), whole.combine()
        assert masks(buffer) == [0] * RANKS
        meet.wait(60)
        stops, first = buffer.rank in stopped, Round(buffer, moe, 1)
        if at == "combine":
            first.dispatch()
        if not stops:
            if at == "dispatch":
                first.dispatch(silent=stopped)
            first.combine(gone=stopped)
            assert masks(buffer) == shown
            for seed in (2, 3):
                later = Round(buffer, moe, seed)
                later.dispatch(silent=stopped), later.combine(gone=stopped)
        meet.wait(60)
        # Their processes live, so they come back.
        buffer.low_latency_clean_mask_buffer()
        assert masks(buffer) == [0] * RANKS
        again = Round(buffer, moe, 4)
        again.dispatch(), again.combine()
    buffers(RANKS, rank_main, low_latency_mode=True, enable_shrink=True)


def test_ranks_that_the_caller_masks(buffers):
    """One after the other, at once and without waiting; what is masked comes back by all ranks together."""
    moe = Moe(RANKS, MAX_TOKENS, HIDDEN, EXPERTS, TOP_K)
    stopped = {0, 2}
    meet = threading.Barrier(RANKS)

    def rank_main(buffer):
        whole = Round(buffer, moe, 0)
        whole.dispatch(), whole.combine()
        meet.wait(60)
        if buffer.rank not in stopped:
            for rank in stopped:
                buffer.low_latency_update_mask_buffer(rank, True)
                buffer.low_latency_update_mask_buffer(rank, True)
            buffer.low_latency_update_mask_buffer(buffer.rank, False)
            assert masks(buffer) == [1, 0, 1, 0]
            with pytest.raises(NotImplementedError, match="low_latency_clean_mask_buffer on all ranks"):
                buffer.low_latency_update_mask_buffer(2, False)
            with pytest.raises(ValueError, match="rank_to_mask is 4"):
                buffer.low_latency_update_mask_buffer(4, True)
            later = Round(buffer, moe, 1)
            later.dispatch(silent=stopped), later.combine(gone=stopped)
        meet.wait(60)
        buffer.low_latency_clean_mask_buffer()
        again = Round(buffer, moe, 2)
        again.dispatch(), again.combine()
    buffers(RANKS, rank_main, low_latency_mode=True, enable_shrink=True)


def test_masks_before_the_first_call(buffers):
    def rank_main(buffer):
        assert masks(buffer) == [0, 0]
        buffer.low_latency_clean_mask_buffer()
        with pytest.raises(RuntimeError, match="no masks before the first low_latency_dispatch"):
            buffer.low_latency_update_mask_buffer(1, True)
    buffers(2, rank_main, low_latency_mode=True, enable_shrink=True)


def test_masks_of_a_buffer_without_them(buffers):
    def rank_main(buffer):
        for call in (lambda: buffer.low_latency_update_mask_buffer(1, True), buffer.low_latency_clean_mask_buffer,
                     lambda: masks(buffer)):
            with pytest.raises(RuntimeError, match="enable_shrink=True"):
                call()
    buffers(2, rank_main, low_latency_mode=True)
