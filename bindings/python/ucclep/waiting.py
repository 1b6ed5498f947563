# SPDX-License-Identifier: Apache-2.0
"""Calls that may take long, made in such a way that signals come through.

Python runs signal handlers on the main thread, between its own instructions. So another thread makes the call when the
main one would wait in it.
"""
from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Any, Callable

from .library import check

_idle: list[SimpleQueue] = []  # of threads that wait for a call
os.register_at_fork(after_in_child=_idle.clear)  # a child has none of them


def _serve(calls: SimpleQueue) -> None:
    while True:
        calls.get()(calls)


def _worker() -> SimpleQueue | None:
    """Where an idle thread takes its calls from. None: this is not the main thread, or the interpreter ends."""
    if threading.current_thread() is not threading.main_thread():
        return None
    if _idle:
        return _idle.pop()
    calls: SimpleQueue = SimpleQueue()
    try:
        threading.Thread(target=_serve, args=(calls,), name="ucclep", daemon=True).start()
    except RuntimeError:
        return None
    return calls


def wait(function: Callable[..., int], *arguments: Any, stop: Callable[[], None] | None = None,
         undo: Callable[[], None] | None = None) -> None:
    """check(function(*arguments)), which a signal's handler may interrupt by an exception, as Ctrl-C does.

    stop() makes the call return early then. Without it the call goes on in the background, and if it succeeds after
    all, undo() follows.
    """
    worker = _worker()
    if worker is None:
        return check(function(*arguments))
    failures: list[BaseException] = []
    abandoned = threading.Event()
    done = threading.Lock()
    done.acquire()

    def call(calls: SimpleQueue) -> None:
        try:
            check(function(*arguments))  # here, as an error's text is kept for each thread
            if abandoned.is_set() and undo:
                undo()
        except BaseException as failure:
            failures.append(failure)
        _idle.append(calls)
        done.release()

    try:
        worker.put(call)
        done.acquire()
    except BaseException:
        if stop:
            stop()
            done.acquire()
        else:
            abandoned.set()
        raise
    if failures:
        raise failures.pop()
