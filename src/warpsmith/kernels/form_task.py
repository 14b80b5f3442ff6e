"""A task as the forms read it: the operations of its outline, and the names and extents of its contract."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from warpsmith.kernels.form_reading import simplified
from warpsmith.lowering.emitter import wide
from warpsmith.model.contract import Argument, ArgumentKind, Contract
from warpsmith.model.task import Dim, Outline, OutlineValue, Precision, Task, Workload

Value = dict[str, str]
"""What stands for a tensor among the arguments of an operation: `{"$": "x"}`."""

_OWN_NAMES = frozenset(
    ("End", "Filter", "Form", "Policy", "Shape", "end", "f", "form_of", "p", "policy", "product", "windows")
)
"""Types, functions and values in the texts of forms; a parameter of such a name gets another one in the text."""


class NotThisForm(Exception):
    """The task is not of the form that was tried."""


def require(condition: bool) -> None:
    """Give the form up unless the condition holds."""
    if not condition:
        raise NotThisForm


@dataclass(frozen=True)
class FormKernel:
    """A kernel that a form wrote for a task."""

    form: str  # "2-d convolution"
    source: str


@dataclass(frozen=True)
class Step:
    """One operation of the outline that the output depends on."""

    name: str  # "convolution"
    arguments: list[Any]  # JSON; tensors as `Value`
    result: OutlineValue  # the one that is used

    def argument(self, place: int, default: object = None) -> Any:
        """An argument by its place; the default where the call left it out."""
        return self.arguments[place] if place < len(self.arguments) else default


class FormTask:
    """What all forms need to know about a task."""

    def __init__(self, task: Task, contract: Contract, outline: Outline) -> None:
        require(not contract.table and task.precision in (Precision.FP32, Precision.TF32))
        self.task = task
        self.outline = simplified(outline)
        self.contract = _without_clashes(contract)
        self.on_cpu = contract.backend == "cpu"
        self.tf32 = task.precision is Precision.TF32  # a kernel may be less exact than float32, and need not be
        self._inputs = {value.name: value for value in self.outline.inputs}
        self._names = {each.source: each.name for each in self.contract.arguments}

    @cached_property
    def steps(self) -> list[Step]:
        """The operations that the one output depends on; no other type than float32 and bool."""
        require(len(self.task.outputs) == 1 and len(self.outline.outputs) == 1)
        dtypes = {each.dtype for each in self.outline.inputs} | {each.dtype for each in self.task.outputs}
        require(dtypes <= {"float32", "bool"})
        return _steps(self.outline)

    # --- tensors ---

    def tensor(self, value: object) -> OutlineValue:
        """The input of the task that an argument of an operation is."""
        name = value_name(value)
        require(name in self._inputs)
        return self._inputs[name]

    def pointer(self, value: object) -> str:
        """The parameter of the contract for an input."""
        return self._names[self.tensor(value).name]

    def parameter(self, name: str) -> str:
        """The parameter of the contract for a tensor of the task."""
        return self._names[name]

    @property
    def out(self) -> str:
        """The parameter of the contract for the output."""
        return self.parameter(self.task.outputs[0].name)

    # --- extents ---

    def extent(self, dim: Dim) -> str:
        """An extent as a C++ expression."""
        require(is_known(dim))
        if isinstance(dim, int):
            return str(dim)
        return " * ".join(part if part.isdigit() else self._names[part] for part in dim.split("*"))

    def product(self, dims: Sequence[Dim]) -> str:
        """The product of extents as a C++ expression."""
        return wide(" * ".join(self.extent(dim) for dim in dims if dim != 1) or "1")

    def size(self, dim: Dim, workload: Workload | None = None) -> int:
        """An extent in a workload, or in the first one."""
        require(is_known(dim))
        if isinstance(dim, int):
            return dim
        sizes = (workload or self.task.workloads[0]).sizes
        return math.prod(int(part) if part.isdigit() else sizes[part] for part in dim.split("*"))

    # --- the text ---

    @property
    def sizes(self) -> tuple[Argument, ...]:
        """The parameters of `workspace_bytes`."""
        return self.contract.size_arguments

    @property
    def size_names(self) -> str:
        """Their names, to pass them on."""
        return ", ".join(each.name for each in self.sizes)

    @property
    def size_parameters(self) -> str:
        """Their declarations."""
        return declared(self.sizes)

    def workspace_bytes(self, body: str) -> str:
        """The definition of `workspace_bytes`."""
        return f'extern "C" int64_t workspace_bytes({self.size_parameters}) {{ {body} }}'

    def launch(self, *lines: str) -> str:
        """The definition of `launch`."""
        body = "\n".join(f"  {line}" for line in lines)
        return f'extern "C" int launch({declared(self.contract.arguments)}) {{\n{body}\n}}'

    @property
    def workspace(self) -> str:
        """The parameter for scratch memory."""
        return next(a.name for a in self.contract.arguments if a.kind is ArgumentKind.WORKSPACE)

    @property
    def stream(self) -> str:
        """The parameter for the stream."""
        return next(a.name for a in self.contract.arguments if a.kind is ArgumentKind.STREAM)


def is_known(dim: Dim) -> bool:
    """Whether an extent is a number or a product of axes."""
    return dim != "?" and "/" not in str(dim)


def _without_clashes(contract: Contract) -> Contract:
    """The contract with other names for parameters that have the name of something else in the texts of forms."""
    taken = _OWN_NAMES | {each.name for each in contract.arguments}

    def renamed(each: Argument) -> Argument:
        name = each.name
        while name in taken:
            name += "_given"
        return replace(each, name=name, origin=each.source)

    if not any(each.name in _OWN_NAMES for each in contract.arguments):
        return contract
    arguments = tuple(renamed(each) if each.name in _OWN_NAMES else each for each in contract.arguments)
    return replace(contract, arguments=arguments)


def declared(arguments: Sequence[Argument]) -> str:
    """Parameters as they are declared."""
    return ", ".join(f"{each.ctype} {each.name}" for each in arguments)


def value_name(value: object) -> str:
    """The name of the value that an argument stands for."""
    require(isinstance(value, dict))
    assert isinstance(value, dict)
    return str(value["$"])


def numbers(value: object, count: int) -> list[int]:
    """A list of whole numbers, one per axis; one number stands for all."""
    require(isinstance(value, list) and all(type(each) is int for each in value))
    assert isinstance(value, list)
    require(len(value) in (1, count))
    return value * count if len(value) == 1 else value


def text(*parts: str) -> str:
    """A source of several parts."""
    return "\n\n".join(part for part in parts if part) + "\n"


def tunable(name: str, values: Sequence[int]) -> str:
    """A macro whose values can be tried; the first is the default."""
    listed = ", ".join(map(str, values))
    return f"// tune: {name} = {listed}\n#ifndef {name}\n#define {name} {values[0]}\n#endif"


def _steps(outline: Outline) -> list[Step]:
    """The operations that the output depends on, in their order; nothing may be changed in place."""
    nodes = []
    for node in outline.nodes:
        parts = node.op.split(".")
        require(len(parts) == 3 and parts[0] == "aten" and not parts[1].endswith("_"))
        nodes.append((parts[1], node))
    wanted, found = {outline.outputs[0]}, []
    for name, node in reversed(nodes):
        used = [result for result in node.results if result.name in wanted]
        if used:
            require(len(used) == 1)
            arguments = json.loads(node.arguments)
            keywords = {key: value for key, value in json.loads(node.keywords).items() if value is not None}
            require(not keywords)
            found.append(Step(name, arguments, used[0]))
            wanted |= _values(arguments)
    return found[::-1]


def _values(arguments: object) -> set[str]:
    if isinstance(arguments, dict):
        return {str(arguments["$"])}
    if isinstance(arguments, list):
        return set().union(*(_values(each) for each in arguments))
    return set()
