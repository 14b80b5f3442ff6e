"""CUDA: reductions along rows that are too long for one block, in two forms.

cluster: the blocks of a cluster share a row and exchange partial results through shared memory, which also keeps the
row where it fits. split: several blocks share a row and leave partial results in the workspace; each level of
reductions is a kernel of its own.
"""

from __future__ import annotations

from itertools import count

from warpsmith.kernel_templates.cuda_rows import MEMORY, SHARED, RowBody, RowKernel
from warpsmith.lowering.cuda_packs import CudaKernel, arguments, parameters, split
from warpsmith.lowering.emitter import Context, combined, initial, length, levels, nest
from warpsmith.lowering.expressions import Expr, loads
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage
from warpsmith.model.brief import Problem
from warpsmith.model.task import DTYPE_BYTES

MOST_BLOCKS = 8  # of a cluster, on every device that has clusters
_EARLY = "4"  # packs loaded before the first is used, for plans without `unroll`
_LEAST_BYTES = 100 << 10  # of a row; a shorter row fits into one block and leaves room for a second block


def row_bytes(layout: KernelLayout, stage: TemplateStage, columns: int) -> int:
    """The bytes of a row of the widest tensor that is read along the row."""
    read = [e for e in loads(*(s.expr for s in stage.stores)) if e.free & frozenset(stage.along)]
    return columns * max((DTYPE_BYTES[layout.dtypes[e.name]] for e in read), default=1)


def clustered(problem: Problem, layout: KernelLayout, stage: TemplateStage) -> tuple[bool, bool]:
    """Whether the rows of a stage are too long for one block in at least one workload, and in all workloads."""
    if stage.kind is not StageKind.ROWS or stage.inner:
        return False, False
    found = [row_bytes(layout, stage, length(layout, stage.along, w)) >= _LEAST_BYTES for w in problem.task.workloads]
    return any(found), all(found)


def cluster_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> CudaKernel:
    """The kernel of a reduction along the rows of [outer, along], with one cluster of blocks per row."""
    return _Clustered(context, stage, on, number).kernel()


class _Clustered(RowKernel):
    bounds = "__cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)"
    first = "lane_ == 0 && rank_ == 0"
    begin, end = "first_ + lane_", "last_"
    pack_at = "(p_ - first_)"
    kept_length = "(along_ / CLUSTER + 16)"  # a part is at most one pack longer than another

    def __init__(self, context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> None:
        super().__init__(context, stage, on, number)
        on.macro("CLUSTER", "cluster-shared-memory", "blocks")
        self.name = f"cluster{number}_"
        self.lanes, self.across = "THREADS", "across_cluster"
        keeps = "row-in-shared" in on and self.row_loads and self._reads() > 1
        self.modes = [MEMORY, SHARED] if keeps else [MEMORY]
        self.early = on.macro("UNROLL", "unroll", "factor") if "unroll" in on else _EARLY
        self._slots = count()

    def _places(self) -> list[str]:
        return [
            "const int64_t row_ = blockIdx.x / CLUSTER;",
            "const int rank_ = blockIdx.x % CLUSTER, lane_ = threadIdx.x;",
            "const int64_t first_ = packs_ * rank_ / CLUSTER, last_ = packs_ * (rank_ + 1) / CLUSTER;",
        ]

    def _blocks(self) -> str:
        return "outer_ * CLUSTER"

    def _passes(self, mode: str) -> list[str]:
        self._slots = count()
        return super()._passes(mode)

    def _all(self, value: str, kind: str) -> str:
        return f"{self.across}<{next(self._slots)}>({value}, {kind}_of())"

    def _store(self, body: RowBody) -> list[str]:
        """Stores between the two halves of the last barrier, so that no block waits for the stores of another."""
        cluster = "cooperative_groups::this_cluster()"
        return [
            f"{cluster}.barrier_arrive();  // this thread reads nothing more from other blocks",
            *super()._store(body),
            f"{cluster}.barrier_wait();  // no other block reads this block's shared memory any more",
        ]


_FEW_ROWS = 512
_LONG_ROW = 1 << 15
_CELL = 8  # bytes for a part of any type
_LEAST_PER_THREAD = 16  # elements; with fewer, one more block per row costs more than it gains


def long_rows(problem: Problem, layout: KernelLayout, stage: TemplateStage) -> tuple[bool, bool]:
    """Whether the rows of a stage are few and long in at least one workload, and in all workloads."""
    if stage.kind is not StageKind.ROWS or stage.inner or any(r.name.startswith("arg") for r in stage.reduces):
        return False, False
    outer = [axis for group in stage.outer for axis in group]
    found = [
        length(layout, outer, w) <= _FEW_ROWS and length(layout, stage.along, w) >= _LONG_ROW
        for w in problem.task.workloads
    ]
    return any(found), all(found)


def split_kernel(context: Context, stage: TemplateStage, on: PlanSwitches, number: int, used: str) -> CudaKernel:
    """The kernels of a reduction along the rows of [outer, along], with several blocks per row."""
    return _Split(context, stage, on, number).kernels(used)


class _Split(RowKernel):
    first = "lane_ == 0 && part_ == 0"
    begin, end = "first_ + lane_", "last_"

    def __init__(self, context: Context, stage: TemplateStage, on: PlanSwitches, number: int) -> None:
        super().__init__(context, stage, on, number)
        self.name = f"split{number}_"
        self.lanes, self.across, self.modes = "THREADS", "across_block", [MEMORY]
        self._cells = {r: n for n, r in enumerate(stage.reduces)}

    def kernels(self, used: str) -> CudaKernel:
        """One kernel for every level of reductions, and one that stores."""
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
        return CudaKernel(
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
        """Lines that combine the results of all blocks of a row, always in the same order."""
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
