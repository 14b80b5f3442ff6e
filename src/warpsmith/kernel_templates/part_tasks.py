"""A stretch of a task's operations as a task of its own: its inputs, outputs, outline, contract and workloads.

Values that come from earlier parts, or that later parts need, become tensors with names that C allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warpsmith.backends import cpu, cuda
from warpsmith.backends.c_contract import make_contract
from warpsmith.kernels.form_reading import values
from warpsmith.kernels.form_task import is_known
from warpsmith.model.brief import Problem
from warpsmith.model.task import (
    CONTRACTIONS,
    DTYPE_BYTES,
    REDUCTIONS,
    Dim,
    Family,
    Operation,
    Outline,
    OutlineValue,
    Task,
    TensorRole,
    TensorSpec,
    Workload,
)


@dataclass(frozen=True)
class BetweenSpec(TensorSpec):
    """A tensor that a part writes or reads; its extents may be products of axes, such as "2*rows*cols"."""

    def shape(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        """The concrete shape for one workload's axis values."""
        return tuple(extent(dim, axes) for dim in self.dims)


def extent(dim: Dim, axes: Mapping[str, int]) -> int:
    """An extent as a number."""
    if isinstance(dim, int):
        return dim
    return math.prod(int(factor) if factor.isdigit() else axes[factor] for factor in dim.split("*"))


class Chain:
    """The operations of a task in an order, and where each value comes from and is needed."""

    def __init__(self, problem: Problem, outline: Outline) -> None:
        self.problem = problem
        self.outline = outline
        self.nodes = outline.nodes
        self.inputs = {each.name: each for each in outline.inputs}
        self.made = {result.name: result for node in self.nodes for result in node.results}
        self.maker = {result.name: place for place, node in enumerate(self.nodes) for result in node.results}
        self.reads = [
            [name for name in dict.fromkeys(values(node)) if name in self.made or name in self.inputs]
            for node in self.nodes
        ]
        self.last_use: dict[str, int] = {}
        for place, names in enumerate(self.reads):
            self.last_use |= dict.fromkeys(names, place)
        self.last_use |= dict.fromkeys(outline.outputs, len(self.nodes))
        self._names = self._identifiers()

    def _identifiers(self) -> dict[str, str]:
        """Names for values, other than those of tensors, axes and numbers of the task."""
        task = self.problem.task
        taken = {spec.name for spec in task.tensors} | {scalar.name for scalar in task.scalars} | set(task.axes)
        taken |= {argument.name for argument in self.problem.contract.arguments}
        found: dict[str, str] = {}
        for name in self.made:
            found[name] = "v" + "".join(c if c.isalnum() else "_" for c in name.removeprefix("%"))
            while found[name] in taken:
                found[name] += "x"  # templates take no names that end with an underscore
            taken.add(found[name])
        return found

    def identifier(self, name: str) -> str:
        """The name of a value as a tensor of a part; inputs of the task keep theirs."""
        return self._names.get(name, name)

    def value(self, name: str) -> OutlineValue:
        """An input or the result of an operation."""
        return self.inputs.get(name) or self.made[name]

    def read(self, begin: int, end: int) -> list[str]:
        """What these operations need from elsewhere: inputs of the task first, in their order."""
        used = dict.fromkeys(name for names in self.reads[begin:end] for name in names)
        earlier = [name for name in used if name in self.made and self.maker[name] < begin]
        return [*(name for name in self.inputs if name in used), *earlier]

    def written(self, begin: int, end: int) -> list[str]:
        """What later operations need of these, or what are outputs of the task."""
        return [
            result.name
            for node in self.nodes[begin:end]
            for result in node.results
            if self.last_use.get(result.name, -1) >= end
        ]

    def nbytes(self, name: str, workload: Workload) -> int:
        """The memory of a value whose extents are known."""
        value = self.value(name)
        return math.prod(extent(dim, workload.sizes) for dim in value.dims) * DTYPE_BYTES[value.dtype]

    def part(self, begin: int, end: int) -> Part | None:
        """A stretch as a task of its own; None where an extent of its tensors is not known."""
        read, written = self.read(begin, end), self.written(begin, end)
        tensors = [self.value(name) for name in (*read, *written)]
        if not written or not all(_is_known(value) for value in tensors):
            return None
        task = self.problem.task
        specs = [
            BetweenSpec(self.identifier(name), self.value(name).dtype, self.value(name).dims, role)
            for names, role in ((read, TensorRole.INPUT), (written, TensorRole.OUTPUT))
            for name in names
        ]
        part_task = replace(
            task,
            name=f"{task.name}_part",
            source="",
            tensors=tuple(specs),
            scalars=(),  # an outline has the numbers themselves
            notes=(),
            init="",
            call="",
        )
        earlier = {name: self.identifier(name) for name in read if name in self.made}
        nodes = tuple(_renamed(node, earlier) for node in self.nodes[begin:end])
        outline = Outline(
            family_of(
                self.nodes[begin:end], {each.name: each for each in (*self.inputs.values(), *self.made.values())}
            ),
            tuple(replace(self.value(name), name=self.identifier(name)) for name in read),
            nodes,
            tuple(written),
        )
        return Part(begin, end, tuple(read), tuple(written), self._problem(part_task, outline))

    def _problem(self, task: Task, outline: Outline) -> Problem:
        contract = make_contract(task, cpu.DIALECT if self.problem.backend == "cpu" else cuda.DIALECT)
        return replace(self.problem, task=task, contract=contract, outline=outline, bounds=())


@dataclass(frozen=True)
class Part:
    """A stretch of operations as a task of its own."""

    begin: int
    end: int
    read: tuple[str, ...]  # values of the whole task, as the part's inputs
    written: tuple[str, ...]  # and as its outputs
    problem: Problem


def _renamed(node: Operation, names: Mapping[str, str]) -> Operation:
    """The operation with other names for some values."""

    def changed(given: Any) -> Any:
        if isinstance(given, dict):
            return {"$": names.get(given["$"], given["$"])}
        return [changed(each) for each in given] if isinstance(given, list) else given

    keywords = {key: changed(value) for key, value in json.loads(node.keywords).items()}
    return replace(node, arguments=json.dumps(changed(json.loads(node.arguments))), keywords=json.dumps(keywords))


def _is_known(value: OutlineValue) -> bool:
    return value.dtype in DTYPE_BYTES and all(map(is_known, value.dims))


def operator(node: Operation) -> str:
    """The name of an operation without namespace and overload: "relu"."""
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else node.op


def family_of(nodes: Sequence[Operation], known: Mapping[str, OutlineValue]) -> Family:
    """The family of operations, for forms and templates, which look at every operation themselves."""
    contractions = sum(operator(node) in CONTRACTIONS for node in nodes)
    reductions = [
        _is_single(node.results[0])
        for node in nodes
        if operator(node) in REDUCTIONS and not _keeps_elements(node, known)
    ]
    return Family.of(contractions, reductions)


def _is_single(value: OutlineValue) -> bool:
    return all(dim == 1 for dim in value.dims)


def _keeps_elements(node: Operation, known: Mapping[str, OutlineValue]) -> bool:
    """Whether an operation with the name of a reduction works element by element: `max` of two tensors, some losses."""
    name = operator(node)
    if name in ("max", "min"):
        return node.op.endswith(".other")
    operands = [known[each].dims for each in values(node) if each in known]
    return (name.endswith("_loss") or name == "binary_cross_entropy") and node.results[0].dims in operands
