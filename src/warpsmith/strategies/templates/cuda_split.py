"""CUDA: reductions along few, long rows. Several blocks share a row, and a kernel ends where each of them needs what
all have found; their parts lie in the workspace in between."""

from __future__ import annotations

from warpsmith.core.search import Problem
from warpsmith.strategies.templates.code import Context, combined, initial, length, levels, nest
from warpsmith.strategies.templates.cuda_packs import Kernel, arguments, parameters, split
from warpsmith.strategies.templates.cuda_row_launch import MEMORY
from warpsmith.strategies.templates.cuda_rows import Rows
from warpsmith.strategies.templates.graph import Expr
from warpsmith.strategies.templates.stages import Kind, Layout, Stage
from warpsmith.strategies.templates.switches import Switches

_FEW_ROWS = 512
_LONG_ROW = 1 << 15
_CELL = 8  # bytes for a part of any type
_LEAST_PER_THREAD = 16  # elements; below that, a block more costs more than it gives


def long_rows(problem: Problem, layout: Layout, stage: Stage) -> tuple[bool, bool]:
    """Whether the rows of a stage are few and long in some workload, and whether they are in all."""
    if stage.kind is not Kind.ROWS or stage.inner or any(r.name.startswith("arg") for r in stage.reduces):
        return False, False
    outer = [axis for group in stage.outer for axis in group]
    found = [
        length(layout, outer, w) <= _FEW_ROWS and length(layout, stage.along, w) >= _LONG_ROW
        for w in problem.task.workloads
    ]
    return any(found), all(found)


def split_kernel(context: Context, stage: Stage, on: Switches, number: int, used: str) -> Kernel:
    """[outer, along], each row by several blocks."""
    return _Split(context, stage, on, number).kernels(used)


class _Split(Rows):
    first = "lane_ == 0 && part_ == 0"
    begin, end = "first_ + lane_", "last_"

    def __init__(self, context: Context, stage: Stage, on: Switches, number: int) -> None:
        super().__init__(context, stage, on, number)
        self.name = f"split{number}_"
        self.lanes, self.across, self.modes = "THREADS", "across_block", [MEMORY]
        self._cells = {r: n for n, r in enumerate(stage.reduces)}

    def kernels(self, used: str) -> Kernel:
        """One for every level of reductions, and one that stores."""
        self.on.macro("ROW_BLOCKS", "split-rows", "blocks")
        known: dict[Expr, str] = {}
        texts = []
        for number, level in enumerate([*levels(self.stage), []]):
            body = self._body(MEMORY)
            body.scope.known |= known
            lines = self._head() + [line for r, name in known.items() for line in self._gathered(r, name)]
            if level:
                lines += self._reduce(body, level, None)
                known |= {r: body.scope.known[r] for r in level}
                leave = [f"{self._cell(r)}[row_ * parts_ + part_] = {known[r]};" for r in level]
                lines += ["if (lane_ == 0) {", *nest(leave), "}"]
            else:
                lines += ([] if self.wide else ["if (part_ > 0) return;"]) + self._store(body)
            head = f"{self.name}{number}_({parameters(self.context)}, char* shares_, int64_t parts_)"
            texts += ["template <int W>", f"__global__ void __launch_bounds__(THREADS) {head} {{", *nest(lines), "}"]
        outer = self._outer()
        cells = f"std::max<int64_t>(ROW_BLOCKS, {outer})"
        return Kernel(
            "\n".join(texts) + "\n",
            self._launches(used, len(levels(self.stage)) + 1),
            f"{used} + {cells} * {_CELL * len(self._cells)}",
        )

    def _head(self) -> list[str]:
        return [
            f"const int64_t along_ = {self.context.extent(self.stage.along)};",
            "const int64_t packs_ = along_ / W;",
            "const int64_t row_ = blockIdx.x / parts_, part_ = blockIdx.x % parts_, cells_ = gridDim.x;",
            "const int64_t first_ = packs_ * part_ / parts_, last_ = packs_ * (part_ + 1) / parts_;",
            "const int lane_ = threadIdx.x;",
            "int64_t o_ = row_;",
            *split(self.context, self.stage.outer),
        ]

    def _cell(self, found: Expr) -> str:
        return f"reinterpret_cast<{found.ctype}*>(shares_ + {_CELL * self._cells[found]} * cells_)"

    def _gathered(self, found: Expr, name: str) -> list[str]:
        """What all blocks of the row have found, in an order that does not change."""
        part = f"{self._cell(found)}[row_ * parts_ + b_]"
        return [
            f"{found.ctype} {name} = {initial(found.name, found.ctype)};",
            f"for (int64_t b_ = lane_; b_ < parts_; b_ += THREADS) {name} = {combined(found.name, name, part)};",
            f"{name} = {self._all(name, found.name)};",
        ]

    def _launches(self, used: str, count: int) -> list[str]:
        given = f"{arguments(self.context)}, shares_, parts_"

        def calls(width: str) -> list[str]:
            return [f"{self.name}{n}_<{width}><<<blocks_, THREADS, 0, stream_>>>({given});" for n in range(count)]

        lines = [
            f"char* shares_ = static_cast<char*>(workspace) + ({used});",
            f"const int64_t outer_ = {self._outer()};",
            f"const int64_t along_ = {self.context.extent(self.stage.along)};",
            f"const int64_t most_ = std::min<int64_t>(ROW_BLOCKS / outer_, along_ / (THREADS * {_LEAST_PER_THREAD}));",
            "const int64_t parts_ = std::max<int64_t>(1, most_);",
            "const int64_t blocks_ = outer_ * parts_;",
        ]
        if "vector-loads" not in self.on:
            return [*lines, *calls("1")]
        width = self.on.macro("VECTOR", "vector-loads", "width")
        return [*lines, f"if (along_ % {width} == 0) {{", *nest(calls(width)), "} else {", *nest(calls("1")), "}"]
