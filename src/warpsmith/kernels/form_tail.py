"""Element-wise operations after the one heavy operation of a task, for the end of that operation's kernel.

A product or a convolution has its result in registers before it stores it. What follows there element by element
(a bias, an activation, a residual, a scale per channel) costs nothing but the reads of the other operands. `divide`
cuts a task in two behind the heavy operation; `Tail` writes what follows as C++.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warpsmith.kernels.form_reading import values
from warpsmith.kernels.form_task import FormTask, NotThisForm, require
from warpsmith.lowering.emitter import Context, Emitter, Load, nest
from warpsmith.lowering.expressions import NO_AXIS, Expr, Unsupported, factors, places, subexpressions
from warpsmith.lowering.lower import lower
from warpsmith.lowering.stages import KernelLayout, collapse_axes
from warpsmith.model.brief import Problem
from warpsmith.model.build import DeviceKind
from warpsmith.model.contract import Argument
from warpsmith.model.task import Dim, Operation, OutlineValue

_VIEWS = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "flatten"),
        *("t", "numpy_T", "transpose", "permute", "alias", "detach", "clone", "contiguous"),
    )
)
_HEAD = "head"  # the name of the heavy operation's result among the inputs of what follows
_QUALIFIERS = {True: "inline", False: "__device__ __forceinline__"}  # of functions: on the CPU, on a GPU
_NAMESPACES = {True: "warpsmith::products::", False: "warpsmith::"}  # of `max_nan`
_COMMUTES = 2  # operands of a sum


def divide(task: FormTask, heavy: Collection[str]) -> tuple[FormTask, Tail]:
    """The task up to its one heavy operation, and what follows; `NotThisForm` where nothing but views follows."""
    outline = task.outline
    require(len(outline.outputs) == 1 and len(task.task.outputs) == 1)
    places = [place for place, node in enumerate(outline.nodes) if _name(node) in heavy]
    require(len(places) == 1)
    last = outline.nodes[places[0]]
    (result,) = last.results
    before = _ancestors(outline.nodes[: places[0] + 1])
    after = tuple(node for node in outline.nodes if node not in before)
    require(any(_name(node) not in _VIEWS for node in after))
    used = {name for node in before for name in values(node)}
    inputs = tuple(each for each in outline.inputs if each.name in used)
    head = FormTask(task.task, task.contract, replace(outline, inputs=inputs, nodes=before, outputs=(result.name,)))
    return head, Tail(task, result, after)


def _name(node: Operation) -> str:
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else node.op


def _ancestors(nodes: Sequence[Operation]) -> tuple[Operation, ...]:
    """The last operation and those whose results it needs, in order."""
    wanted, found = {result.name for result in nodes[-1].results}, list[Operation]()
    for node in reversed(nodes):
        if any(result.name in wanted for result in node.results):
            found.append(node)
            wanted.update(values(node))
    return tuple(found[::-1])


@dataclass(frozen=True)
class Indices:
    """The index variables of an element of the head's result, and the axes that each of them covers."""

    names: tuple[str, ...]  # "row_", the slowest first
    groups: tuple[tuple[int, ...], ...]


class _TailEmitter(Emitter):
    """Writes expressions as `Emitter` does; NaN stays NaN."""

    def child(self, load: Load) -> Emitter:
        """An emitter for an inner scope, in which all values known here are known."""
        return _TailEmitter(self.context, load, self.known)

    def _text(self, expr: Expr) -> str:
        if expr.op in ("max", "min") and expr.ctype == "float":
            space = _NAMESPACES[not self.context.device]
            return f"{space}{expr.op}_nan({self.value(expr.args[0])}, {self.value(expr.args[1])})"
        return super()._text(expr)


class Tail:
    """What follows the heavy operation: one value for each element of its result, in the same order."""

    def __init__(self, task: FormTask, result: OutlineValue, nodes: Sequence[Operation]) -> None:
        self.task = task
        renamed = {result.name: _HEAD}
        require(result.dtype == "float32" and task.task.outputs[0].dtype == "float32")
        require(all(each.name != _HEAD for each in task.outline.inputs))
        require(all(each.dtype in ("float32", "bool") for each in task.outline.inputs))
        outline = replace(
            task.outline,
            inputs=(*task.outline.inputs, OutlineValue(_HEAD, result.dtype, result.dims)),
            nodes=tuple(_renamed(node, renamed) for node in nodes),
        )
        where = ("cpu", "", DeviceKind.CPU, "") if task.on_cpu else ("cuda", "", DeviceKind.CUDA, "sm_90a")
        problem = Problem(task.task, task.contract, *where, (), outline)
        try:
            lowered = lower(task.task, outline)
            (self.output,) = lowered.results
            self.layout = KernelLayout(lowered.pool, lowered.axes, dict(lowered.dtypes))
            self.context = Context(problem, self.layout, device=not task.on_cpu, vector=task.on_cpu)
        except Unsupported as error:
            raise NotThisForm from error
        self.context.names = {source: f"given.{name}" for source, name in self.context.names.items()}
        every = list(subexpressions(self.output.expr))
        require(all(e.op not in ("reduce", "pick") and e.ctype != "double" for e in every))
        heads = [e for e in every if e.name == _HEAD]
        require(len(heads) == 1 and heads[0].op == "load" and self.output.expr.ctype == "float")
        self.head = heads[0]
        self.others = [e for e in every if e.op in ("load", "element", "index") and e is not self.head]
        # The result must lie in memory as the head writes it, and nothing may be wider than the head.
        require(self.order == _real(self.output.axes))
        require(all(e.free <= set(self.order) for e in self.others))

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the head's result, the slowest first."""
        return _real(self.head.axes)

    @property
    def is_local(self) -> bool:
        """Whether an element of the result needs nothing but the element of the head and single numbers."""
        return not any(e.free for e in self.others)

    def grouped(self, extents: Sequence[Sequence[Dim]]) -> tuple[tuple[int, ...], ...]:
        """The axes of the head's result in groups with these extents (the product of each list), slowest first."""
        rest, found = list(self.order), list[tuple[int, ...]]()
        for dims in reversed(extents):
            group: list[int] = []
            while factors([self.layout.axes.extent(a) for a in group]) != factors(dims):
                require(bool(rest))
                group.insert(0, rest.pop())
            found.insert(0, tuple(group))
        require(not rest)
        return tuple(found)

    def added_vector(self, group: Sequence[int]) -> str | None:
        """The source name of a vector over a group of axes if the tail does no more than to add it; None otherwise."""
        expr = self.output.expr
        if expr.op != "add" or len(expr.args) != _COMMUTES or self.head not in expr.args:
            return None
        other = next((e for e in expr.args if e is not self.head), None)
        if other is None or other.op != "load" or other.ctype != "float" or _real(other.axes) != tuple(group):
            return None
        return other.name

    # --- the text ---

    def given(self, lines: Sequence[str]) -> list[Argument]:
        """The arguments of the contract that lines written here read, as members of a struct `given`."""
        read = set(re.findall(r"\bgiven\.(\w+)", "\n".join(lines)))
        return [a for a in self.task.contract.arguments if a.name in read]

    def value(self, indices: Indices) -> list[str]:
        """The member function `value(head_, row_, …)`: the element of the result, for the index of each group."""
        lines, where = [], list[tuple[Sequence[int], str]]()
        for name, group in zip(indices.names, indices.groups, strict=True):
            more, found = self._split(name, group)
            lines += more
            where += found
        emitter = _TailEmitter(self.context, lambda e: self._load(e, where))
        emitter.known[self.head] = "head_"
        made = emitter.value(self.output.expr)
        body = [*emitter.lines, f"return {made};"]
        declared = list[str]()
        for line in reversed(lines):  # an index may be computed from another one
            if re.search(rf"\b{_declared(line)}\b", "\n".join([*declared, *body])):
                declared.insert(0, line)
        parameters = ", ".join(["float head_", *(f"int64_t {name}" for name in indices.names)])
        return [f"{_QUALIFIERS[self.task.on_cpu]} float value({parameters}) const {{", *nest([*declared, *body]), "}"]

    def function(self) -> list[str]:
        """The call operator of a function of the head's element alone; for a tail that `is_local`."""
        require(self.is_local)
        emitter = _TailEmitter(self.context, lambda e: self._load(e, ()))
        emitter.known[self.head] = "head_"
        made = emitter.value(self.output.expr)
        head = f"{_QUALIFIERS[self.task.on_cpu]} float operator()(float head_) const {{"
        return [head, *nest([*emitter.lines, f"return {made};"]), "}"]

    def _load(self, load: Expr, where: Sequence[tuple[Sequence[int], str]]) -> str:
        if self.task.on_cpu or load.op == "index" or load.ctype != "float":
            return self.context.read(load, where)
        return f"__ldg({self.context.names[load.name]} + {self.context.offset(load.axes, where)})"

    def _split(self, name: str, group: Sequence[int]) -> tuple[list[str], list[tuple[Sequence[int], str]]]:
        """Lines that turn the index of a group into one index for each part along which all tensors have a stride."""
        parts = collapse_axes(self.layout, group, [self.order], places(self.output.expr))
        if len(parts) <= 1:
            return [], [(part, name) for part in parts]
        lines, indices, rest = [], list[tuple[Sequence[int], str]](), name
        for number in range(len(parts) - 1, -1, -1):
            extent = self.context.extent(parts[number])
            index, above = f"{name}{number}_", f"{name}over{number}_"
            if number:
                lines.append(f"const int64_t {index} = {rest} % ({extent});")
                lines.append(f"const int64_t {above} = {rest} / ({extent});")
                rest = above
            else:
                lines.append(f"const int64_t {index} = {rest};")
            indices.append((parts[number], index))
        return lines, indices[::-1]


def _declared(line: str) -> str:
    return line.removeprefix("const int64_t ").partition(" ")[0]


def _real(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for a in axes if a != NO_AXIS)


def _renamed(node: Operation, names: dict[str, str]) -> Operation:
    def change(given: Any) -> Any:
        if isinstance(given, dict):
            return {"$": names.get(str(given["$"]), given["$"])} if set(given) == {"$"} else given
        return [change(each) for each in given] if isinstance(given, list) else given

    keywords = {key: change(value) for key, value in json.loads(node.keywords).items()}
    return replace(node, arguments=json.dumps(change(json.loads(node.arguments))), keywords=json.dumps(keywords))
