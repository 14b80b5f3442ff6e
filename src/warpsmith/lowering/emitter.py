"""Writes expressions as C++: scalar functions, temporaries, loads, and values computed before a loop.

Shared by the CPU and the CUDA templates, which write the loops and kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from warpsmith.lowering.expressions import Expr, Unsupported, part_of, size_of, subexpressions
from warpsmith.lowering.math_functions import MATH_FUNCTIONS
from warpsmith.lowering.stages import KernelLayout, Store, TemplateStage
from warpsmith.model.brief import Problem
from warpsmith.model.contract import ArgumentKind
from warpsmith.model.task import DTYPE_BYTES, Dim, Workload

COSTLY = frozenset(("exp", "expm1", "exp2", "log", "log1p", "log2", "tanh", "erf", "pow", "sin", "cos"))
"""Functions worth computing once and keeping."""

WIDE_VECTORS = """#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")
#endif
"""
"""Lines before the functions of a CPU file in which compilers shall use vectors of 64 bytes where there are some."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&&", "or": "||"}
_INFIX |= {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

_MOST_INT = 2**31 - 1

Load = Callable[[Expr], str]
"""A function that writes a load, for the current indices of the loop."""


class Context:
    """Names, types and extents that all stages of one kernel file share."""

    def __init__(
        self, problem: Problem, layout: KernelLayout, *, device: bool, vector: bool = False, fast: bool = False
    ) -> None:
        contract = problem.contract
        if contract.table:
            raise Unsupported("tensors in a table")
        self.problem = problem
        self.layout = layout
        self.device = device
        self.vector = vector  # exp, log, tanh, … as inline functions that vectorise
        self.fast = fast  # use CUDA's intrinsics of lower accuracy
        self.helpers: dict[str, None] = {}  # functions of `math_functions` that the code calls, in order
        self.names = {a.source: a.name for a in contract.arguments}
        self.types = {a.source: a.ctype for a in contract.arguments}
        taken = {a.name for a in contract.arguments}
        if any(name.isupper() or name.endswith("_") or name.startswith("ws") for name in taken):
            raise Unsupported("argument names that a template uses itself")
        self._count = 0

    @property
    def parameters(self) -> str:
        """The parameter list of `launch`."""
        return ", ".join(f"{a.ctype} {a.name}" for a in self.problem.contract.arguments)

    @property
    def sizes(self) -> list[str]:
        """The names of the axes among the parameters."""
        return [a.name for a in self.problem.contract.arguments if a.kind is ArgumentKind.AXIS]

    def element(self, name: str) -> str:
        """The C type of a tensor's elements."""
        if name in self.layout.slots:
            return {"float32": "float", "float64": "double", "int64": "int64_t"}[self.layout.dtypes[name]]
        return self.types[name].removeprefix("const ").removesuffix("*")

    def dim(self, dim: Dim) -> str:
        """The extent of a dimension, in C."""
        if isinstance(dim, int):
            return str(dim)
        return " * ".join(self._word(word) for word in dim.split("*"))

    def _word(self, word: str) -> str:
        if part := part_of(word):
            axis, added, parts = part
            return f"(({self.names.get(axis, axis)} + {added}) / {parts})"
        return self.names.get(word, word)

    def extent(self, axes: Iterable[int]) -> str:
        """The number of elements of a group of axes, in C."""
        words = [self.dim(self.layout.axes.extent(a)) for a in axes]
        return wide(" * ".join(words)) if words else "1"

    def fresh(self, stem: str = "t") -> str:
        """A name that is not yet used in the file."""
        self._count += 1
        return f"{stem}{self._count}_"

    def stride(self, axes: Sequence[int], group: Sequence[int]) -> str:
        """The distance between neighbours along a group in a row-major tensor; "" where the tensor lacks the group."""
        if not group or group[-1] not in axes:
            return ""
        return self.extent(axes[axes.index(group[-1]) + 1 :])

    def offset(self, axes: Sequence[int], where: Sequence[tuple[Sequence[int], str]]) -> str:
        """The offset of an element of a tensor, for an index of each group."""
        terms = []
        for group, index in where:
            stride = self.stride(axes, group)
            if stride and index != "0":
                terms.append(
                    index if stride == "1" else f"{index} * ({stride})" if "*" in stride else f"{index} * {stride}"
                )
        return " + ".join(terms) or "0"

    def read(self, expr: Expr, where: Sequence[tuple[Sequence[int], str]]) -> str:
        """A load in C, or the index along axes, for an index of each group."""
        offset = self.offset(expr.axes, where)
        return offset if expr.op == "index" else self.typed(expr, f"{self.names.get(expr.name, expr.name)}[{offset}]")

    def typed(self, expr: Expr, text: str) -> str:
        """An element of a tensor, converted to the type of the expression."""
        if expr.op == "index" or self.element(expr.name) == expr.ctype:
            return text
        return f"static_cast<{expr.ctype}>({text})"

    def place(self, expr: Expr, indices: Sequence[str]) -> str:
        """An element of a row-major tensor in C, by its index in each dimension."""
        offset = "0"
        for axis, index in zip(expr.axes, indices, strict=True):
            extent = self.dim(self.layout.axes.extent(axis))
            offset = index if offset == "0" else f"({offset}) * ({extent}) + {index}"
        return self.typed(expr, f"{self.names.get(expr.name, expr.name)}[{offset}]")

    def call(self, helper: str, *args: str) -> str:
        """A call of a function of `math_functions`, which `prelude` then defines."""
        self.helpers[helper] = None
        return f"{helper}({', '.join(args)})"

    def prelude(self) -> str:
        """The definitions of the called functions of `math_functions`, after those they need."""
        qualifier = "__device__ __forceinline__" if self.device else "static inline"
        done: dict[str, str] = {}

        def add(name: str) -> None:
            needs, text = MATH_FUNCTIONS[name]
            for other in needs:
                add(other)
            done.setdefault(name, text.replace("INLINE", qualifier))

        for name in self.helpers:
            add(name)
        return "\n".join(done.values())


def slot_offsets(layout: KernelLayout, context: Context) -> tuple[list[tuple[str, str]], str]:
    """The offset of each workspace tensor and the bytes of all together, in C."""
    total, found = "0", []
    for name, dims in layout.slots.items():
        found.append((name, total))
        count = " * ".join(context.dim(d) for d in dims) or "1"
        total += f" + (({count}) * {DTYPE_BYTES[layout.dtypes[name]]} + 255) / 256 * 256"
    return found, total.removeprefix("0 + ")


def literal(number: float | int | bool, ctype: str) -> str:
    """A number as a C literal."""
    if ctype == "bool":
        return "true" if number else "false"
    if ctype == "int64_t":
        return str(int(number))
    if math.isinf(number) or math.isnan(number):
        return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
    return f"{float(number)!r}f" if ctype == "float" else repr(float(number))


def initial(kind: str, ctype: str) -> str:
    """The value that a reduction starts with, in C."""
    if kind == "sum" or kind == "prod":
        return literal(0 if kind == "sum" else 1, ctype)
    low = kind.endswith("max")
    if ctype == "int64_t":
        return "INT64_MIN" if low else "INT64_MAX"
    return "-INFINITY" if low else "INFINITY"


def combined(kind: str, one: str, other: str) -> str:
    """The combination of two partial results of a reduction, in C."""
    if kind in ("sum", "prod"):
        return f"{one} {'+' if kind == 'sum' else '*'} {other}"
    return f"{one} < {other} ? {other} : {one}" if kind == "max" else f"{other} < {one} ? {other} : {one}"


class Emitter:
    """Writes the lines that compute expressions at one place of the code; `known` has the values computed before."""

    def __init__(self, context: Context, load: Load, known: Mapping[Expr, str] | None = None) -> None:
        self.context = context
        self.load = load
        self.known: dict[Expr, str] = dict(known or {})
        self.inverse: dict[Expr, str] = {}  # divisors, and the names of their reciprocals
        self.lines: list[str] = []
        self.pick: Callable[[Expr, str], str] | None = None  # an expression at another place along the reduced axis

    def child(self, load: Load) -> Emitter:
        """An emitter for an inner scope, in which all values known here are known."""
        inner = Emitter(self.context, load, self.known)
        inner.inverse = dict(self.inverse)
        inner.pick = self.pick
        return inner

    def value(self, expr: Expr) -> str:
        """The name or text of an expression; adds the lines that compute it."""
        if expr in self.known:
            return self.known[expr]
        if expr.op == "const":
            return literal(expr.number, expr.ctype)
        if expr.op == "extent":
            text = f"static_cast<{expr.ctype}>({self.context.extent(expr.axes)})"
        elif expr.op in ("load", "index"):
            text = self.load(expr)
        elif expr.op == "element":
            text = self.context.place(expr, [self.value(a) for a in expr.args])
        elif expr.op == "reduce":
            raise Unsupported("a reduction inside a loop")
        elif expr.op == "pick":
            if self.pick is None:
                raise Unsupported("an element at another place")
            text = self.pick(expr.args[0], self.value(expr.args[1]))
        else:
            text = self._text(expr)
        name = self.context.fresh()
        self.lines.append(f"const {expr.ctype} {name} = {text};")
        self.known[expr] = name
        return name

    def hoist(self, exprs: Sequence[Expr], axes: frozenset[int]) -> None:
        """Compute the parts that do not depend on the axes, and the reciprocals of divisors among them."""
        stack, seen, order = list(reversed(exprs)), set[Expr](), list[Expr]()
        while stack:
            expr = stack.pop()
            if expr in seen or expr in self.known or expr.op == "const":
                continue
            seen.add(expr)
            order.append(expr)
            if expr.op != "reduce" and expr.free & axes:
                stack.extend(expr.args)
        for expr in order:
            if not expr.free & axes:
                self.value(expr)
        for expr in order:
            if expr.op == "div" and expr.free & axes and expr.ctype in ("float", "double"):
                below = expr.args[1]
                if not below.free & axes and below.op != "const" and below not in self.inverse:
                    name = self.context.fresh("inverse")
                    one = literal(1, expr.ctype)
                    self.lines.append(f"const {expr.ctype} {name} = {one} / {self.value(below)};")
                    self.inverse[below] = name

    def _text(self, expr: Expr) -> str:
        args = [self.value(a) for a in expr.args]
        op, kind, context = expr.op, expr.ctype, self.context
        if op == "div" and expr.args[1] in self.inverse:
            return f"{args[0]} * {self.inverse[expr.args[1]]}"
        if op == "div" and context.fast and kind == "float":
            return f"__fdividef({args[0]}, {args[1]})"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op == "neg":
            return f"-{args[0]}"
        if op == "not":
            return f"!{args[0]}"
        if op == "cast":
            return f"{args[0]} != 0" if kind == "bool" else f"static_cast<{kind}>({args[0]})"
        if op == "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if op in ("max", "min"):  # a first operand that is NaN stays, which fmaxf would drop
            sign = "<" if op == "max" else ">"
            return f"{args[0]} {sign} {args[1]} ? {args[1]} : {args[0]}"
        if op == "rsqrt":
            if context.device:
                return f"rsqrt{'f' if kind == 'float' else ''}({args[0]})"
            return f"{literal(1, kind)} / std::sqrt({args[0]})"
        return self._function(f"{op}_below" if is_small(expr.args[0]) else op, op, kind, args)

    def _function(self, form: str, op: str, kind: str, args: list[str]) -> str:
        context = self.context
        if kind == "float" and context.vector and f"vector_{op}" in MATH_FUNCTIONS:
            name = f"vector_{form}" if f"vector_{form}" in MATH_FUNCTIONS else f"vector_{op}"
            return context.call(name, *args)
        if kind == "float" and context.fast:
            if op in ("exp", "log", "log2", "sin", "cos", "pow"):
                return f"__{op}f({', '.join(args)})"
            if op == "tanh":
                return context.call("fast_tanh", *args)
        if op == "abs":
            return f"fabs{'f' if kind == 'float' else ''}({args[0]})" if kind != "int64_t" else f"llabs({args[0]})"
        if kind == "int64_t":
            raise Unsupported(f"{op} of integers")
        prefix = "" if context.device else "std::"
        suffix = "f" if context.device and kind == "float" else ""
        return f"{prefix}{op}{suffix}({', '.join(args)})"


def wide(product: str) -> str:
    """A product in C, in 64 bits where its first factors are numbers whose product needs them."""
    factors = product.split(" * ")
    first = list(takewhile(str.isdigit, factors))
    if len(first) > 1 and math.prod(map(int, first)) > _MOST_INT:
        factors[0] = f"int64_t({factors[0]})"
    return " * ".join(factors)


def nest(lines: Iterable[str]) -> list[str]:
    """Indented lines; preprocessor lines stay at the margin."""
    return [line if line.startswith("#") else f"  {line}" for line in lines]


def stored(context: Context, store: Store, value: str) -> str:
    """A value converted to the element type of the tensor that the store writes."""
    kind = context.element(store.target)
    return value if kind == store.expr.ctype else f"static_cast<{kind}>({value})"


def length(layout: KernelLayout, axes: Iterable[int], workload: Workload) -> int:
    """The number of elements of a group of axes in a workload."""
    return math.prod(size_of(layout.axes.extent(axis), workload.sizes) for axis in axes)


def lengths(context: Context, axes: Collection[int]) -> list[int]:
    """The distinct numbers of elements of a group of axes in the task's workloads, smallest first."""
    return sorted({length(context.layout, axes, workload) for workload in context.problem.task.workloads})


def levels(stage: TemplateStage) -> list[list[Expr]]:
    """The reductions of a stage in levels: a reduction needs results of earlier levels only."""
    level: dict[Expr, int] = {}
    for found in stage.reduces:
        inner = [level[r] for r in subexpressions(*found.args) if r in level]
        level[found] = 1 + max(inner, default=-1)
    return [[r for r in stage.reduces if level[r] == n] for n in range(max(level.values(), default=-1) + 1)]


def is_small(expr: Expr) -> bool:
    """Whether an expression is known to be at most 88, so that its exponential fits a float."""
    if expr.op == "sub":
        value, largest = expr.args
        return largest.op == "reduce" and largest.name == "max" and largest.args[0] is value
    if expr.op == "min":
        return any(e.op == "const" and e.number <= 88 for e in expr.args)
    return expr.op == "neg" and expr.args[0].op == "abs"


def softmax_pair(stage: TemplateStage) -> tuple[Expr, Expr] | None:
    """A maximum and the sum of exponentials shifted by it, which one pass can compute together; None without one."""
    for total in stage.reduces:
        (operand,) = total.args
        if total.name == "sum" and operand.op == "exp" and operand.args[0].op == "sub":
            value, largest = operand.args[0].args
            if largest.op == "reduce" and largest.name == "max" and largest.args[0] is value:
                return largest, total
    return None
