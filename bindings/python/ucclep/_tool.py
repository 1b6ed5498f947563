# SPDX-License-Identifier: Apache-2.0
"""What the programs `python -m ucclep.bench` and `python -m ucclep.info` share: failures are one line and exit code 1."""
from __future__ import annotations

import os
import sys
from typing import Callable

from .errors import Error


def run(name: str, main: Callable[[], int]) -> None:
    """Ends the process with what main() returns. Call it before anything opens a file."""
    reason = ""
    code = 1
    try:
        if sys.stdout is None:  # whatever is opened next would be printed to
            raise OSError("standard output is closed")
        code = main()
        sys.stdout.flush()
    except (Error, OSError, ImportError) as error:
        reason = error.message if isinstance(error, Error) else str(error)
        if isinstance(error, OSError) and error.errno and not error.filename:
            reason = f"standard output cannot be written: {error.strerror}"
        code = 1
    except KeyboardInterrupt:
        reason, code = "interrupted", 130
    if reason:
        try:
            print(f"{name}: {reason}", file=sys.stderr)
        except OSError:
            pass
        os._exit(code)  # what could not be printed is not tried again, and nobody waits for other ranks
    sys.exit(code)
