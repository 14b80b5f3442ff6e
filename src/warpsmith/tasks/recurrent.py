"""RNN layers without data: their shapes and their operations, without walking through every time step.

PyTorch traces an LSTM on meta tensors step by step, ten milliseconds each. The outputs' shapes follow from the
arguments, and two matrix products per layer and direction are the same arithmetic to a FLOP counter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LAYERS = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def without_steps(func: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """What an RNN call of `torch.nn` returns, for tensors that hold no data."""
    packed = isinstance(args[3], list | tuple)  # (data, batch_sizes, hx, params, ...)
    hidden, weights, has_bias, _, _, _, bidirectional = args[2:9] if packed else args[1:8]
    first = hidden[0] if isinstance(hidden, list | tuple) else hidden
    directions = 2 if bidirectional else 1
    data: Tensor = args[0]
    flat = data.reshape(-1, data.shape[-1])
    per_layer = (4 if has_bias else 2) + (first.shape[-1] != _rows(func, weights))
    for start in range(0, len(weights), per_layer * directions):
        sides: list[Tensor] = []
        for side in range(directions):
            own = weights[start + side * per_layer :]
            state = flat.new_empty((flat.shape[0], own[1].shape[1]))
            torch.mm(flat, own[0].t()), torch.mm(state, own[1].t())
            sides.append(state)
        flat = torch.cat(sides, dim=-1)
    output = flat.reshape(*data.shape[:-1], directions * first.shape[-1])
    states = hidden if isinstance(hidden, list | tuple) else (hidden,)
    return (output, *(torch.empty_like(state) for state in states))


def _rows(func: Any, weights: Any) -> int:
    """The size of the cell, which differs from that of the hidden state when an LSTM projects it."""
    gates = {torch.lstm: 4, torch.gru: 3}.get(func, 1)
    return int(weights[0].shape[0]) // gates
