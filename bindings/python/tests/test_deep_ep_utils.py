# SPDX-License-Identifier: Apache-2.0
"""deep_ep.utils: what programs written for DeepEP take from it, also between processes of torch.distributed."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
deep_ep = pytest.importorskip("deep_ep")
from deep_ep.utils import envs, gate, semantic, testing  # noqa: E402
from deep_ep.utils import math as ep_math  # noqa: E402
from moe import from_fp8, to_fp8  # noqa: E402
from ranks import free_port  # noqa: E402


def test_fp8_is_the_nearest():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 512, generator=generator) * torch.logspace(-30, 4, 16)[:, None]
    x[0, :128], x[1, 0], x[2, 0] = 0.0, float(torch.finfo(torch.float32).max) / 2, -3.0
    values, scales = ep_math.per_token_cast_to_fp8(x)
    table = from_fp8(torch.arange(127, dtype=torch.uint8).repeat(128, 1).t().contiguous(), torch.ones(127, 1))[:, 0]
    wanted = (x.unflatten(1, (-1, 128)) / scales[..., None]).flatten(1)
    got = from_fp8(values, torch.ones_like(scales))
    nearest = (wanted.abs()[..., None] - table).abs().amin(-1)
    assert ((got - wanted).abs() <= nearest * (1 + 1e-3) + 1e-6).all() and torch.equal(got < 0, (wanted < 0) & (got != 0))
    plain = torch.randn(5, 256, generator=generator).to(torch.bfloat16)
    assert torch.equal(to_fp8(plain)[1], ep_math.per_token_cast_to_fp8(plain)[1])


def test_fp8_ties_are_even():
    ties = torch.tensor([448.0, 17.0, 19.0, 21.0, 2.0 ** -10, 3 * 2.0 ** -10, 5 * 2.0 ** -10, -17.0])
    x = torch.zeros(1, 128)
    x[0, :len(ties)] = ties
    values, scales = ep_math.per_token_cast_to_fp8(x)
    assert scales.item() == 1 and from_fp8(values, scales)[0, :8].tolist() == [448, 16, 20, 20, 0, 2.0 ** -8, 2.0 ** -8, -16]


def test_fp8_comes_back():
    x = torch.randn(7, 200, generator=torch.Generator().manual_seed(2))
    values, scales = ep_math.per_token_cast_to_fp8(x)
    assert values.shape == (7, 200) and scales.shape == (7, 2)
    assert ep_math.calc_diff(ep_math.per_token_cast_back(values, scales), x) < 1e-3
    powers = torch.tensor([[127 | 128 << 8]] * 7, dtype=torch.int32)  # 1 and 2
    doubled = ep_math.per_token_cast_back(values, powers)
    ones = ep_math.per_token_cast_back(values, torch.ones(7, 2))
    assert torch.equal(doubled[:, :128], ones[:, :128]) and torch.equal(doubled[:, 128:], 2 * ones[:, 128:])
    wide = ep_math.per_token_cast_to_fp8(torch.randn(4, 512))[0]
    folded = torch.tensor([[127 * 0x1010101 + row] for row in range(4)], dtype=torch.int32).view(1, 4)  # of four rows
    assert torch.equal(ep_math.per_token_cast_back(wide, folded), ep_math.per_token_cast_back(wide, folded.view(4, 1)))


def test_arithmetic():
    assert (ep_math.ceil_div(7, 4), ep_math.align(7, 4), ep_math.align(8, 4)) == (2, 8, 8)
    assert (ep_math.safe_div(3, 2), ep_math.safe_div(0, 0)) == (1.5, 0)
    with pytest.raises(ZeroDivisionError):
        ep_math.safe_div(1, 0)
    x = torch.tensor([[3, 1, 3, -1], [0, 0, 0, 2], [-1, -1, -1, -1]])
    ep_math.inplace_unique(x, 4)
    assert x.tolist() == [[3, 1, -1, -1], [2, 0, -1, -1], [-1] * 4]
    scores = torch.arange(1.0, 9.0).view(1, 8)
    assert ep_math.create_grouped_scores(scores, torch.tensor([[0, 3]]), 4).tolist() == [[1, 2, 0, 0, 0, 0, 7, 8]]
    a, b = torch.ones(4, dtype=torch.int32), torch.zeros(2)
    assert ep_math.hash_tensor(a) == 4 and ep_math.hash_tensors((a, None), b, [a]) == 0
    assert ep_math.count_bytes((a, None), b) == 24
    assert [testing.parse_num_bytes(text) for text in ("12", "2K", "1.5 MiB", "1GB")] == [12, 2048, 3 << 19, 1 << 30]
    with pytest.raises(ValueError, match="'many' is not a number of bytes"):
        testing.parse_num_bytes("many")


@pytest.mark.parametrize("precise, within", [(True, 0.05), (False, 0.5)])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.5])
def test_scores_are_as_unbalanced_as_asked(ratio, precise, within):
    torch.manual_seed(3)
    same = gate.get_precise_unbalanced_scores if precise else gate.get_random_unbalanced_scores
    scores = gate.get_unbalanced_scores(512, 64, 8, 4, ratio, precise)
    torch.manual_seed(3)
    assert torch.equal(same(512, 64, 8, 4, ratio), scores)
    owners = torch.topk(scores, 4).indices // 8
    counts = torch.stack([(owners == rank).any(1).sum() for rank in range(8)]).double()
    assert counts[0] / counts[1:].mean() == pytest.approx(ratio, rel=within)


def test_environments_and_caches(monkeypatch):
    monkeypatch.setenv("EP_A", "before")
    with envs.EnvOverride([("EP_A", "1", False), ("EP_B", "2", False)]):
        assert os.environ["EP_A"] == "before" and "EP_B" not in os.environ
        with envs.EnvOverride([("EP_A", "3", True), ("EP_B", "2", True)]):
            assert (os.environ["EP_A"], os.environ["EP_B"]) == ("3", "2")
    assert os.environ["EP_A"] == "before" and "EP_B" not in os.environ
    envs.init_seed(7)
    assert envs.get_global_seed() == 7 and torch.initial_seed() == envs.get_local_seed()
    assert semantic.value_or(None, 1) == 1 and semantic.value_or(0, 1) == 0

    class Counting:
        calls = 0

        @semantic.weak_lru(maxsize=None)
        def double(self, x):
            self.calls += 1
            return 2 * x
    thing = Counting()
    assert [thing.double(2), thing.double(2), thing.double(3), thing.calls] == [4, 4, 6, 2]


NVLINKS = """GPU 0: NVIDIA H200 (UUID: GPU-1)
\t Link 0: 26.562 GB/s
\t Link 1: 25 GB/s
GPU 1: NVIDIA H200 (UUID: GPU-2)
\t Link 0: 9 GB/s
"""


def test_rates_of_links(monkeypatch, tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n[ \"$*\" = 'nvlink -s' ] && cat <<'END'\n{NVLINKS}END\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert envs.get_nvlink_gbs() == pytest.approx(0.9 * 51.562) and envs.get_nvlink_gbs(factor=1) == pytest.approx(51.562)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert envs.get_nvlink_gbs() == 0
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    monkeypatch.setattr(envs, "NICS", tmp_path)
    assert envs.get_rdma_gbs() == 50 and envs.get_rdma_gbs(nic_name="mlx5_9") == 0
    with pytest.raises(NotImplementedError, match="get_sm_read_gbs: libucclep does not plan by rates"):
        envs.get_sm_read_gbs()


def test_benchmarks_time_calls(capfd):
    if torch.cuda.is_available():
        pytest.skip("on a GPU kernels are timed, and this test has none")
    calls = []
    average, least, most = testing.bench(lambda: calls.append(1), num_warmups=1, num_tests=4)
    assert 0 < least <= average <= most and len(calls) == 5
    times = testing.bench_kineto(lambda: None, ("dispatch", "combine"), num_tests=2)
    assert len(times) == 2 and testing.bench_kineto(lambda: None, "dispatch", num_tests=2) > 0
    sends, receives = testing.bench_kineto(lambda: None, "dispatch", num_tests=2, num_kernels_per_period=2)
    assert sends == receives > 0
    assert testing._averages([1.0, 10.0, 3.0, 30.0], 2, 0.0) == [2.0, 20.0] and testing._averages([1.0, 3.0], 1, 0.0) == 2.0
    with testing.suppress_stdout_stderr():
        os.write(1, b"hidden")
    with testing.empty_suppress():
        os.write(1, b"shown")
    assert capfd.readouterr().out == "shown"


# A program as DeepEP's tests of its elastic buffer are, on the CPU: bf16 is the default type.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
import deep_ep
from deep_ep.utils.envs import dist_print, init_dist
from deep_ep.utils.gate import get_unbalanced_scores
from deep_ep.utils.math import calc_diff, per_token_cast_to_fp8
from deep_ep.utils import refs

TOKENS, HIDDEN, EXPERTS, TOP_K = 24, 256, 16, 4
rank, ranks, group = init_dist(int(sys.argv[1]), 2)
count = TOKENS - rank
buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=TOKENS, hidden=HIDDEN, num_topk=TOP_K, explicitly_destroy=True)
scores = get_unbalanced_scores(count, EXPERTS, ranks, TOP_K, 2.0, True)
weights, ids = torch.topk(scores, TOP_K, dim=-1, sorted=False)
ids[torch.rand(ids.shape, dtype=torch.float32) < 0.1] = -1
buffer.barrier()
for x in (torch.randn(count, HIDDEN, dtype=torch.bfloat16), per_token_cast_to_fp8(torch.randn(count, HIDDEN))):
    got, got_ids, got_weights, handle, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS)
    ref, ref_ids, ref_weights, tokens, counts = refs.dispatch(x, ids, weights, TOKENS, EXPERTS)
    pairs = zip(got, ref) if isinstance(x, tuple) else [(got, ref)]
    assert all(torch.equal(a, b) for a, b in pairs) and torch.equal(got_ids, ref_ids)
    assert torch.equal(got_weights, torch.where(ref_ids >= 0, ref_weights, 0.0))
    assert torch.equal(handle.recv_src_metadata[:, 0], tokens)
    assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == counts.cumsum(0).tolist()

    *_, expanded, _ = buffer.dispatch(x, ids, weights, num_experts=EXPERTS, do_expand=True, expert_alignment=8)
    assert torch.equal(expanded.recv_src_metadata[:len(tokens), 0], tokens)
    mine = refs.generate_pre_combine_data(tokens, TOKENS, TOP_K, HIDDEN)
    mine[ref_ids == -1] = 0
    y = torch.empty(expanded.num_expanded_tokens + 1, HIDDEN, dtype=torch.bfloat16)
    y[expanded.recv_src_metadata[:len(tokens), 2:].long().flatten()] = mine.view(-1, HIDDEN)
    sent = refs.generate_pre_combine_data(rank * TOKENS + torch.arange(count), TOKENS, TOP_K, HIDDEN)
    sent[ids == -1] = 0
    bias = torch.randn(count, HIDDEN, dtype=torch.bfloat16)
    expected = refs.combine(sent, ids, 1, ranks, EXPERTS, bias, True, False)
    for rows, of in ((refs.ordered_accumulate(mine), handle), (y[:-1], expanded)):
        combined, _, _ = buffer.combine(rows, of, bias=bias)
        assert calc_diff(combined, expected) < 1e-6
dist_print(f"rank {rank} is right")
buffer.destroy()
dist.destroy_process_group()
"""


def test_a_program_of_two_processes():
    environment = {**os.environ, "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank)], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    for rank, process in enumerate(processes):
        output, _ = process.communicate(timeout=250)
        assert process.returncode == 0 and f"rank {rank} is right" in output, output
