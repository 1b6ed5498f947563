# SPDX-License-Identifier: Apache-2.0
"""megatron.core.transformer.moe.fused_a2a: both of its backends, with gradients."""
import torch
from deep_ep.hybrid_ep_buffer import indices_to_map
from layer import EXPERTS, TOKENS, Layer
from megatron.core.transformer.moe import fused_a2a

layer = Layer(hidden=64)
for asynchronous in (False, True):
    x, weights = layer.leaves()
    rows, ids, gates, _, handle = fused_a2a.fused_dispatch(x, layer.ids, weights, EXPERTS, layer.group, async_finish=asynchronous,
                                                           allocate_on_comm_stream=asynchronous)
    out = sum((gates * (ids == e)).sum(1, keepdim=True) * layer.expert(rows, e) for e in range(layer.local))
    y, _ = fused_a2a.fused_combine(out, layer.group, handle, async_finish=asynchronous, allocate_on_comm_stream=asynchronous)
    layer.check_training(f"deepep, asynchronous={asynchronous}", y, x, weights)

for pad, most in ((None, None), (16, None), (16, 640)):
    x, weights = layer.leaves()
    routing_map, probs = indices_to_map(layer.ids, layer.weights, TOKENS, EXPERTS)
    probs.requires_grad_()
    rows, gates, _, counts, handle = fused_a2a.hybrid_ep_dispatch(x, routing_map, probs, layer.group, layer.local, 16, 16,
                                                                  num_permuted_tokens=most, pad_multiple=pad)
    out = layer.experts(rows, counts.tolist()) * torch.nan_to_num(gates)[:, None]
    y = fused_a2a.hybrid_ep_combine(out, handle, most, pad)
    layer.check_training(f"hybridep, pad_multiple={pad}, num_permuted_tokens={most}", y, x,
                         lambda probs=probs: probs.grad.gather(1, layer.ids))
layer.end()
