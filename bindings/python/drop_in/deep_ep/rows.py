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
        if isinstance(x, torch.Tensor):
            return Rows(x)
        if not isinstance(x, (tuple, list)):
            raise TypeError(f"x is a {type(x).__name__}, expected a tensor or (x, scales)")
        if len(x) != 2:
            raise NotImplementedError(f"x has {len(x)} parts: NVFP4 rows with a global scale are not supported, pass x or "
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
        return Rows(self.tokens.new_empty((count, self.hidden)), self._scales_for(count, columns))

    def _scales_for(self, count: int, columns: bool) -> torch.Tensor | None:
        if self.scales is None:
            return None
        width = self.scales.shape[-1]
        if not columns:
            return self.scales.new_empty((count, width))
        step = 16 // self.scales.element_size()
        return self.scales.new_empty((width, -(-count // step) * step)).t()[:count]

    def with_words(self, words: torch.Tensor) -> Rows:
        """The same rows as bytes, whose last scales are the words [T, n] int32: a dispatch takes them along."""
        tokens = self.tokens.view(torch.uint8) if self.scales is None else self.tokens
        scales = words if self.scales is None else torch.cat([self.scales, words.view(self.scales.dtype)], 1)
        return Rows(tokens, scales)

    def words(self, plain: Rows) -> torch.Tensor:
        """What with_words() of rows such as `plain` added: int32 by bits, of the scales' type."""
        return self.scales[:, 0 if plain.scales is None else plain.scales.shape[1]:]

    def like(self, plain: Rows, columns: bool) -> Rows:
        """The rows as those of which with_words() was called. Their scales are new: they are to be copied."""
        return Rows(self.tokens.view(plain.tokens.dtype), plain._scales_for(len(self.tokens), columns))

    def result(self) -> Any:
        """As it was given: x, or (x, scales)."""
        return self.tokens if self.scales is None else tuple(self)

    def view(self) -> Any:
        """The tokens as the library takes them: bytes that have scales are fp8."""
        return fp8_view(self.tokens) if self.scales is not None else self.tokens


def fp8_view(tokens: torch.Tensor) -> Any:
    return ucclep.tensor(tokens, "float8_e4m3fn") if tokens.dtype == torch.uint8 else tokens
