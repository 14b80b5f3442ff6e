"""A Python candidate as something to call: imported, constructed, bound to tensors of the judge's.

Runs in the candidate's own processes (its host, the forge) and nowhere else: from `load` on, nothing that happens
there can be trusted. Parameters of a module become views of the judge's buffers; its buffers, which layers such as
BatchNorm write to, become private copies that are renewed before a call.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from warpsmith.core.contract import PythonCall
from warpsmith.evaluate.hosts.pyfaults import Fault

NAME = "candidate"
"""The name under which a candidate is imported."""


@dataclass(frozen=True)
class Given:
    """One tensor of a set."""

    name: str
    role: str  # "input", "state" or "output"
    origin: str  # its name inside a module; "" where it has none
    tensor: Tensor


@dataclass(frozen=True)
class Bound:
    """A candidate with its arguments in place."""

    call: Callable[[], object]
    renew: Callable[[], None]  # brings private copies up to date; called before the clock starts
    checked: Callable[[], object]  # the call where nothing is timed: by one module for all sets, if it can be


def load(path: Path) -> ModuleType:
    """Import the candidate's file."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise Fault("import", f"{path.name} cannot be imported: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # decorators and pickles look a class up by its module
    spec.loader.exec_module(module)
    return module


class Callee:
    """A loaded candidate, to be bound to one set of tensors after the other."""

    def __init__(self, module: ModuleType, call: PythonCall, device: torch.device) -> None:
        self._call = call
        self._device = device
        found = getattr(module, call.name, None)
        if not callable(found):
            raise Fault("import", f"the file defines no {call.name} that can be called.")
        self._target: Callable[..., object] = found
        self._model = self._construct() if call.form == "module" else None

    def _construct(self) -> nn.Module:
        args, kwargs = filled(json.loads(self._call.init), {})
        made = self._target(*args, **kwargs)
        if not isinstance(made, nn.Module):
            raise Fault("import", f"{self._call.name} is no torch.nn.Module: derive it from one.")
        _silence_dropout(made)
        return made.to(self._device)

    def bind(self, given: Sequence[Given], numbers: Mapping[str, float | int | bool]) -> Bound:
        """The call on these tensors."""
        values: dict[str, object] = {**{each.name: each.tensor for each in given}, **numbers}
        args = filled(json.loads(self._call.arguments), values)
        kwargs = filled(json.loads(self._call.keywords), values)
        if self._model is None:
            target = self._target
            return Bound(lambda: target(*args, **kwargs), lambda: None, lambda: target(*args, **kwargs))
        state = [each for each in given if each.role == "state"]
        model, copies = with_state(self._model, state, self._construct)
        # A module may keep a result's buffer, so that calls that are timed in one go need one each. But one that keeps
        # the addresses of its first arguments, in a graph say, is wrong in anybody's hands: here it shows.
        common = model if state else self._model

        def renew() -> None:
            for private, original in copies:
                private.copy_(original)

        return Bound(lambda: model(*args, **kwargs), renew, lambda: common(*args, **kwargs))


def filled(tree: Any, values: Mapping[str, object]) -> Any:
    """Arguments with values in place of names (see core.contract.PythonCall)."""
    if isinstance(tree, list):
        return [filled(part, values) for part in tree]
    if isinstance(tree, dict):
        if set(tree) == {"$"}:
            return values[tree["$"]]
        if set(tree) == {"()"}:
            return tuple(filled(part, values) for part in tree["()"])
        return {key: filled(part, values) for key, part in tree.items()}
    return tree


def _silence_dropout(model: nn.Module) -> None:
    """As in the reference: a random result cannot be checked."""
    for part in model.modules():
        if isinstance(part, _DropoutNd):
            part.eval()
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0


# --- the state of a module ---------------------------------------------------------------------------


def with_state(
    model: nn.Module, state: Sequence[Given], construct: Callable[[], nn.Module]
) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A copy of the module around these tensors, and (private copy, original) for each of its buffers."""
    try:
        return _copied(model, state)
    except (TypeError, RuntimeError, AttributeError, NotImplementedError):  # it holds something that cannot be copied
        return _rebuilt(construct(), state)


def _rebuilt(model: nn.Module, state: Sequence[Given]) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A module of its own, its tensors pointed to these."""
    buffers = {id(buffer) for buffer in model.buffers()}
    copies: list[tuple[Tensor, Tensor]] = []
    for own, each in _matched(model, state):
        private = each.tensor.clone() if id(own) in buffers else each.tensor
        own.data = private
        if id(own) in buffers:
            copies.append((private, each.tensor))
    return model, copies


def _copied(model: nn.Module, state: Sequence[Given]) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    buffers = {id(buffer) for buffer in model.buffers()}
    memo: dict[int, object] = {id(kept): kept for kept in _shared(model)}
    copies: list[tuple[Tensor, Tensor]] = []
    for own, each in _matched(model, state):
        if id(own) in buffers:
            private = each.tensor.clone()
            copies.append((private, each.tensor))
            memo[id(own)] = private
        elif isinstance(own, nn.Parameter):
            memo[id(own)] = nn.Parameter(each.tensor, requires_grad=False)
        else:
            memo[id(own)] = each.tensor
    return copy.deepcopy(model, memo), copies


def _shared(model: nn.Module) -> Iterator[object]:
    """What a copy of the module shares with the original, because it cannot be copied: extensions, above all."""
    for part in model.modules():
        for value in vars(part).values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, ModuleType) or type(each).__module__.startswith(("pybind11", "triton")):
                    yield each


def _matched(model: nn.Module, state: Sequence[Given]) -> list[tuple[Tensor, Given]]:
    """The module's own tensor for each of the task's: by name, and what is left by order and shape."""
    found: list[tuple[Tensor, Given]] = []
    missing: list[Given] = []
    for each in state:
        own = _at(model, (each.origin or each.name).split("."))
        if own is not None and own.shape == each.tensor.shape:
            found.append((own, each))
        else:
            missing.append(each)
    taken = {id(own) for own, _ in found}
    left = {name: own for name, own in model.named_parameters() if id(own) not in taken}
    if not missing or not left:
        return found  # a module may do without a part of the state
    wanted = [each for each in missing if each.tensor.is_floating_point()]
    if [tuple(own.shape) for own in left.values()] != [tuple(each.tensor.shape) for each in wanted]:
        name, own = next(iter(left.items()))
        names = ", ".join(f"{each.origin or each.name} {list(each.tensor.shape)}" for each in missing[:6])
        raise Fault(
            "import",
            f"the task has no values for the parameter {name} {list(own.shape)}: name parameters as the task's Model "
            f"does, e.g. {names}.",
        )
    return found + list(zip(left.values(), wanted, strict=True))


def _at(value: object, path: Sequence[str]) -> Tensor | None:
    """The tensor at a dotted path inside a module."""
    for key in path:
        try:
            if isinstance(value, list | tuple):
                value = value[int(key)]
            elif isinstance(value, Mapping):
                value = value[key]
            else:
                value = getattr(value, key)
        except (AttributeError, LookupError, ValueError):
            return None
    return value if isinstance(value, Tensor) else None
