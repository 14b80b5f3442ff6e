"""From a call as the reference takes it to the kernel's tensors, and from the kernel's outputs to what it returns.

Plain loops over plain tuples: `torch.compile` reads this code too, and must be able to follow it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from warpsmith.core.errors import TaskError
from warpsmith.core.task import Task, TensorRole
from warpsmith.tasks.program import Program

MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class Slot:
    """Stands for one of the kernel's input tensors, or of its outputs, by its place among them."""

    index: int


@dataclass(frozen=True)
class Parameter:
    """One parameter of the reference."""

    name: str
    wanted: object  # a Slot, a value it must have, or a list or tuple of these
    default: object  # MISSING where it has none


@dataclass(frozen=True)
class Reference:
    """The reference as it is called: its parameters, and how its result is built."""

    function: Callable[..., object]
    parameters: tuple[Parameter, ...]
    keyword_only: int  # so many parameters, at the end, go by name alone
    inputs: int  # tensors that come in by the call; a module's state comes behind them
    result: object  # what it returns, with a Slot for each tensor
    objection: str  # why no kernel can stand in for it; "" where one can

    @property
    def plain(self) -> bool:
        """Whether it takes nothing but the kernel's tensors, in their order."""
        return not self.keyword_only and all(p.wanted == Slot(i) for i, p in enumerate(self.parameters))

    def tensors(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Tensor, ...] | None:
        """The kernel's tensors in a call; None where the call asks for something else than the task."""
        if len(args) > len(self.parameters) - self.keyword_only:
            return None
        found: list[Any] = [None] * self.inputs
        used = 0
        for place, parameter in enumerate(self.parameters):
            if place < len(args):
                value = args[place]
            elif parameter.name in kwargs:
                value = kwargs[parameter.name]
                used += 1
            else:
                value = parameter.default
            if not _take(parameter.wanted, value, found):
                return None
        return tuple(found) if used == len(kwargs) else None


def _take(wanted: object, value: object, found: list[Any]) -> bool:
    """Whether a value is what the task has in its place; tensors go to `found`."""
    if isinstance(wanted, Slot):
        if not isinstance(value, Tensor):
            return False
        found[wanted.index] = value
        return True
    if isinstance(wanted, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(wanted):
            return False
        for own, part in zip(wanted, value):  # noqa: B905, SIM110  (so that torch.compile follows it)
            if not _take(own, part, found):
                return False
        return True
    if value is MISSING or isinstance(value, Tensor):
        return False
    return bool(type(value) is type(wanted) and value == wanted)


def examine(program: Program) -> Reference:
    """Look at a task's reference by running it once on tensors without data."""
    seen: list[tuple[Callable[..., object], object, bool]] = []

    def keep(function: Callable[..., object]) -> Callable[..., object]:
        def kept(*args: object, **kwargs: object) -> object:
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            before = [tensor._version for tensor in given]
            result = function(*args, **kwargs)
            seen.append((function, result, before != [tensor._version for tensor in given]))
            return result

        return kept

    fake = program.fake_inputs(program.task.workloads[0])
    with fake.mode:
        program.bind(fake.tensors, wrap=keep)()
    function, result, writes = seen[0]
    task = program.task
    parameters, keyword_only = _parameters(task, function)
    count = sum(1 for spec in task.tensors if spec.role is TensorRole.INPUT)
    taken: set[int] = set()
    for parameter in parameters:
        taken |= _slots(parameter.wanted)
    template, extras = _template(result, [])
    objection = ""
    if not task.inputs:
        objection = "it takes no tensors"
    elif len(taken) < count:
        objection = "the reference draws random numbers, which a caller does not have"
    elif writes:
        objection = "the reference writes to its arguments, and the kernel does not"
    elif extras:
        objection = "the reference also returns something that is no tensor"
    return Reference(function, parameters, keyword_only, count, template, objection)


def _parameters(task: Task, function: Callable[..., object]) -> tuple[tuple[Parameter, ...], int]:
    target = function.forward if isinstance(function, nn.Module) else function
    signature = list(inspect.signature(target).parameters.values())
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature) and not task.call:
        raise TaskError(f"task {task.name!r}: a reference with * or ** parameters cannot be replaced.")
    named = [p for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    values: dict[str, object] = {
        spec.name: Slot(index) for index, spec in enumerate(s for s in task.inputs if s.role is TensorRole.INPUT)
    }
    values |= {scalar.name: scalar.value for scalar in task.scalars}
    if not task.call:  # a native task names its parameters
        wanted = {p.name: values.get(p.name, p.default) for p in named}
    else:
        args, kwargs = json.loads(task.call)
        wanted = {p.name: p.default for p in named}
        wanted |= {p.name: _pattern(tree, values) for p, tree in zip(named, args, strict=False)}
        wanted |= {name: _pattern(tree, values) for name, tree in kwargs.items() if name in wanted}
    parameters = tuple(Parameter(p.name, wanted[p.name], p.default) for p in named)
    return parameters, sum(1 for p in named if p.kind is p.KEYWORD_ONLY)


def _pattern(tree: object, values: Mapping[str, object]) -> object:
    """An argument of a task's call (see `core.contract.PythonCall`) as what a parameter is wanted to be."""
    if isinstance(tree, list):
        return [_pattern(part, values) for part in tree]
    if isinstance(tree, dict):
        if set(tree) == {"$"}:
            return values[str(tree["$"])]
        if set(tree) == {"()"}:
            return tuple(_pattern(part, values) for part in tree["()"])
        return MISSING  # a dict of tensors, or what JSON cannot say: nothing is equal to it
    return tree


def _slots(wanted: object) -> set[int]:
    if isinstance(wanted, Slot):
        return {wanted.index}
    return {index for part in wanted for index in _slots(part)} if isinstance(wanted, list | tuple) else set()


# --- results -----------------------------------------------------------------------------------------


def _template(result: object, seen: list[Tensor]) -> tuple[object, bool]:
    """A result with a Slot for each tensor, in the order in which a task lists its outputs; and whether it holds
    anything else."""
    if isinstance(result, Tensor):
        seen.append(result)
        return Slot(len(seen) - 1), False
    if result is None:
        return None, False
    if isinstance(result, Mapping):
        parts = {key: _template(value, seen) for key, value in result.items()}
        return {key: part for key, (part, _) in parts.items()}, any(extra for _, extra in parts.values())
    if isinstance(result, list | tuple):
        made = [_template(value, seen) for value in result]
        plain = [part for part, _ in made]
        return _like(result, plain), any(extra for _, extra in made)
    if is_dataclass(result) and not isinstance(result, type):
        parts = {f.name: _template(getattr(result, f.name), seen) for f in fields(result)}
        return type(result)(**{k: part for k, (part, _) in parts.items()}), any(extra for _, extra in parts.values())
    return None, True


def rebuilt(template: Any, outputs: Sequence[Tensor]) -> Any:
    """What the reference would have returned, around these outputs."""
    if isinstance(template, Slot):
        return outputs[template.index]
    if isinstance(template, dict):
        return {key: rebuilt(part, outputs) for key, part in template.items()}
    if isinstance(template, list | tuple):
        return _like(template, [rebuilt(part, outputs) for part in template])
    if is_dataclass(template) and not isinstance(template, type):
        return type(template)(**{f.name: rebuilt(getattr(template, f.name), outputs) for f in fields(template)})
    return template


def _like(sequence: Any, parts: Sequence[object]) -> Any:
    return type(sequence)(*parts) if hasattr(sequence, "_fields") else type(sequence)(parts)
