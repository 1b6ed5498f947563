# SPDX-License-Identifier: Apache-2.0
"""ucclep.torch: gradients against a layer that has all experts, and the example that trains."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import ucclep  # noqa: E402
import ucclep.torch  # noqa: E402
from moe import Moe  # noqa: E402
from ranks import launch, need_gpus  # noqa: E402

EXAMPLE = Path(__file__).parents[3] / "examples/moe_layer.py"
HIDDEN, EXPERTS, TOP_K, TOKENS = 64, 8, 3, 20


def expert(rows, matrix):
    return torch.tanh(rows @ matrix)


@pytest.mark.parametrize("alignment", [1, 8])
@pytest.mark.parametrize("nranks", [2, 4])
def test_gradients(ranks, device, nranks, alignment):
    moe = Moe(nranks, TOKENS, HIDDEN, EXPERTS, TOP_K, masked=0.1)
    matrices = torch.randn(EXPERTS, HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(3)) / 8
    turns = [torch.randn(x.shape, generator=torch.Generator().manual_seed(9 + r)) for r, x in enumerate(moe.x)]

    # The layer in one process, all experts on every token.
    dense = [[part.clone().requires_grad_() for part in (x.float(), w)] for x, w in zip(moe.x, moe.weights)]
    dense_matrices = matrices.clone().requires_grad_()
    loss = 0
    for r, (x, w) in enumerate(dense):
        gates = torch.zeros(len(x), EXPERTS + 1).scatter_add(1, torch.where(moe.ids[r] >= 0, moe.ids[r], EXPERTS), w)
        loss = loss + sum((gates[:, e, None] * expert(x, dense_matrices[e]) * turns[r]).sum() for e in range(EXPERTS))
    loss.backward()

    def rank_main(comm):
        r, to = comm.rank, "cuda" if device == "cuda" else "cpu"
        with ucclep.Group(comm, num_experts=EXPERTS, top_k=TOP_K, max_tokens_per_rank=TOKENS,
                          max_token_bytes=4 * HIDDEN) as group:
            for _ in range(2):
                x, w = (part.detach().clone().to(to).requires_grad_() for part in (moe.x[r].float(), moe.weights[r]))
                mine = matrices[r * moe.local:(r + 1) * moe.local].clone().to(to).requires_grad_()
                rows, gates, routing = ucclep.torch.dispatch(group, x, moe.ids[r].to(to), w, expert_alignment=alignment)
                done = [expert(part, mine[i]) for i, part in enumerate(rows.split(routing.tokens_per_expert))]
                y = ucclep.torch.combine(torch.cat(done) * gates[:, None], routing)
                (y * turns[r].to(to)).sum().backward()
                close = dict(rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(x.grad.cpu(), dense[r][0].grad, **close)
                torch.testing.assert_close(w.grad.cpu(), torch.where(moe.ids[r] >= 0, dense[r][1].grad, 0.0), **close)
                torch.testing.assert_close(mine.grad.cpu(), dense_matrices.grad[r * moe.local:(r + 1) * moe.local], **close)
                del rows, gates, routing, done, y
    ranks(nranks, rank_main)


def losses(*command):
    done = subprocess.run([sys.executable, *command, str(EXAMPLE), "--steps", "50"], capture_output=True, text=True,
                          timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]


@pytest.mark.more  # by far the longest; test_gradients has the layer
def test_the_example_learns_what_one_process_learns(device):
    need_gpus(device, 4)
    alone = losses()
    shared = losses(*launch(4))
    assert len(alone) == 6 and alone[-1] < alone[0] / 2
    assert shared == pytest.approx(alone, rel=1e-4)


def test_the_example_decodes_by_graphs(device):
    need_gpus(device, 4)
    done = subprocess.run([sys.executable, *launch(4), str(EXAMPLE.with_name("serve_decode.py")), "--tokens", "5"],
                          capture_output=True, text=True, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "5 tokens for each of 8 sequences on 4 ranks, all right" in done.stdout
