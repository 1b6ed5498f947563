# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens: plain, or fp8 with scales."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import ucclep

#: torch 1 has no type for fp8: its bytes are uint8 there.
FP8 = getattr(torch, "float8_e4m3fn", torch.uint8)


class Rows(NamedTuple):
    tokens: torch.Tensor
    scales: Any = None  # a tensor, or None

    @staticmethod
    def of(x: Any) -> Rows:
        """x, or (x, scales)."""
        if not isinstance(x, tuple):
            return Rows(x)
        if len(x) != 2:
            raise NotImplementedError(f"x has {len(x)} parts: NVFP4 rows with a global scale are not covered, give x or "
                                      "(x, scales)")
        return Rows(*x)

    @property
    def hidden(self) -> int:
        return self.tokens.shape[-1]

    @property
    def bytes_per_row(self) -> int:
        """The larger of a row with its scales and of a bf16 row, which comes back; a multiple of 16."""
        dispatched = self.hidden * self.tokens.element_size()
        if self.scales is not None:
            dispatched += self.scales.shape[-1] * self.scales.element_size()
        return -(-max(dispatched, 2 * self.hidden) // 16) * 16

    def empty_like(self, count: int, columns: bool) -> Rows:
        """Room for `count` such rows. With `columns` scales are column-major, and columns begin at multiples of 16 bytes."""
        scales = None
        if self.scales is not None and columns:
            step = 16 // self.scales.element_size()
            scales = self.scales.new_empty((self.scales.shape[-1], -(-count // step) * step)).t()[:count]
        elif self.scales is not None:
            scales = self.scales.new_empty((count, self.scales.shape[-1]))
        return Rows(self.tokens.new_empty((count, self.hidden)), scales)

    def with_words(self, words: torch.Tensor) -> Rows:
        """The same rows as bytes, whose last scales are the words [T, n] int32: a dispatch takes them along."""
        tokens = self.tokens.view(torch.uint8) if self.scales is None else self.tokens
        scales = words if self.scales is None else torch.cat([self.scales, words.view(self.scales.dtype)], 1)
        return Rows(tokens, scales)

    def words(self, plain: Rows) -> torch.Tensor:
        """[N, n] int32: what with_words() of rows such as `plain` added."""
        width = 0 if plain.scales is None else plain.scales.shape[1]
        return self.scales[:, width:].contiguous().view(torch.int32)

    def like(self, plain: Rows) -> Rows:
        """The rows themselves, as those of which with_words() was called."""
        if plain.scales is None:
            return Rows(self.tokens.view(plain.tokens.dtype))
        return Rows(self.tokens, self.scales[:, :plain.scales.shape[1]])

    def result(self) -> Any:
        """As it was given: x, or (x, scales)."""
        return self.tokens if self.scales is None else tuple(self)

    def view(self) -> Any:
        """The tokens as the library takes them: bytes that have scales are fp8."""
        return fp8_view(self.tokens) if self.scales is not None else self.tokens


def fp8_view(tokens: torch.Tensor) -> Any:
    return ucclep.tensor(tokens, "float8_e4m3fn") if tokens.dtype == torch.uint8 else tokens
