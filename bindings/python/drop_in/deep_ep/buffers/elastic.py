# SPDX-License-Identifier: Apache-2.0
"""ElasticBuffer: the buffer of DeepEP 2.0 to 2.4, as far as dispatch and combine go."""
from __future__ import annotations

from typing import Any

import torch

from ..ep_handles import EPHandle
from .base import outside
from .ep import Call, ExpertBuffer

__all__ = ["EPHandle", "ElasticBuffer"]


class ElasticBuffer(ExpertBuffer):
    """Communication of one set of ranks. All of them make it, call its functions in the same order, and destroy it."""

    def __init__(self, group: Any, num_bytes: int | None = None, num_cpu_bytes: int = 0, num_max_tokens_per_rank: int = 0,
                 hidden: int = 0, num_topk: int = 0, use_fp8_dispatch: bool = False, deterministic: bool = False,
                 allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int = 3, num_allocated_qps: int = 0,
                 num_cpu_timeout_secs: int = 300, num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False,
                 comm: Any = None) -> None:
        """`num_max_tokens_per_rank`, or else `num_bytes`, limits the tokens of a call.

        Without `allow_multiple_reduction` a sum is rounded once: where it would be rounded more often, rows return as fp32.
        Results are always deterministic. num_cpu_bytes, allow_hybrid_mode, sl_idx and num_allocated_qps are hints without
        effect. `comm`, of mpi4py, may stand for `group`.
        """
        super().__init__(group, comm, 1000 * num_cpu_timeout_secs, explicitly_destroy)
        self._open(num_bytes, num_max_tokens_per_rank, hidden, deterministic, allow_hybrid_mode, allow_multiple_reduction,
                   prefer_overlap_with_compute, num_allocated_qps, num_gpu_timeout_secs)

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int) -> int:
        """SMs of an operation whose num_sms is 0."""
        return self._num_sms()

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False, sequential: bool = True) -> None:
        """Later work of the current stream, and with `with_cpu_sync` of the CPU, runs when all ranks have come here."""
        self._barrier(with_cpu_sync)

    def dispatch(self, x: Any, topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 cumulative_local_expert_recv_stats: torch.Tensor | None = None, num_experts: int | None = None,
                 num_max_tokens_per_rank: int | None = None, expert_alignment: int | None = None, num_sms: int = 0,
                 num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
                 async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False,
                 handle: EPHandle | None = None, do_handle_copy: bool = True, do_cpu_sync: bool | None = None,
                 do_expand: bool = False, do_zero_padding: bool = False,
                 use_tma_aligned_col_major_sf: bool = False) -> tuple:
        """(rows, topk_idx, topk_weights, handle, event); x is rows or (rows, scales).

        Rows lie by source rank, then by token; with `do_expand` by local expert first, each expert's padded with zero
        rows to `expert_alignment`, and there is no topk_idx. Without `do_cpu_sync` there are as many rows as can come:
        of the last ones topk_idx is -1. The operation is one kernel, so previous_event_before_epilogue is waited for at
        its beginning.
        """
        if do_zero_padding and not do_expand:
            raise ValueError("dispatch: do_zero_padding needs do_expand: other rows have no padding")
        call = Call(num_experts, num_max_tokens_per_rank, expert_alignment, num_sms, do_expand, do_cpu_sync,
                    use_tma_aligned_col_major_sf, do_handle_copy, (previous_event, previous_event_before_epilogue),
                    async_with_compute_stream, allocate_on_comm_stream)
        return self._dispatch(call, x, topk_idx, topk_weights, cumulative_local_expert_recv_stats, handle)

    def combine(self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None = None, bias: Any = None,
                num_sms: int = 0, num_qps: int = 0, previous_event: Any = None, previous_event_before_epilogue: Any = None,
                async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False) -> tuple:
        """(sums of each token's rows, sums of weights or None, event). Weights do not multiply anything."""
        return self._combine(x, handle, topk_weights, bias, num_sms, (previous_event, previous_event_before_epilogue),
                             async_with_compute_stream, allocate_on_comm_stream)


for _name, _what in {
    "engram": ("engram_write", "engram_fetch", "get_engram_storage_size_hint"),
    "pipeline": ("pp_set_config", "pp_send", "pp_recv", "get_pp_buffer_size_hint"),
    "all-gather or reduce-scatter": ("create_agrs_session", "destroy_agrs_session", "agrs_new_session", "all_gather",
                                     "get_agrs_num_max_session_bytes", "get_agrs_buffer_size_hint"),
}.items():
    for _method in _what:
        setattr(ElasticBuffer, _method, outside(_method, _name))
