# SPDX-License-Identifier: Apache-2.0
"""Where DeepEP 1 has its native part; some programs import these from it."""
from deep_ep._C import *  # noqa: F403
from deep_ep._C import __all__  # noqa: F401
