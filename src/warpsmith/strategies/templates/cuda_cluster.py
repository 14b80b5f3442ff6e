"""CUDA: reductions along rows that are too long for one block. The blocks of a cluster share a row, each keeps its part
in shared memory where it fits, and they read each other's results there."""

from __future__ import annotations

from itertools import count

from warpsmith.core.search import Problem
from warpsmith.core.task import DTYPE_BYTES
from warpsmith.strategies.templates.code import Context, length
from warpsmith.strategies.templates.cuda_packs import Kernel
from warpsmith.strategies.templates.cuda_row_launch import MEMORY, SHARED
from warpsmith.strategies.templates.cuda_rows import Body, Rows
from warpsmith.strategies.templates.graph import loads
from warpsmith.strategies.templates.stages import Kind, Layout, Stage
from warpsmith.strategies.templates.switches import Switches

MOST_BLOCKS = 8  # of a cluster, on every device that has clusters
_EARLY = "4"  # packs that are loaded before the first is used, where the plan says nothing about it
_LEAST_BYTES = 100 << 10  # of a row; a shorter one fits into one block, beside a second block on its multiprocessor


def row_bytes(layout: Layout, stage: Stage, columns: int) -> int:
    """What a row takes of the widest tensor that is read along it."""
    read = [e for e in loads(*(s.expr for s in stage.stores)) if e.free & frozenset(stage.along)]
    return columns * max((DTYPE_BYTES[layout.dtypes[e.name]] for e in read), default=1)


def clustered(problem: Problem, layout: Layout, stage: Stage) -> tuple[bool, bool]:
    """Whether the rows of a stage are too long for one block in some workload, and whether they are in all."""
    if stage.kind is not Kind.ROWS or stage.inner:
        return False, False
    found = [row_bytes(layout, stage, length(layout, stage.along, w)) >= _LEAST_BYTES for w in problem.task.workloads]
    return any(found), all(found)


def cluster_kernel(context: Context, stage: Stage, on: Switches, number: int) -> Kernel:
    """[outer, along], each row by the blocks of a cluster."""
    return _Clustered(context, stage, on, number).kernel()


class _Clustered(Rows):
    bounds = "__cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS)"
    first = "lane_ == 0 && rank_ == 0"
    begin, end = "first_ + lane_", "last_"
    pack_at = "(p_ - first_)"
    kept_length = "(along_ / CLUSTER + 16)"  # a part is at most one pack longer than another

    def __init__(self, context: Context, stage: Stage, on: Switches, number: int) -> None:
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

    def _store(self, body: Body) -> list[str]:
        """Between the two halves of a last meeting: no block waits for the others' stores."""
        cluster = "cooperative_groups::this_cluster()"
        return [
            f"{cluster}.barrier_arrive();  // this thread has read all it needs from other blocks",
            *super()._store(body),
            f"{cluster}.barrier_wait();  // all have: only now may this block leave, and its shared memory with it",
        ]
