"""CUDA: walking a tensor in packs of neighbouring elements, with loads that are wide where memory allows it.

CUDA: a loop that loads several packs before it uses any, so that all of them are on their way together.

Left to itself, nvcc may use the first packs before it loads the next, to get by with fewer registers: a gain where more
blocks fit on a multiprocessor that way, a loss where shared memory has room for one block only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernel_templates.emitter import Context, Emitter, nest
from warpsmith.kernel_templates.expressions import Expr, loads
from warpsmith.kernel_templates.plan_switches import PlanSwitches
from warpsmith.model.contract import ArgumentKind


@dataclass(frozen=True)
class CudaKernel:
    """Kernels of one stage and the lines that launch them."""

    text: str
    launch: list[str]
    workspace: str = ""  # how many bytes are taken after it, in C; "" where it takes none of its own


def parameters(context: Context) -> str:
    """The parameters every kernel gets: all tensors, all axes, all workspace tensors."""
    words = []
    for argument in context.problem.contract.arguments:
        if argument.kind in (ArgumentKind.INPUT, ArgumentKind.OUTPUT):
            words.append(f"{argument.ctype} __restrict__ {argument.name}")
        elif argument.kind is ArgumentKind.AXIS:
            words.append(f"{argument.ctype} {argument.name}")
    words += [f"{context.element(name)}* __restrict__ {name}" for name in context.layout.slots]
    return ", ".join(words)


def arguments(context: Context) -> str:
    """The same in a call."""
    kinds = (ArgumentKind.INPUT, ArgumentKind.OUTPUT, ArgumentKind.AXIS)
    return ", ".join([a.name for a in context.problem.contract.arguments if a.kind in kinds] + [*context.layout.slots])


def unrolled(on: PlanSwitches) -> str:
    """The pragma before a loop to be unrolled; nvcc expands no macro in it, but it evaluates constants."""
    on.macro("UNROLL", "unroll", "factor")
    return "#pragma unroll UNROLL_BY"


class Packs:
    """Indices and loads for packs of W elements along the fastest group of axes."""

    def __init__(self, context: Context, outer: Sequence[tuple[int, ...]], along: tuple[int, ...]) -> None:
        self.context = context
        self.outer = outer
        self.along = along
        self.bound = frozenset(along)
        self.where = [(group, f"o{n}_") for n, group in enumerate(outer)]
        self._names: dict[Expr, str] = {}
        self._many = ""

    @property
    def items(self) -> str:
        """How many steps the outer groups have together."""
        return " * ".join(f"({self.context.extent(g)})" for g in self.outer) or "1"

    @property
    def length(self) -> str:
        """How many elements lie along the fastest group."""
        return self.context.extent(self.along)

    def indices(self) -> list[str]:
        """The place of pack p_ in every group."""
        if not self.outer:
            return ["const int64_t i_ = p_ * W;"]
        lines = [f"const int64_t i_ = p_ * W % ({self.length});", f"int64_t o_ = p_ * W / ({self.length});"]
        return [*lines, *split(self.context, self.outer)]

    def loading(self, exprs: Sequence[Expr], many: str) -> list[str]:
        """Lines that load the packs of all loads that are contiguous; `many` is the index of one of several packs."""
        lines = []
        self._many = many
        for load in loads(*exprs):
            if load.free & self.bound and self.context.stride(load.axes, self.along) == "1":
                name = self.context.fresh("pack")
                self._names[load] = name
                place = f"[{many}]" if many else "[0]"
                lines.append(f"{name}{place} = load_pack<W>({self.pointer(load.name, load.axes)});")
        return lines

    def declared(self, count: str) -> list[str]:
        """The arrays that `loading` fills."""
        return [f"Pack<{self.context.element(e.name)}, W> {name}[{count}];" for e, name in self._names.items()]

    def pointer(self, name: str, axes: Sequence[int]) -> str:
        """Where a pack of a tensor begins."""
        offset = self.context.offset(axes, [*self.where, (self.along, "i_")])
        return f"{self.context.names.get(name, name)} + {offset}"

    def fixed(self, exprs: Sequence[Expr]) -> Emitter:
        """Computes what is the same for all elements of a pack."""

        def load(expr: Expr) -> str:
            text = f"{self.context.names.get(expr.name, expr.name)}[{self.context.offset(expr.axes, self.where)}]"
            return text if self.context.element(expr.name) == expr.ctype else f"static_cast<{expr.ctype}>({text})"

        scope = Emitter(self.context, load)
        scope.hoist(exprs, self.bound)
        return scope

    def each(self, scope: Emitter) -> Emitter:
        """Writes one element j_ of the pack."""

        def load(expr: Expr) -> str:
            if expr in self._names:
                text = f"{self._names[expr]}[{self._many or '0'}].at[j_]"
            else:
                offset = self.context.offset(expr.axes, [*self.where, (self.along, "(i_ + j_)")])
                text = f"{self.context.names.get(expr.name, expr.name)}[{offset}]"
            return text if self.context.element(expr.name) == expr.ctype else f"static_cast<{expr.ctype}>({text})"

        return scope.child(load)


def split(context: Context, groups: Sequence[tuple[int, ...]]) -> list[str]:
    """An index o_ over all outer groups as one index per group."""
    lines = []
    for n in range(len(groups) - 1, -1, -1):
        extent = context.extent(groups[n])
        if n == 0:
            lines.append("const int64_t o0_ = o_;")
        else:
            lines += [
                f"const int64_t o{n}_ = o_ % ({extent});",
                f"o_ /= {extent};" if "*" not in extent else f"o_ /= ({extent});",
            ]
    return lines


_MOST_BYTES = 192  # that a thread loads before it uses any; one of 1024 threads has registers for 256 in all


@dataclass(frozen=True)
class Early:
    """A load that is made for several packs at once."""

    kind: str  # "Pack<float, W>"
    name: str  # of the array in which the packs wait
    value: str  # for pack p_


def walk_early(
    span: tuple[str, str, str],  # the first pack of a lane, where the packs end, and the lanes
    count: str,  # how many packs to load at once, where the registers suffice
    early: Sequence[Early],
    inside: Sequence[str],  # what is done with pack p_, which lies in place u_ of the arrays
) -> list[str]:
    """The loop of a lane over its packs of a row. nvcc keeps the order: it moves no load behind the first branch."""
    begin, end, lanes = span
    nbytes = " + ".join(f"sizeof({load.kind})" for load in early)

    def each(lines: Sequence[str]) -> list[str]:
        place = f"const int64_t p_ = begin_ + int64_t(u_) * {lanes};"
        guarded = [f"if (p_ < {end}) {{", *nest(lines), "}"]
        return ["#pragma unroll", "for (int u_ = 0; u_ < EARLY; ++u_) {", *nest([place, *guarded]), "}"]

    return [
        "// EARLY packs of a thread are on their way before it uses the first.",
        f"constexpr int ROOM = {_MOST_BYTES} / int({nbytes});",
        f"constexpr int EARLY = ROOM < 1 ? 1 : ROOM < {count} ? ROOM : {count};",
        f"for (int64_t begin_ = {begin}; begin_ < {end}; begin_ += int64_t(EARLY) * {lanes}) {{",
        *(f"  {load.kind} {load.name}[EARLY];" for load in early),
        *nest(each([f"{load.name}[u_] = {load.value};" for load in early])),
        *nest(each(inside)),
        "}",
    ]
