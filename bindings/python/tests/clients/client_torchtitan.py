# SPDX-License-Identifier: Apache-2.0
"""torchtitan.distributed.deepep: both of its modules. Its operators are registered for CUDA, here for the CPU, too."""
import logging

import torch
from layer import EXPERTS, TOKENS, TOP_K, Layer
from stubs import modules

layer = Layer(hidden=64)
hybridep, deepep = modules("torchtitan", ["torchtitan.distributed.deepep.hybridep", "torchtitan.distributed.deepep.deepep"],
                           logger=logging.getLogger("client"))
for operator in (hybridep._dispatch_impl, hybridep._combine_impl, hybridep._dispatch_bwd_impl, hybridep._combine_bwd_impl):
    operator.register_kernel("cpu")(operator._init_fn)
deepep._lib.impl("dispatch", deepep._dispatch_op_impl, "CPU")
deepep._lib.impl("combine", deepep._combine_op_impl, "CPU")

hybridep.get_buffer(layer.group, layer.hidden, TOKENS, layer.local)
for capacity in (None, 1.0):
    for pad in (None, 16):
        x, weights = layer.leaves()
        rows, counts, state = hybridep.dispatch_tokens(x, layer.ids, weights, layer.local, EXPERTS, layer.group,
                                                       non_blocking_expert_capacity_factor=capacity, pad_multiple=pad)
        y = hybridep.combine_tokens(layer.experts(rows, counts.tolist()), state, pad_multiple=pad)
        layer.check_training(f"hybridep, capacity={capacity}, pad_multiple={pad}", y, x, weights)

deepep.get_buffer(layer.group, hidden=2 * layer.hidden, num_max_tokens_per_rank=TOKENS, num_topk=TOP_K)


def run(x, weights, **how):
    rows, counts, state = deepep.dispatch_tokens(x, layer.ids, weights, layer.local, EXPERTS, num_tokens_per_rank=TOKENS, **how)
    y = deepep.combine_tokens(layer.experts(rows, counts.tolist()), state)
    deepep.sync_combine()
    return y


x, weights = layer.leaves()
trained = run(x, weights)
with torch.no_grad():
    torch.testing.assert_close(run(layer.x, layer.weights, cudagraphable=True), trained.detach())
layer.check_training("deepep", trained, x, weights)
layer.end()
