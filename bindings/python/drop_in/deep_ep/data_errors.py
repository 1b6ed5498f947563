# SPDX-License-Identifier: Apache-2.0
"""What the data of a call did wrong: found before the call where tensors lie on the CPU, else found by the device."""
from __future__ import annotations

import warnings

import torch
import ucclep
from ucclep.errors import Error, InvalidArgument, Overflow, error


class DataErrors:
    """Errors that the device has found in data. An operation that has one still ends, with the documented result."""

    def __init__(self, comm: ucclep.Communicator):
        self._comm = comm
        #: How many were seen. The library keeps one at a time: those that follow before it is read are not counted.
        self.count = 0

    def _take(self) -> Error | None:
        record = self._comm.async_error()
        found = error(record["code"], record["text"]) if record else None
        if not isinstance(found, (InvalidArgument, Overflow)):
            return None  # no record, a masked peer, or a fatal record, which every call raises
        self._comm.clear_async_error()
        self.count += 1
        return found

    def raise_found(self) -> None:
        """For a thread that has waited for the operation."""
        found = self._take()
        if found is not None:
            raise found

    def warn_once(self) -> None:
        """For a thread that does not wait."""
        found = self._take()
        if found is not None and self.count == 1:
            warnings.warn(f"{found.message}. Later errors of this kind are counted by the buffer's num_data_errors, without a "
                          "warning", RuntimeWarning, stacklevel=4)


def check_ids(call: str, topk_idx: torch.Tensor, num_experts: int) -> None:
    """Raises for ids that a dispatch would leave out. Ids on a GPU are checked by the library's kernels."""
    if topk_idx.is_cuda or not topk_idx.numel():
        return
    wrong = (topk_idx < -1) | (topk_idx >= num_experts)
    if wrong.any():
        token, k = wrong.nonzero()[0].tolist()
        raise ValueError(f"{call}: topk_idx[{token}, {k}] is {topk_idx[token, k].item()}, expected -1 or an expert of "
                         f"0..{num_experts - 1}")
    ordered = topk_idx.sort(1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        token, k = twice.nonzero()[0].tolist()
        raise ValueError(f"{call}: topk_idx[{token}] has expert {ordered[token, k].item()} twice, expected different experts "
                         "for a token")


def check_counts(call: str, name: str, given: torch.Tensor | None, *counted: torch.Tensor) -> None:
    """Raises for counts that the caller gives beside what they count. Those on a GPU are not read."""
    if given is None or given.is_cuda:
        return
    if not any(given.shape == counts.shape and torch.equal(given.to(counts.dtype), counts) for counts in counted):
        raise ValueError(f"{call}: {name} is {given.tolist()}, but topk_idx counts to {counted[0].tolist()}: pass what "
                         "get_dispatch_layout returned for the same topk_idx")


def check_alignment(expert_alignment: int | None) -> None:
    """Raises for what nothing can be a multiple of."""
    if expert_alignment is not None and expert_alignment < 1:
        raise ValueError(f"dispatch: expert_alignment is {expert_alignment}, expected at least 1")


def version_of(tensor: torch.Tensor) -> int | None:
    """Another number after each change in place that torch sees. Tensors of inference mode have none."""
    return None if tensor.is_inference() else tensor._version
