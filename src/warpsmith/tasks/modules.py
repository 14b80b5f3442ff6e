"""Finds all tensors inside a module, and copies a module with other tensors in their place.

A module's parameters, buffers and plain tensor attributes are inputs of the task. To run a module on given values it
is copied with these values in place of its tensors (`copy.deepcopy` with a memo), so that several copies can be bound
at the same time and none holds memory of the original.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

# Attributes of nn.Module itself, and the list in which an RNN has its parameters a second time.
_INTERNAL = frozenset(vars(nn.Module())) | {"_flat_weights", "_flat_weight_refs"}


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a module."""

    origin: str  # its dotted name, e.g. "layer1.0.conv.weight"
    tensor: Tensor


def state_of(module: nn.Module, home: str) -> tuple[StateTensor, ...]:
    """Every tensor of a module, each once; objects of classes of the Python module `home` are searched, too."""
    found: dict[int, StateTensor] = {}
    for origin, tensor in _walk(module, "", home, set()):
        found.setdefault(id(tensor), StateTensor(origin, tensor))
    return tuple(found.values())


def _walk(value: object, path: str, home: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
        return
    children: Mapping[str, object]
    if isinstance(value, nn.Module):
        attributes = {k: v for k, v in vars(value).items() if k not in _INTERNAL}
        children = {**value._parameters, **value._buffers, **attributes, **value._modules}
    elif isinstance(value, Mapping):
        children = {str(key): child for key, child in value.items()}
    elif isinstance(value, list | tuple):
        children = {str(index): child for index, child in enumerate(value)}
    elif type(value).__module__ == home:
        children = getattr(value, "__dict__", {})
    else:
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for key, child in children.items():
        yield from _walk(child, f"{path}.{key}" if path else key, home, seen)


def silence_dropout(module: nn.Module) -> bool:
    """Switch off every dropout that has an effect, and nothing else; returns whether there was one."""
    silenced = False
    for part in module.modules():
        if isinstance(part, _DropoutNd) and part.training and part.p > 0:
            part.eval()
            silenced = True
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention) and part.training and part.dropout > 0:
            part.dropout = 0.0  # eval() would also change the implementation that runs
            silenced = True
    return silenced


def with_state(template: nn.Module, state: Sequence[StateTensor], values: Sequence[Tensor]) -> nn.Module:
    """A copy of the module with these values.

    cuDNN needs the weights of an RNN in one block, so on CUDA they are copied once here; otherwise every call would
    copy them and the baseline would be slower than PyTorch is.
    """
    recurrent = {id(w) for part in template.modules() if isinstance(part, nn.RNNBase) for w in part.parameters()}
    memo: dict[int, object] = {}
    for own, value in zip(state, values, strict=True):
        # flatten_parameters changes the tensor objects, which must not be the caller's.
        memo[id(own.tensor)] = value.detach() if id(own.tensor) in recurrent else value
    made = copy.deepcopy(template, memo)
    for part in made.modules():
        if isinstance(part, nn.RNNBase) and any(w is not None and w.is_cuda for w in part._flat_weights):
            part.flatten_parameters()
    return made


class Snapshot:
    """The attributes of a module and its parts, to find or undo the changes of a call."""

    def __init__(self, module: nn.Module, only: Sequence[str] | None = None) -> None:
        parts = dict(module.named_modules())
        names = parts if only is None else only
        self._saved = [
            (name, parts[name], dict(vars(parts[name])), dict(parts[name]._parameters), dict(parts[name]._buffers))
            for name in names
        ]

    def changed(self) -> tuple[str, ...]:
        """The names of parts whose attributes, parameters or buffers have changed."""
        return tuple(
            name
            for name, part, attributes, parameters, buffers in self._saved
            if not (
                _same(attributes, vars(part)) and _same(parameters, part._parameters) and _same(buffers, part._buffers)
            )
        )

    def restore(self) -> None:
        """Restore every saved attribute."""
        for _, part, attributes, parameters, buffers in self._saved:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            part._parameters.clear()
            part._parameters.update(parameters)
            part._buffers.clear()
            part._buffers.update(buffers)


def _same(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    return before.keys() == after.keys() and all(after[key] is value for key, value in before.items())


def norm_statistics(module: nn.Module, state: Sequence[StateTensor]) -> frozenset[int]:
    """The running statistics that norm layers in training mode update and do not use, by index in `state`."""
    ids = {
        id(buffer)
        for part in module.modules()
        if isinstance(part, _NormBase) and part.training
        for buffer in part._buffers.values()
        if buffer is not None
    }
    return frozenset(index for index, own in enumerate(state) if id(own.tensor) in ids)


def norm_weights(module: nn.Module, state: Sequence[StateTensor]) -> frozenset[int]:
    """The weights of PyTorch's norm layers, by index in `state`: they may be of any sign."""
    kinds = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    ids = {id(part.weight) for part in module.modules() if isinstance(part, kinds)}
    return frozenset(index for index, own in enumerate(state) if id(own.tensor) in ids)


def restorer(snapshot: Snapshot | None, pairs: Sequence[tuple[Tensor, Tensor]]) -> Callable[[], None] | None:
    """A function that undoes the changes of a call: attributes, and written tensors (copy, original); None if none."""
    if snapshot is None and not pairs:
        return None

    def restore() -> None:
        if snapshot is not None:
            snapshot.restore()
        for scratch, original in pairs:
            scratch.copy_(original)

    return restore
