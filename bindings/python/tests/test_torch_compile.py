# SPDX-License-Identifier: Apache-2.0
"""ucclep.torch with torch.compile (custom ops, torch >= 2.4), and with a bound for rows, as in CUDA graphs."""
import threading

import pytest

torch = pytest.importorskip("torch")
import ucclep  # noqa: E402
import ucclep.torch  # noqa: E402
from moe import Moe  # noqa: E402
from ucclep.torch.operator import CUSTOM_OPS  # noqa: E402
from ucclep.torch.routing import _handles  # noqa: E402

HIDDEN, EXPERTS, TOP_K, TOKENS = 64, 8, 3, 20
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
compiled_only = pytest.mark.skipif(not CUSTOM_OPS, reason=f"torch {torch.__version__} has no torch.library.custom_op (2.4)")


def layer(group, x, ids, weights, factors, max_rows):
    """Expert e multiplies a row by its factor: what it does follows from counts alone, without a list."""
    rows, gates, routing = ucclep.torch.dispatch(group, x, ids, weights, expert_alignment=4, max_rows=max_rows)
    ends = routing.counts.cumsum(0)
    expert = (torch.arange(rows.shape[0], device=rows.device)[:, None] >= ends).sum(1).clamp(max=len(ends) - 1)
    return ucclep.torch.combine(torch.tanh(rows * factors[expert, None]) * gates[:, None], routing)


def expected(moe, r, factors):
    """The layer of one process, with gradients of rows and weights."""
    x, w = moe.x[r].float().requires_grad_(), moe.weights[r].clone().requires_grad_()
    parts = torch.tanh(x[:, None] * torch.where(moe.ids[r] >= 0, factors[moe.ids[r]], 0.0)[..., None])
    y = (parts * w[..., None]).sum(1)
    y.square().sum().backward()
    return y.detach(), x.grad, torch.where(moe.ids[r] >= 0, w.grad, 0.0)


def check_layer(comm, device, run, moe, max_rows, turns=2):
    r, to = comm.rank, "cuda" if device == "cuda" else "cpu"
    factors = torch.linspace(0.5, 1.5, EXPERTS)
    with ucclep.Group(comm, num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=TOKENS, max_token_bytes=4 * HIDDEN) as group:
        for _ in range(turns):
            x, w = (part.detach().clone().to(to).requires_grad_() for part in (moe.x[r].float(), moe.weights[r]))
            mine = factors[r * moe.local:(r + 1) * moe.local].clone().to(to).requires_grad_()
            y = run(group, x, moe.ids[r].to(to), w, mine, max_rows)
            y.square().sum().backward()
            for got, wanted in zip((y, x.grad, w.grad), expected(moe, r, factors)):
                torch.testing.assert_close(got.detach().cpu(), wanted, **CLOSE)
            assert mine.grad.isfinite().all()
            del y
        # Every routing has come back: the second step took the first one's.
        assert len(_handles._pool(group, ucclep.Layout.EXPERT_MAJOR, ucclep.Mode.HT, {"expert_alignment": 4})) == 1


def room(nranks):
    return nranks * TOKENS * TOP_K + 4 * EXPERTS


@pytest.mark.parametrize("bounded", [False, True])
def test_eager(ranks, device, bounded):
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.1)
    ranks(2, lambda comm: check_layer(comm, device, layer, moe, room(2) if bounded else None))


@compiled_only
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("bounded", [False, True])
def test_compiled(ranks, device, bounded, backend):
    """One graph, without a break, forward and backward."""
    if device == "cuda" and backend == "inductor":
        pytest.importorskip("triton")
    moe = Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.1, uneven=False)
    torch._dynamo.reset()
    run = torch.compile(layer, fullgraph=True, backend=backend, dynamic=False)
    ranks(2, lambda comm: check_layer(comm, device, run, moe, room(2) if bounded else None))


@compiled_only
def test_the_operations_are_what_torch_expects(ranks, device):
    """Schemas, outputs without data, and gradients under AOTAutograd, as torch.library.opcheck walks them."""
    to = "cuda" if device == "cuda" else "cpu"

    def rank_main(comm):
        with ucclep.Group(comm, num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=TOKENS,
                          max_token_bytes=4 * HIDDEN) as group:
            x, w = torch.randn(5, HIDDEN, device=to, requires_grad=True), torch.rand(5, TOP_K, device=to, requires_grad=True)
            ids = torch.arange(TOP_K, device=to).repeat(5, 1)
            dispatch, combine = torch.ops.ucclep._dispatch, torch.ops.ucclep._combine
            for max_rows in (None, 32):
                torch.library.opcheck(dispatch, (x, ids, w, group.name, 1, max_rows), test_utils=(
                    "test_schema", "test_autograd_registration", "test_faketensor"))
                rows, _, _, ticket = dispatch(x, ids, w, group.name, 1, max_rows)
                torch.library.opcheck(combine, (rows.detach().requires_grad_(), ticket, 5), test_utils=(
                    "test_schema", "test_autograd_registration", "test_faketensor"))
    ranks(1, rank_main)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=compiled_only)])
def test_cuda_graphs(ranks, device, compiled):
    """A captured step, forward and backward, follows the routing that lies in its tensors at each replay."""
    if device != "cuda":
        pytest.skip("CUDA graphs hold the work of a GPU; the host device's graphs are in test_operations.py")
    moes = [Moe(2, TOKENS, HIDDEN, EXPERTS, TOP_K, seed=seed, uneven=False) for seed in (1, 2, 3)]
    factors = torch.linspace(0.5, 1.5, EXPERTS)
    torch.cuda.init()
    if compiled:
        torch._dynamo.reset()
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    # torch traces for one thread at a time. A bounded step only enqueues, so it need not wait for the other rank's.
    tracing = threading.Lock()

    def rank_main(comm):
        r = comm.rank
        with ucclep.Group(comm, num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=TOKENS,
                          max_token_bytes=4 * HIDDEN) as group:
            x, ids, w = (part.cuda() for part in (moes[0].x[r].float(), moes[0].ids[r], moes[0].weights[r]))
            x.requires_grad_(), w.requires_grad_()
            mine = factors[r * moes[0].local:(r + 1) * moes[0].local].cuda()

            def step():
                y = run(group, x, ids, w, mine, room(2))
                return (y, *torch.autograd.grad(y.square().sum(), (x, w)))

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    with tracing:
                        step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # A stream of this rank's own: torch's default for captures is one of the process.
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                results = step()
            for moe in moes:
                with torch.no_grad():
                    x.copy_(moe.x[r].float()), ids.copy_(moe.ids[r]), w.copy_(moe.weights[r])
                graph.replay()
                torch.cuda.synchronize()
                for got, wanted in zip(results, expected(moe, r, factors)):
                    torch.testing.assert_close(got.detach().cpu(), wanted, **CLOSE)
            del results, graph
    ranks(2, rank_main)
