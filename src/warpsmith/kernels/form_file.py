"""Tasks with the operations of a suite's task: they get the file that was written for that task, whatever their sizes.

`cuda/operations.json` holds the operations of every task that has a file `cuda/NAME.cu`; `write_operations` makes it. A
task matches if its reference makes the same calls with the same options. Names, sizes and the order of the inputs may
differ, and numbers that the suite's task takes as scalars; so may the order of operations, and whether a whole number
is written as 3 or 3.0. Element-wise tasks and losses over all elements match with tensors of any number of axes. Where
the contracts differ, a `launch` is added that calls the one of the file.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from warpsmith.kernels.form_reading import in_order, simplified
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, require
from warpsmith.lowering.expressions import part_of
from warpsmith.model.contract import Argument, ArgumentKind
from warpsmith.model.task import Dim, Operation, Outline, Task

FOLDER = Path(__file__).resolve().parent / "cuda"
OPERATIONS = FOLDER / "operations.json"

STRUCTURED = frozenset(("matmul_lower_triangular", "matmul_symmetric", "matmul_upper_triangular"))
"""Files that rely on the values of their inputs, which no operation shows."""

FLOAT32_ONLY = frozenset(("layer_norm_linear", "swiglu"))
"""Files that multiply in three parts where the TF32 class needs one: in that class their tasks are done in parts."""

_ANY_SHAPE = frozenset(
    (
        *("abs", "add", "clamp", "clamp_min", "div", "elu", "exp", "gelu", "hardsigmoid", "hardtanh", "leaky_relu"),
        *("mean", "mse_loss", "mul", "neg", "pow", "relu", "rsub", "sigmoid", "silu", "smooth_l1_loss", "softplus"),
        *("sqrt", "sub", "sum", "tanh"),
    )
)
"""Operations that treat all elements alike, as far as no argument names an axis."""
_AXES = {
    **dict.fromkeys(("_log_softmax", "_safe_softmax", "_softmax"), 1),
    **dict.fromkeys(("amax", "amin", "argmax", "argmin", "max", "mean", "min", "sum"), 1),
    **dict.fromkeys(("linalg_vector_norm", "norm"), 2),
}
"""The place of the argument that names axes, by operation; counted from the end, an axis may be negative."""
_SIZES: Mapping[str, tuple[int, ...]] = {"native_group_norm": (3, 4, 5)}
"""Arguments that follow from the sizes of the tensors, by operation."""
_COMPUTED: Mapping[str, tuple[str, float]] = {"attention": ("width", -0.25)}
"""The axis and the power of it that a number is, by task: its operations do not show what was computed from sizes."""
_LEFT_OUT: Mapping[str, tuple[object, ...]] = {"elu": (None, 1.0), "leaky_relu": (None, 0.01)}
"""Arguments that a call leaves out where they have these values, by operation."""


@dataclass(frozen=True)
class FileKernel:
    """What the file of a suite's task computes, and how its `launch` is called."""

    title: str  # "warpsmith-100/softmax"
    outline: Outline
    outputs: tuple[tuple[Dim, ...], ...]  # their extents
    scalars: Mapping[str, int | float | bool]
    arguments: tuple[Argument, ...]

    @property
    def name(self) -> str:
        """The task's own name, which the file has, too."""
        return self.title.rpartition("/")[2]

    @property
    def size_arguments(self) -> tuple[Argument, ...]:
        """The parameters of `workspace_bytes`."""
        return tuple(a for a in self.arguments if a.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR))


_FILE = TypeAdapter(tuple[FileKernel, ...])


@cache
def file_kernels() -> tuple[FileKernel, ...]:
    """All that `cuda/operations.json` has, as outlines are compared."""
    kernels = _FILE.validate_json(OPERATIONS.read_bytes())
    return tuple(replace(each, outline=in_order(simplified(each.outline))) for each in kernels)


def write_operations(kernels: Iterable[FileKernel]) -> bytes:
    """The text of `cuda/operations.json`, a line for each file."""
    lines = [_FILE.dump_json((kernel,)).decode()[1:-1] for kernel in kernels]
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode()


def described(title: str, task: Task, outline: Outline, arguments: Sequence[Argument]) -> FileKernel:
    """The entry of a task."""
    bare = tuple(Argument(a.name, a.kind, a.ctype, origin=a.origin) for a in arguments)
    dims = tuple(spec.dims for spec in task.outputs)
    return FileKernel(title, outline, dims, {each.name: each.value for each in task.scalars}, bare)


def same_operations(task: FormTask) -> FormKernel:
    """The file of the suite's task that has the same operations."""
    ours = in_order(task.outline)
    wanted = _names(ours.nodes)
    for kernel in file_kernels():
        if _names(kernel.outline.nodes) != wanted or (task.tf32 and kernel.name in FLOAT32_ONLY):
            continue
        try:
            return FormKernel(f"as {kernel.title}", _source(task, kernel, _Match(task, ours, kernel)))
        except NotThisForm:
            continue
    raise NotThisForm


def convolution_of_a_file(task: FormTask) -> FormKernel:
    """The file of a suite's task with the same convolution; the form `convolution` would take it, too."""
    require("aten.convolution.default" in _names(task.outline.nodes))
    return same_operations(task)


def _names(nodes: Sequence[Operation]) -> list[str]:
    return [node.op for node in nodes]


class _Match:
    """Which tensor, extent and number of a task stands for which of the suite's task. Raises `NotThisForm` for none."""

    def __init__(self, task: FormTask, ours: Outline, kernel: FileKernel) -> None:
        self.task = task
        self.ours = ours
        self.kernel = kernel
        theirs = kernel.outline
        require(len(ours.inputs) == len(theirs.inputs) and len(ours.outputs) == len(theirs.outputs))
        require(len(ours.outputs) == len(task.task.outputs))
        self.values: dict[str, str] = {}  # of the suite's task: ours
        self.axes: dict[str, list[Dim]] = {}  # an axis of the suite's task: extents whose product is its extent
        self.scalars: dict[str, int | float | bool] = {}
        self._known = {each.name: each for each in theirs.inputs}
        self._inputs = {each.name: each for each in ours.inputs}
        self._dims = {each.name: each.dims for each in ours.inputs}
        self._flat = self._is_flat()
        for one, other in zip(theirs.nodes, ours.nodes, strict=True):
            self._operation(one, other)
        require(all(name in self.values for name in self._known))
        require(len(set(self.values.values())) == len(self.values))
        # Extents of outputs follow from the operations; a matrix of the suite's task may be a tensor of more axes here.
        self.outputs = [self._output(name) for name in theirs.outputs]
        require(len(set(self.outputs)) == len(self.outputs))
        require(
            all(
                argument.source in self.axes for argument in kernel.size_arguments if argument.kind is ArgumentKind.AXIS
            )
        )
        self._check_scalars()

    def _is_flat(self) -> bool:
        """Whether all tensors have the same extents on both sides, and all operations treat all elements alike."""
        shapes = [{each.dims for each in outline.inputs} for outline in (self.kernel.outline, self.ours)]
        names = {node.op.split(".")[1] for node in self.kernel.outline.nodes}
        nodes = (*self.kernel.outline.nodes, *self.ours.nodes)
        return all(len(each) == 1 for each in shapes) and names <= _ANY_SHAPE and not any(map(_names_an_axis, nodes))

    def _operation(self, one: Operation, other: Operation) -> None:
        name = one.op.split(".")[1]
        given, ours = (_complete(name, json.loads(each.arguments)) for each in (one, other))
        require(len(given) == len(ours) and len(one.results) == len(other.results))
        rank = len(self._dims.get(_value(ours[0]), ())) if ours else 0
        for place, (theirs, mine) in enumerate(zip(given, ours, strict=True)):
            if place in _SIZES.get(name, ()):
                continue
            self._argument(theirs, mine, rank if place == _AXES.get(name) else 0)
        keywords, ours = json.loads(one.keywords), json.loads(other.keywords)
        require(keywords.keys() == ours.keys())
        for key in keywords:
            self._argument(keywords[key], ours[key], 0)
        for result, mine in zip(one.results, other.results, strict=True):
            require(result.dtype == mine.dtype)
            self.values[result.name] = mine.name
            self._dims[mine.name] = mine.dims
            if len(result.dims) == len(mine.dims):
                self._bind_axes(result.dims, mine.dims)

    def _argument(self, theirs: Any, mine: Any, rank: int) -> None:
        """One argument of an operation; `rank`: how many axes there are, 0 for arguments that name none."""
        if isinstance(theirs, dict):
            require(isinstance(mine, dict) or type(mine) in (int, float))
            self._reference(str(theirs["$"]), mine)
        elif isinstance(theirs, list):
            require(isinstance(mine, list) and len(mine) == len(theirs))
            for one, other in zip(theirs, mine, strict=True):
                self._argument(one, other, rank)
        elif rank and type(theirs) is int and type(mine) is int:
            require(theirs % rank == mine % rank)
        elif theirs != mine or not _same_kind(theirs, mine):
            self._number(theirs, mine)

    def _reference(self, theirs: str, mine: Any) -> None:
        known = self.values.get(theirs)
        if known is None and theirs in self._known:
            known = self._bind(theirs, mine)
        if known is not None:
            require(_value(mine) == known)
        elif theirs == "?" and type(mine) is float:
            self._computed(mine)
        elif theirs == "?":
            require(_value(mine) == "?")
        else:
            require(type(mine) is not float)
            found = mine if type(mine) is int else _value(mine)
            require(_factors([found]) == _factors(self._extent(theirs)))

    def _computed(self, mine: float) -> None:
        """A number of ours where the operations of the suite's task only say that it was computed from sizes."""
        axis, power = _COMPUTED.get(self.kernel.name, ("", 0.0))
        sizes = {self.task.size(dim, w) for dim in self.axes.get(axis, ())[:1] for w in self.task.task.workloads}
        require(len(sizes) == 1 and min(sizes) > 0 and len(self.axes[axis]) == 1)
        require(math.isclose(mine, sizes.pop() ** power, rel_tol=1e-6))

    def _bind(self, theirs: str, mine: Any) -> str:
        """Let a tensor of ours stand for an input of the suite's task, and its extents for the axes."""
        known, ours = self._known[theirs], self._inputs.get(_value(mine))
        require(ours is not None)
        assert ours is not None
        require(ours.dtype == known.dtype)
        ranks = len(known.dims), len(ours.dims)
        require(ranks[0] == ranks[1] or (self._flat and min(ranks) > 0))
        missing = max(ranks[0] - ranks[1], 0)
        together = max(ranks[1] - ranks[0], 0) + 1  # leading axes that are one axis of the suite's task
        parts: list[list[Dim]] = [[1] for _ in range(missing)]
        parts += [list(ours.dims[:together]), *([each] for each in ours.dims[together:])] if ours.dims else []
        for dim, part in zip(known.dims, parts, strict=True):
            if isinstance(dim, str) and dim.isidentifier() and dim not in self.axes:
                self.axes[dim] = part
            require(_factors(self._extent(dim)) == _factors(part))
        self.values[theirs] = ours.name
        return ours.name

    def _bind_axes(self, theirs: Sequence[Dim], mine: Sequence[Dim]) -> None:
        """Let extents of a result stand for axes that no input has."""
        for dim, ours in zip(theirs, mine, strict=True):
            if isinstance(dim, str) and dim.isidentifier() and ours != "?":
                self.axes.setdefault(dim, [ours])

    def _extent(self, dim: Dim) -> list[Dim]:
        """An extent of the suite's task in ours."""
        found: list[Dim] = []
        for factor in str(dim).split("*"):
            if factor.isdigit():
                found.append(int(factor))
            elif part := part_of(factor):
                found.append(self._part(*part))
            else:
                require(factor in self.axes)
                found += self.axes[factor]
        return found

    def _part(self, axis: str, added: int, parts: int) -> Dim:
        """A part of an axis of the suite's task in ours."""
        require(len(self.axes.get(axis, ())) == 1)
        (ours,) = self.axes[axis]
        if isinstance(ours, int):
            return (ours + added) // parts
        require(ours.isidentifier())
        return f"({ours}+{added})//{parts}" if added else f"{ours}//{parts}"

    def _number(self, theirs: Any, mine: Any) -> None:
        """A number that differs: the suite's task must take it as a scalar."""
        numbers = (int, float)
        require(type(theirs) in numbers and type(mine) in numbers)
        named = [name for name, value in self.kernel.scalars.items() if value == theirs and type(value) is type(theirs)]
        require(len(named) == 1)
        require(self.scalars.setdefault(named[0], mine) == mine)

    def _check_scalars(self) -> None:
        """Another value of a scalar may not hide in a number that was computed from the scalar."""
        if not self.scalars:
            return
        used = list(_numbers(self.kernel.outline.nodes))
        require(all(value in used for value in self.kernel.scalars.values()))
        require(all(value in self.kernel.scalars.values() for value in used if isinstance(value, float)))
        mine = list(_numbers(self.ours.nodes))
        for name, value in self.scalars.items():
            require(used.count(self.kernel.scalars[name]) == 1 and mine.count(value) >= 1)

    def _output(self, theirs: str) -> int:
        """The place among our outputs of an output of the suite's task."""
        name = self.values.get(theirs)
        require(name in self.ours.outputs)
        return list(self.ours.outputs).index(str(name))


def _same_kind(theirs: object, mine: object) -> bool:
    """Whether equal values mean the same; operations treat 3 and 3.0 alike where their results have the same type."""
    return type(theirs) is type(mine) or {type(theirs), type(mine)} == {int, float}


def _value(argument: Any) -> str:
    return str(argument["$"]) if isinstance(argument, dict) else ""


def _factors(dims: Iterable[Dim]) -> tuple[int, tuple[str, ...]]:
    """The number and the axes whose product a list of extents is."""
    parts = [part for dim in dims for part in str(dim).split("*")]
    require(all(part.isdigit() or part.isidentifier() or part_of(part) for part in parts))
    return math.prod(int(p) for p in parts if p.isdigit()), tuple(sorted(p for p in parts if not p.isdigit()))


def _complete(name: str, arguments: list[Any]) -> list[Any]:
    return [*arguments, *_LEFT_OUT.get(name, ())[len(arguments) :]]


def _names_an_axis(node: Operation) -> bool:
    """Whether an operation has an argument that names axes."""
    return len(json.loads(node.arguments)) > _AXES.get(node.op.split(".")[1], math.inf)


def _numbers(nodes: Iterable[Operation]) -> Iterable[int | float]:
    def inside(given: Any) -> Iterable[int | float]:
        if type(given) in (int, float):
            yield given
        elif isinstance(given, list):
            for each in given:
                yield from inside(each)

    for node in nodes:
        yield from inside(_complete(node.op.split(".")[1], json.loads(node.arguments)))
        yield from inside(list(json.loads(node.keywords).values()))


# --- the text ---


def _source(task: FormTask, kernel: FileKernel, match: _Match) -> str:
    written = (FOLDER / f"{kernel.name}.cu").read_text(encoding="utf-8")
    ours = {
        ArgumentKind.WORKSPACE: [a.name for a in task.contract.arguments if a.kind is ArgumentKind.WORKSPACE],
        ArgumentKind.STREAM: [a.name for a in task.contract.arguments if a.kind is ArgumentKind.STREAM],
    }
    outputs = iter(match.outputs)
    passed = []
    for argument in kernel.arguments:
        if argument.kind is ArgumentKind.INPUT:
            passed.append(task.parameter(match.values[argument.source]))
        elif argument.kind is ArgumentKind.OUTPUT:
            passed.append(task.parameter(task.task.outputs[next(outputs)].name))
        elif argument.kind in ours:
            passed.append(ours[argument.kind][0])
        else:
            passed.append(_number_or_extent(task, kernel, match, argument))
    if passed == [a.name for a in task.contract.arguments] and _types(kernel.arguments) == _types(
        task.contract.arguments
    ):
        return written
    sizes = [text for argument, text in zip(kernel.arguments, passed, strict=True) if argument in kernel.size_arguments]
    return _with_launch(task, written, passed, sizes)


def _types(arguments: Sequence[Argument]) -> list[str]:
    return [argument.ctype for argument in arguments]


def _number_or_extent(task: FormTask, kernel: FileKernel, match: _Match, argument: Argument) -> str:
    if argument.kind is ArgumentKind.AXIS:
        return task.product(match.axes[argument.source])
    require(argument.kind is ArgumentKind.SCALAR)
    value = match.scalars.get(argument.source, kernel.scalars[argument.source])
    named = [each.name for each in task.task.scalars if each.name == argument.source and each.value == value]
    return task.parameter(named[0]) if named else str(value).lower() if isinstance(value, bool) else repr(value)


_LAUNCH = re.compile(r'extern "C" int launch\(')
_BYTES = re.compile(r'extern "C" int64_t workspace_bytes\(')


def _with_launch(task: FormTask, written: str, passed: Sequence[str], sizes: Sequence[str]) -> str:
    """The text with its entry points renamed, and new ones that call them."""
    require(len(_LAUNCH.findall(written)) == 1 and len(_BYTES.findall(written)) <= 1)
    renamed = _LAUNCH.sub("static int launch_file(", written)
    parts = [renamed]
    if _BYTES.search(renamed):
        parts[0] = _BYTES.sub("static int64_t workspace_bytes_file(", renamed)
        parts.append(task.workspace_bytes(f"return workspace_bytes_file({', '.join(sizes)});"))
    parts.append(task.launch(f"return launch_file({', '.join(passed)});"))
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"
