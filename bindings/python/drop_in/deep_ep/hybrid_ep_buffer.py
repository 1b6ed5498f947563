# SPDX-License-Identifier: Apache-2.0
"""HybridEPBuffer: dispatch and combine with dense maps of experts, as Megatron-LM and torchtitan call them."""
from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from ucclep import OverflowRows
from ucclep.torch.ticket import holder_of, ticket_of

from .buffers.ep import Call, ExpertBuffer
from .ep_handles import EPHandle
from .routes import ids_of

#: Tokens of a rank are rounded up to a multiple of this, so that few shapes have memory.
TOKEN_STEP = 512


@dataclass
class HybridEPConfig:
    """What a buffer was made for. The library plans the rest itself."""

    hidden_dim: int
    max_num_of_tokens_per_rank: int
    num_of_experts_per_rank: int
    num_of_ranks_per_node: int
    num_of_nodes: int
    pad_multiple: int = 0


def indices_to_map(topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, num_of_tokens: int,
                   num_of_experts: int) -> tuple:
    """([T, E] bool, [T, E] fp32 or None) of [T, K] ids, in which -1 is nothing, and their weights."""
    ids = torch.where(topk_idx >= 0, topk_idx.to(torch.int64), num_of_experts)
    shape = (num_of_tokens, num_of_experts + 1)
    routing = torch.zeros(shape, dtype=torch.bool, device=ids.device).scatter_(1, ids, True)[:, :-1]
    return routing.contiguous(), None if topk_weights is None else _dense(topk_weights.float(), topk_idx, num_of_experts)


def _dense(weights: torch.Tensor, ids: torch.Tensor, num_of_experts: int) -> torch.Tensor:
    """[T, E]: weights [T, K] at their experts."""
    places = torch.where(ids >= 0, ids.to(torch.int64), num_of_experts)
    made = torch.zeros((len(ids), num_of_experts + 1), dtype=weights.dtype, device=ids.device)
    return made.scatter_(1, places, weights)[:, :-1].contiguous()


def _sparse(probs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """[T, K]: what the dense weights [T, E] have at the ids."""
    taken = probs.float().gather(1, ids.to(torch.int64).clamp(min=0))
    return torch.where(ids >= 0, taken, torch.zeros_like(taken))


class HybridEPBuffer(ExpertBuffer):
    """Rows for each expert (dispatch_with_permute) or for each rank (dispatch), of at most 32 experts a token."""

    def __init__(self, group: Any, hidden_dim: int, max_num_of_tokens_per_rank: int, num_local_experts: int,
                 use_fp8: bool = False, num_sms_dispatch_api: int | None = None, num_sms_combine_api: int | None = None,
                 num_sms_preprocessing_api: int | None = None, num_blocks_permute: int | None = None,
                 num_blocks_unpermute: int | None = None, load_cached_kernels: bool = False, use_shared_buffer: bool = True,
                 enable_custom_allgather: bool = True, num_of_hybrid_ep_ranks_per_nvlink_domain: int | None = None,
                 use_mnnvl: bool | None = None, comm: Any = None) -> None:
        """`max_num_of_tokens_per_rank` may grow: a call with more tokens takes more memory, on all ranks alike.

        num_sms_dispatch_api and num_sms_combine_api limit the SMs of an operation. The others are hints without effect.
        `comm`, of mpi4py, may stand for `group`.
        """
        super().__init__(group, comm)
        self.rank, self.group_size = self._comm.rank, self._comm.nranks
        self._open(None, max_num_of_tokens_per_rank, hidden_dim, True, True, True, True, 0, 0)
        self._group_settings = {"overflow": OverflowRows.DROP}  # the handle has a flag for it
        size = self.num_nvlink_ranks
        self.num_of_hybrid_ep_ranks_per_nvlink_domain = size
        self.num_of_nodes, (self.node_rank, self.local_rank) = self.group_size // size, divmod(self.rank, size)
        self.use_fp8 = use_fp8
        self._sms = num_sms_dispatch_api or 0, num_sms_combine_api or 0
        self.config = HybridEPConfig(hidden_dim, max_num_of_tokens_per_rank, num_local_experts, size, self.num_of_nodes)
        self.configurer = SimpleNamespace(buffer_config=self.config)  # where newer programs look for it

    def empty_jit_cache(self) -> None:
        """Nothing to do: kernels are not compiled at run time."""

    def update_template_config(self, hidden_dim: int | None = None, num_of_tokens_per_rank: int | None = None,
                               num_local_experts: int | None = None, pad_multiple: int | None = None,
                               use_fp8: bool | None = None, fuse_permute_dispatch: bool = False,
                               max_num_of_tokens_per_rank: int | None = None) -> HybridEPConfig:
        """What the buffer is made for from here on; room for tokens only grows."""
        config = self.config
        config.hidden_dim = hidden_dim or config.hidden_dim
        config.num_of_experts_per_rank = num_local_experts or config.num_of_experts_per_rank
        config.pad_multiple = pad_multiple or config.pad_multiple
        wanted = max(num_of_tokens_per_rank or 0, max_num_of_tokens_per_rank or 0)
        if wanted > config.max_num_of_tokens_per_rank:
            config.max_num_of_tokens_per_rank = -(-wanted // TOKEN_STEP) * TOKEN_STEP
        return config

    def dispatch(self, hidden: torch.Tensor, scaling_factor: torch.Tensor | None = None,
                 topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 num_of_experts: int | None = None, probs: torch.Tensor | None = None,
                 routing_map: torch.Tensor | None = None, num_dispatched_tokens_tensor: torch.Tensor | None = None,
                 num_dispatched_tokens: int | None = None, handle: tuple | None = None) -> tuple:
        """(rows, probs [N, experts of the node] or None, scales or None, handle): a row for each token and rank.

        Rows lie by source rank, then by token. Where they go is `routing_map` [T, E] with `probs` [T, E], or `topk_idx` with
        `topk_weights`, or an earlier `handle`.
        """
        core, ids, weights, experts = self._routing(hidden, topk_idx, topk_weights, num_of_experts, probs, routing_map, handle,
                                                    True)
        call = Call(experts, self._most(core), num_sms=self._sms[0], copy_ids=routing_map is None, rows=num_dispatched_tokens)
        got, got_ids, got_weights, core, _ = self._dispatch(call, _with(hidden, scaling_factor), ids, weights, None, core)
        tokens, scales = got if isinstance(got, tuple) else (got, None)
        dense = None
        if got_weights is not None:
            first = self.local_rank * self.config.num_of_experts_per_rank
            of_node = self.config.num_of_experts_per_rank * self.config.num_of_ranks_per_node
            dense = _dense(got_weights, torch.where(got_ids >= 0, got_ids + first, -1), of_node)
        if handle is None:
            count = core.psum_num_recv_tokens_per_scaleup_rank[-1:]
            local = indices_to_map(got_ids, None, len(got_ids), self.config.num_of_experts_per_rank)[0]
            handle = (ticket_of(core), got_ids, None, count, local, len(hidden), self.config)
        return tokens, dense, scales, handle

    def combine(self, hidden: torch.Tensor, probs: torch.Tensor | None = None, handle: tuple | None = None) -> tuple:
        """(sums [T, H], sums of probs [T, E] or None) of rows for each rank."""
        core = _core(handle, "combine", False)
        if probs is None or handle is None:
            return self._summed(core, hidden, None)
        local = self.config.num_of_experts_per_rank
        mine = probs[:, self.local_rank * local:(self.local_rank + 1) * local]
        return self._summed(core, hidden, _sparse(mine, handle[1]))

    def dispatch_with_permute(self, *, hidden: torch.Tensor, topk_idx: torch.Tensor | None = None,
                              topk_weights: torch.Tensor | None = None, num_of_experts_per_rank: int | None = None,
                              num_of_experts: int | None = None, use_fp8: bool | None = None,
                              routing_map: torch.Tensor | None = None, probs: torch.Tensor | None = None,
                              scaling_factor: torch.Tensor | None = None, num_permuted_tokens: int | None = None,
                              pad_multiple: int | None = None, handle: tuple | None = None, non_blocking: bool = False,
                              fuse_permute_dispatch: bool = False, num_dispatched_tokens: int | None = None,
                              use_host_meta: bool | None = None) -> tuple:
        """(rows, probs [N] or None, scales or None, rows of each local expert, handle): a row for each token and expert.

        Rows lie by local expert, then by source rank, then by token; an expert's are padded with zero rows to
        `pad_multiple`, a power of two. With `non_blocking` the CPU does not wait: the tensors have `num_permuted_tokens`
        rows, rows beyond are dropped, handle[8] is 1 then, and the counts are on the device.
        """
        if use_host_meta is not None:
            non_blocking = not use_host_meta
        if non_blocking and num_permuted_tokens is None and handle is None:
            raise ValueError("dispatch_with_permute: non_blocking needs num_permuted_tokens, the number of output rows")
        core, ids, weights, experts = self._routing(hidden, topk_idx, topk_weights, num_of_experts, probs, routing_map, handle,
                                                    not non_blocking)
        alignment = (pad_multiple or 1) if core is None else None  # with a handle it is the handle's
        call = Call(experts, self._most(core), alignment, self._sms[0], True,
                    None if core is not None else not non_blocking, copy_ids=routing_map is None, rows=num_permuted_tokens,
                    with_ids=False)
        got, _, got_weights, core, _ = self._dispatch(call, _with(hidden, scaling_factor), ids, weights, None, core)
        tokens, scales = got if isinstance(got, tuple) else (got, None)
        if handle is None:
            listed = core.num_recv_tokens_per_expert_list
            counts = core.padded_counts() if non_blocking else torch.tensor(listed, device="cpu")
            overflow = (core.psum_num_recv_tokens_per_expert[-1:] > core.routing.rows).int()
            handle = (ticket_of(core), None, None, core.psum_num_recv_tokens_per_scaleup_rank[-1:], core.expert_map(), counts,
                      len(hidden), self.config, overflow)
        return tokens, got_weights, scales, handle[5], handle

    def combine_with_unpermute(self, *, hidden: torch.Tensor, probs: torch.Tensor | None = None, handle: tuple | None = None,
                               pad_multiple: int | None = None, num_dispatched_tokens: int | None = None,
                               fuse_unpermute_combine: bool = False) -> tuple:
        """(sums [T, H], sums of probs [T, E] or None) of rows for each expert. Probs do not multiply anything."""
        return self._summed(_core(handle, "combine_with_unpermute", True), hidden, None if probs is None else probs.float())

    def _routing(self, hidden: torch.Tensor, topk_idx: torch.Tensor | None, topk_weights: torch.Tensor | None,
                 num_of_experts: int | None, probs: torch.Tensor | None, routing_map: torch.Tensor | None,
                 handle: tuple | None, may_wait: bool) -> tuple:
        """(the earlier routing or None, new ids or None, their weights or None, number of experts)."""
        if handle is not None:
            core = holder_of(handle[0])
            weights = None if probs is None else _sparse(probs, core.topk_idx)
            return core, None, weights, None
        if routing_map is not None:
            if routing_map.dtype != torch.bool:
                raise TypeError(f"routing_map has dtype {routing_map.dtype}, expected torch.bool")
            topk_idx, num_of_experts = ids_of(routing_map, "dispatch", may_wait), routing_map.shape[1]
            topk_weights = None if probs is None else _sparse(probs, topk_idx)
        elif topk_idx is None or num_of_experts is None:
            raise ValueError("dispatch needs routing_map, or topk_idx with num_of_experts, or a handle")
        elif probs is not None:
            topk_weights = _sparse(probs, topk_idx)
        if len(topk_idx) != len(hidden):
            raise ValueError(f"the routing has {len(topk_idx)} tokens, but hidden has {len(hidden)}")
        self.update_template_config(hidden.shape[1], len(hidden), num_of_experts // self.group_size)
        return None, topk_idx, None if topk_weights is None else topk_weights.float().contiguous(), num_of_experts

    def _most(self, core: EPHandle | None) -> int | None:
        return self.config.max_num_of_tokens_per_rank if core is None else None

    def _summed(self, core: EPHandle, hidden: torch.Tensor, weights: torch.Tensor | None) -> tuple:
        sums, sums_of_weights, _ = self._combine(hidden, core, weights, None, self._sms[1], (None, None), False, False)
        return sums, None if weights is None else _dense(sums_of_weights, core.topk_idx, core.num_experts)


def _with(hidden: torch.Tensor, scales: torch.Tensor | None) -> Any:
    return hidden if scales is None else (hidden, scales)


def _core(handle: tuple | None, call: str, expand: bool) -> EPHandle:
    if handle is None:
        raise ValueError(f"{call} needs the handle of a dispatch")
    core: EPHandle = holder_of(handle[0])
    if core.do_expand != expand:
        raise ValueError(f"{call}: the handle is from {'dispatch_with_permute' if core.do_expand else 'dispatch'}, expected "
                         f"one from {'dispatch_with_permute' if expand else 'dispatch'}")
    return core
