"""CUDA: loops over a tensor in packs of neighbouring elements, each loaded and stored as one.

`walk_early` loads several packs before it uses the first. Without it nvcc may use a pack before it loads the next, to
save registers: a gain where more blocks then fit on a multiprocessor, a loss where shared memory holds one block only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.lowering.emitter import Context, Emitter, nest
from warpsmith.lowering.expressions import Expr, loads
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.model.contract import ArgumentKind


@dataclass(frozen=True)
class CudaKernel:
    """The kernels of one stage and the lines that launch them."""

    text: str
    launch: list[str]
    workspace: str = ""  # the bytes of workspace used after this stage, in C; "" if the stage uses none


def parameters(context: Context) -> str:
    """The parameter list of every kernel: all tensors, all axes, all workspace tensors."""
    words = []
    for argument in context.problem.contract.arguments:
        if argument.kind in (ArgumentKind.INPUT, ArgumentKind.OUTPUT):
            words.append(f"{argument.ctype} __restrict__ {argument.name}")
        elif argument.kind is ArgumentKind.AXIS:
            words.append(f"{argument.ctype} {argument.name}")
    words += [f"{context.element(name)}* __restrict__ {name}" for name in context.layout.slots]
    return ", ".join(words)


def arguments(context: Context) -> str:
    """The arguments of a kernel call, in the order of `parameters`."""
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
        """The number of index combinations of the outer groups, in C."""
        return " * ".join(f"({self.context.extent(g)})" for g in self.outer) or "1"

    @property
    def length(self) -> str:
        """The number of elements along the fastest group, in C."""
        return self.context.extent(self.along)

    def indices(self) -> list[str]:
        """Lines that compute the index of pack p_ in every group."""
        if not self.outer:
            return ["const int64_t i_ = p_ * W;"]
        lines = [f"const int64_t i_ = p_ * W % ({self.length});", f"int64_t o_ = p_ * W / ({self.length});"]
        return [*lines, *split(self.context, self.outer)]

    def loading(self, exprs: Sequence[Expr], many: str) -> list[str]:
        """Lines that load a pack for every contiguous load; `many` is the index of the pack, "" for a single pack."""
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
        """The pointer to the first element of a pack of a tensor."""
        offset = self.context.offset(axes, [*self.where, (self.along, "i_")])
        return f"{self.context.names.get(name, name)} + {offset}"

    def fixed(self, exprs: Sequence[Expr]) -> Emitter:
        """An emitter that has computed the values which are the same for all elements of a pack."""

        scope = Emitter(self.context, lambda e: self.context.read(e, self.where))
        scope.hoist(exprs, self.bound)
        return scope

    def each(self, scope: Emitter) -> Emitter:
        """An emitter for element j_ of a pack."""

        def load(expr: Expr) -> str:
            if expr in self._names:
                return self.context.typed(expr, f"{self._names[expr]}[{self._many or '0'}].at[j_]")
            return self.context.read(expr, [*self.where, (self.along, "(i_ + j_)")])

        return scope.child(load)


def split(context: Context, groups: Sequence[tuple[int, ...]]) -> list[str]:
    """Lines that turn the index o_ over all outer groups into one index per group."""
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


_MOST_BYTES = 192  # a thread loads before it uses them; in a block of 1024 threads each has 256 bytes of registers


@dataclass(frozen=True)
class Early:
    """A load made for several packs before the first of them is used."""

    kind: str  # "Pack<float, W>"
    name: str  # of the array that holds the packs
    value: str  # the load of pack p_, in C


def walk_early(
    span: tuple[str, str, str],  # the first pack of a lane, where the packs end, and the lanes
    count: str,  # packs to load at once, at most: registers may allow fewer
    early: Sequence[Early],
    inside: Sequence[str],  # computes with pack p_, which is element u_ of the arrays
) -> list[str]:
    """The loop of a lane over its packs of a row. nvcc keeps the loads first: it moves none behind the first branch."""
    begin, end, lanes = span
    nbytes = " + ".join(f"sizeof({load.kind})" for load in early)

    def each(lines: Sequence[str]) -> list[str]:
        place = f"const int64_t p_ = begin_ + int64_t(u_) * {lanes};"
        guarded = [f"if (p_ < {end}) {{", *nest(lines), "}"]
        return ["#pragma unroll", "for (int u_ = 0; u_ < EARLY; ++u_) {", *nest([place, *guarded]), "}"]

    return [
        "// A thread loads EARLY packs before it uses the first.",
        f"constexpr int ROOM = {_MOST_BYTES} / int({nbytes});",
        f"constexpr int EARLY = ROOM < 1 ? 1 : ROOM < {count} ? ROOM : {count};",
        f"for (int64_t begin_ = {begin}; begin_ < {end}; begin_ += int64_t(EARLY) * {lanes}) {{",
        *(f"  {load.kind} {load.name}[EARLY];" for load in early),
        *nest(each([f"{load.name}[u_] = {load.value};" for load in early])),
        *nest(each(inside)),
        "}",
    ]
