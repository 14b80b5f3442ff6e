"""The arguments of a KernelBench `forward`: what they are called, and how a call is put together from tensors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from warpsmith.core.errors import TaskError
from warpsmith.core.task import ScalarSpec
from warpsmith.tasks.faking import Setting
from warpsmith.tasks.names import as_identifier
from warpsmith.tasks.specs import scalar_kind
from warpsmith.tasks.usercode import TaskFile


@dataclass(frozen=True)
class Named:
    """Stands for a tensor or number of the task in the arguments of `forward`."""

    name: str


@dataclass(frozen=True)
class Call:
    """How `forward` is called: its arguments, with `Named` in place of what the task names."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    scalars: Mapping[str, ScalarSpec]

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[list[object], dict[str, object]]:
        """The arguments with these tensors in place."""
        values: dict[str, object] = {**tensors, **{name: spec.value for name, spec in self.scalars.items()}}
        return (
            [_filled(argument, values) for argument in self.args],
            {key: _filled(argument, values) for key, argument in self.kwargs.items()},
        )


class Naming:
    """Gives every tensor and number among the arguments of `forward` a name and a place in the setting."""

    def __init__(self, file: TaskFile, setting: Setting, cast: torch.dtype | None) -> None:
        self._setting = setting
        self._cast = cast
        parameters = inspect.signature(file.module.Model.forward).parameters.values()
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._positional = positional[1:]
        self._taken: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        self.scalars: dict[str, ScalarSpec] = {}
        self.strided: list[str] = []

    def arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments with names in place of values."""
        known = self._positional
        labels = [known[i] if i < len(known) else f"input{i}" for i in range(len(args))]
        return (
            tuple(self._named(label, value) for label, value in zip(labels, args, strict=True)),
            {key: self._named(key, value) for key, value in kwargs.items()},
        )

    def claim(self, text: str) -> str:
        """A name that nothing else has."""
        name = as_identifier(text, self._taken)
        self._taken.add(name)
        return name

    def adopted(self, tensor: Tensor) -> Tensor:
        """The tensor in this setting, cast, row-major and without history."""
        with torch.no_grad(), self._setting.mode:
            tensor = cast_to(self._setting.adopt(tensor.detach()), self._cast)
            return tensor.contiguous()

    def _named(self, label: str, value: object) -> object:
        if isinstance(value, Tensor):
            name = self.claim(label)
            if not value.is_contiguous():
                self.strided.append(name)
            self.tensors[name] = self.adopted(value)
            return Named(name)
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if isinstance(value, bool | int | float):
            name = self.claim(label)
            self.scalars[name] = ScalarSpec(name, scalar_kind(value), value)
            return Named(name)
        if isinstance(value, list | tuple):
            parts = [self._named(f"{label}_{index}", part) for index, part in enumerate(value)]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            return {key: self._named(f"{label}_{key}", part) for key, part in value.items()}
        return value  # None, strings and the like go to forward as they are


def as_json(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """A call as `Task.call` and `Task.init` hold it; what JSON cannot say becomes `{"?": its text}`."""
    return json.dumps([[_plain(value) for value in args], {key: _plain(value) for key, value in kwargs.items()}])


def _plain(value: object) -> object:
    if isinstance(value, Named):
        return {"$": value.name}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"()": [_plain(part) for part in value]}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(part) for key, part in value.items()}
    return {"?": f"a {type(value).__name__}"}


def split_call(given: Any) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and keyword arguments from the forms KernelBench files give them in."""
    if given is None:
        return (), {}
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, list | tuple):
        if len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    return (given,), {}


def _filled(argument: object, values: Mapping[str, object]) -> object:
    """An argument of forward with values in place of names."""
    if isinstance(argument, Named):
        return values[argument.name]
    if isinstance(argument, list):
        return [_filled(part, values) for part in argument]
    if isinstance(argument, tuple):
        return tuple(_filled(part, values) for part in argument)
    if isinstance(argument, dict):
        return {key: _filled(part, values) for key, part in argument.items()}
    return argument


def collect(own: object, given: object, found: dict[str, object]) -> None:
    """The values that a new call of `get_inputs` gives for the names of the first one."""
    if isinstance(own, Named):
        found[own.name] = given
    elif isinstance(own, list | tuple) and isinstance(given, list | tuple) and len(own) == len(given):
        for name, value in zip(own, given, strict=True):
            collect(name, value, found)
    elif isinstance(own, dict) and isinstance(given, dict) and own.keys() == given.keys():
        for key, name in own.items():
            collect(name, given[key], found)
    elif isinstance(own, list | tuple | dict):
        raise TaskError("get_inputs() gives differently built inputs each time it is called.")


def cast_to(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A floating tensor in the type of the task's precision class; 8-bit floats keep theirs."""
    if dtype is None or not tensor.is_floating_point() or tensor.itemsize == 1:
        return tensor
    return tensor.to(dtype)
