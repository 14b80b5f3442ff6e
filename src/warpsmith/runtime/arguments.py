"""From the arguments of the reference to the kernel's tensors, and from the kernel's outputs to the reference's result.

Plain loops over plain tuples, because `torch.compile` traces this code.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from warpsmith.model.errors import TaskError
from warpsmith.model.task import Task, TensorRole
from warpsmith.tasks.program import Program

MISSING = inspect.Parameter.empty


@dataclass(frozen=True)
class TensorIndex:
    """A placeholder for one of the kernel's input or output tensors."""

    index: int


@dataclass(frozen=True)
class ReferenceParameter:
    """One parameter of the reference."""

    name: str
    expected: object  # a Slot, a value it must have, or a list or tuple of these
    default: object  # MISSING if it has none


@dataclass(frozen=True)
class ReferenceCall:
    """How the reference is called, and how its result is built."""

    function: Callable[..., object]
    parameters: tuple[ReferenceParameter, ...]
    keyword_only: int  # number of keyword-only parameters, which are the last ones
    inputs: int  # number of tensors in the call; the state of a module follows them
    result: object  # what it returns, with a Slot for each tensor
    unsupported: str  # why no kernel can replace it; "" if one can

    @property
    def plain(self) -> bool:
        """True if its parameters are exactly the kernel's tensors, in order."""
        return not self.keyword_only and all(p.expected == TensorIndex(i) for i, p in enumerate(self.parameters))

    def tensors(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Tensor, ...] | None:
        """The kernel's tensors in a call; None if the call differs from the task's in anything but tensors."""
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
            if not _match(parameter.expected, value, found):
                return None
        return tuple(found) if used == len(kwargs) else None


def _match(expected: object, value: object, found: list[Any]) -> bool:
    """True if a value is the expected one; tensors are stored in `found`."""
    if isinstance(expected, TensorIndex):
        if not isinstance(value, Tensor):
            return False
        found[expected.index] = value
        return True
    if isinstance(expected, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(expected):
            return False
        for own, part in zip(expected, value):  # noqa: B905, SIM110  (so that torch.compile follows it)
            if not _match(own, part, found):
                return False
        return True
    if value is MISSING or isinstance(value, Tensor):
        return False
    return bool(type(value) is type(expected) and value == expected)


def inspect_reference(program: Program) -> ReferenceCall:
    """Find out how a task's reference is called, by running it once on tensors without data."""
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
        taken |= _tensor_indices(parameter.expected)
    template, extras = _template(result, [])
    unsupported = ""
    if not task.inputs:
        unsupported = "the reference takes no tensors"
    elif len(taken) < count:
        unsupported = "the reference draws random numbers, which the kernel takes as inputs"
    elif writes:
        unsupported = "the reference writes to its arguments, which the kernel does not"
    elif extras:
        unsupported = "the reference returns something that is no tensor"
    return ReferenceCall(function, parameters, keyword_only, count, template, unsupported)


def _parameters(task: Task, function: Callable[..., object]) -> tuple[tuple[ReferenceParameter, ...], int]:
    target = function.forward if isinstance(function, nn.Module) else function
    signature = list(inspect.signature(target).parameters.values())
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature) and not task.call:
        raise TaskError(f"task {task.name!r}: a reference with * or ** parameters cannot be replaced.")
    named = [p for p in signature if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    values: dict[str, object] = {
        spec.name: TensorIndex(index) for index, spec in enumerate(s for s in task.inputs if s.role is TensorRole.INPUT)
    }
    values |= {scalar.name: scalar.value for scalar in task.scalars}
    if not task.call:  # a native task names its parameters
        expected = {p.name: values.get(p.name, p.default) for p in named}
    else:
        args, kwargs = json.loads(task.call)
        expected = {p.name: p.default for p in named}
        expected |= {p.name: _pattern(tree, values) for p, tree in zip(named, args, strict=False)}
        expected |= {name: _pattern(tree, values) for name, tree in kwargs.items() if name in expected}
    parameters = tuple(ReferenceParameter(p.name, expected[p.name], p.default) for p in named)
    return parameters, sum(1 for p in named if p.kind is p.KEYWORD_ONLY)


def _pattern(tree: object, values: Mapping[str, object]) -> object:
    """The expected value of a parameter, from an argument of a task's call (see `model.contract.PythonCall`)."""
    if isinstance(tree, list):
        return [_pattern(part, values) for part in tree]
    if isinstance(tree, dict):
        if set(tree) == {"$"}:
            return values[str(tree["$"])]
        if set(tree) == {"()"}:
            return tuple(_pattern(part, values) for part in tree["()"])
        return MISSING  # a dict of tensors, or a value that JSON does not have: no argument is equal to it
    return tree


def _tensor_indices(expected: object) -> set[int]:
    if isinstance(expected, TensorIndex):
        return {expected.index}
    return (
        {index for part in expected for index in _tensor_indices(part)} if isinstance(expected, list | tuple) else set()
    )


# --- results -----------------------------------------------------------------------------------------


def _template(result: object, seen: list[Tensor]) -> tuple[object, bool]:
    """A result with a Slot for each tensor, in the order in which a task lists its outputs; and whether it holds
    anything else."""
    if isinstance(result, Tensor):
        seen.append(result)
        return TensorIndex(len(seen) - 1), False
    if result is None:
        return None, False
    if isinstance(result, Mapping):
        parts = {key: _template(value, seen) for key, value in result.items()}
        return {key: part for key, (part, _) in parts.items()}, any(extra for _, extra in parts.values())
    if isinstance(result, list | tuple):
        made = [_template(value, seen) for value in result]
        plain = [part for part, _ in made]
        return _same_type(result, plain), any(extra for _, extra in made)
    if is_dataclass(result) and not isinstance(result, type):
        parts = {f.name: _template(getattr(result, f.name), seen) for f in fields(result)}
        return type(result)(**{k: part for k, (part, _) in parts.items()}), any(extra for _, extra in parts.values())
    return None, True


def rebuild_result(template: Any, outputs: Sequence[Tensor]) -> Any:
    """The result of the reference, with these outputs as its tensors."""
    if isinstance(template, TensorIndex):
        return outputs[template.index]
    if isinstance(template, dict):
        return {key: rebuild_result(part, outputs) for key, part in template.items()}
    if isinstance(template, list | tuple):
        return _same_type(template, [rebuild_result(part, outputs) for part in template])
    if is_dataclass(template) and not isinstance(template, type):
        return type(template)(**{f.name: rebuild_result(getattr(template, f.name), outputs) for f in fields(template)})
    return template


def _same_type(sequence: Any, parts: Sequence[object]) -> Any:
    return type(sequence)(*parts) if hasattr(sequence, "_fields") else type(sequence)(parts)
