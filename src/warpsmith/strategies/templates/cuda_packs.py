"""CUDA: walking a tensor in packs of neighbouring elements, with loads that are wide where memory allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.core.contract import ArgumentKind
from warpsmith.strategies.templates.code import Context, Emitter
from warpsmith.strategies.templates.graph import Expr, loads
from warpsmith.strategies.templates.switches import Switches


@dataclass(frozen=True)
class Kernel:
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


def unrolled(on: Switches) -> str:
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
