# SPDX-License-Identifier: Apache-2.0
"""Config: DeepEP's tuning numbers. libucclep takes the number of SMs and plans the rest itself."""
from __future__ import annotations

#: Tokens of a rank and call for which the size hints make room.
HINTED_TOKENS = 8192


class Config:
    def __init__(self, num_sms: int = 20, num_max_nvl_chunked_send_tokens: int = 6,
                 num_max_nvl_chunked_recv_tokens: int = 256, num_max_rdma_chunked_send_tokens: int = 6,
                 num_max_rdma_chunked_recv_tokens: int = 128):
        self.num_sms = num_sms
        self.num_max_nvl_chunked_send_tokens = num_max_nvl_chunked_send_tokens
        self.num_max_nvl_chunked_recv_tokens = num_max_nvl_chunked_recv_tokens
        self.num_max_rdma_chunked_send_tokens = num_max_rdma_chunked_send_tokens
        self.num_max_rdma_chunked_recv_tokens = num_max_rdma_chunked_recv_tokens

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """num_nvl_bytes for calls of up to 8192 tokens a rank."""
        return num_ranks * hidden_bytes * HINTED_TOKENS

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: num_nvl_bytes says for how many tokens there is room, whatever lies between the ranks."""
        return 0
