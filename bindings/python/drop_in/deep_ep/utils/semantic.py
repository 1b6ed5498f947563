# SPDX-License-Identifier: Apache-2.0
"""Small helpers."""
from __future__ import annotations

import functools
import weakref
from typing import Any, Callable


def value_or(value: Any, default: Any) -> Any:
    """`default` for None."""
    return default if value is None else value


def weak_lru(maxsize: int | None = 128, typed: bool = False) -> Callable:
    """functools.lru_cache for methods: the cache does not keep the object alive."""
    def decorate(method: Callable) -> Callable:
        @functools.lru_cache(maxsize, typed)
        def cached(owner: weakref.ref, *args: Any, **kwargs: Any) -> Any:
            return method(owner(), *args, **kwargs)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return cached(weakref.ref(self), *args, **kwargs)
        return call
    return decorate
