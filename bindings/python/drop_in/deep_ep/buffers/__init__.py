# SPDX-License-Identifier: Apache-2.0
"""The buffers, at the module paths where DeepEP has them."""
