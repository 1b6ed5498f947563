# SPDX-License-Identifier: Apache-2.0
"""A failed call raises the exception of its code; the text is the library's error message."""
from __future__ import annotations


class Error(RuntimeError):
    """What every failed call raises: `code` is the ucclEpResult_t, `message` what ucclEpGetLastError() said."""

    def __init__(self, code: int, message: str):
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message

    @property
    def sentence(self) -> str:
        """The old name of `message`."""
        return self.message


class UnhandledDeviceError(Error):
    """A call of the GPU driver failed."""


class SystemCallError(Error):
    """A call of the operating system failed."""


class InternalError(Error):
    """A bug in libucclep."""


class InvalidArgument(Error, ValueError):
    """A value that is wrong, or differs between ranks where it must not."""


class InvalidUsage(Error):
    """A call that is not allowed now."""


class RemoteError(Error):
    """A peer failed, died, or has masked this rank."""


class Timeout(Error, TimeoutError):
    """A peer did not come within timeout_ms."""


class Aborted(Error):
    """Communicator.abort() was called."""


class NotSupported(Error, NotImplementedError):
    """Not with this device, layout or version; the message says what to use instead."""


class OutOfMemory(Error, MemoryError):
    """No memory left."""


class Overflow(Error):
    """More rows arrived than the receiver has room for."""


BY_CODE = {1: UnhandledDeviceError, 2: SystemCallError, 3: InternalError, 4: InvalidArgument, 5: InvalidUsage,
           6: RemoteError, 8: Timeout, 9: Aborted, 10: NotSupported, 11: OutOfMemory, 12: Overflow}


def error(code: int, message: str) -> Error:
    return BY_CODE.get(code, Error)(code, message)
