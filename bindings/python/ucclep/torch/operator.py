# SPDX-License-Identifier: Apache-2.0
"""One definition of an operation for every torch: a custom op where torch has them (2.4), an autograd function elsewhere."""
from __future__ import annotations

from typing import Any, Callable

import torch

#: Whether torch.compile takes the operations into its graphs.
CUSTOM_OPS = hasattr(torch, "library") and hasattr(torch.library, "custom_op")


def operator(schema: str, fake: Callable, setup_context: Callable | None = None, backward: Callable | None = None) -> Callable:
    """Decorates the function that does the work. `fake` makes outputs of the same shapes, without data."""
    def make(run: Callable) -> Callable:
        if CUSTOM_OPS:
            op = torch.library.custom_op(f"ucclep::{run.__name__}", run, mutates_args=(), schema=schema)
            op.register_fake(fake)
            if backward is not None:
                op.register_autograd(backward, setup_context=setup_context)
            return op
        return run if backward is None else _autograd_function(run, setup_context, backward)
    return make


def _autograd_function(run: Callable, setup_context: Callable, differentiate: Callable) -> Callable:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = run(*inputs)
            setup_context(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return differentiate(ctx, *gradients)

    return Function.apply
