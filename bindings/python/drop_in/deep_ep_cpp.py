# SPDX-License-Identifier: Apache-2.0
"""Where DeepEP's native part lies; some programs import these from it."""
from deep_ep.config import Config
from deep_ep.events import EventHandle

__all__ = ["Config", "EventHandle"]
