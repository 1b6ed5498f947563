# SPDX-License-Identifier: Apache-2.0
"""BucketBuffer, BucketSession, where DeepEP has it."""
from .others import BucketBuffer, BucketSession

__all__ = ["BucketBuffer", "BucketSession"]
