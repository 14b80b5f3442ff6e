"""Which strategies the templates can carry out for a kernel, and which a generated source contains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from warpsmith.backends.tunables import tunables
from warpsmith.core.registry import plugins
from warpsmith.core.search import Problem
from warpsmith.core.strategy import Choice, Parameter, Plan, Strategy, arch_number
from warpsmith.core.task import Precision
from warpsmith.strategies.templates.code import COSTLY, length, levels, softmax_pair
from warpsmith.strategies.templates.cuda_cluster import MOST_BLOCKS, clustered, row_bytes
from warpsmith.strategies.templates.cuda_row_launch import MOST_KEPT, MOST_SHARED_BYTES
from warpsmith.strategies.templates.cuda_shapes import depth_parts, few_tiles, starved, tile_rows
from warpsmith.strategies.templates.cuda_split import long_rows
from warpsmith.strategies.templates.graph import parts
from warpsmith.strategies.templates.stages import Kind, Layout, Stage, product_of

_FUNCTIONS = frozenset(("exp", "expm1", "tanh", "erf", "log", "log1p"))  # those that `functions` has vector forms of


def able(problem: Problem, layout: Layout) -> tuple[Strategy, ...]:
    """The strategies that make a difference to the code of this kernel, with the values that make sense for it."""
    names = _cpu(layout) if problem.backend == "cpu" else _cuda(problem, layout)
    catalogue = plugins("warpsmith.strategies")
    found = []
    for name, values in names.items():
        strategy: Strategy = catalogue[name]
        parameters = tuple(
            Parameter(p.name, values.get(p.name, p.values)) for p in strategy.parameters if values.get(p.name) != ()
        )
        needs = tuple(n for n in strategy.needs if n in names)
        if any(s.kind is Kind.PRODUCT for s in layout.stages):
            needs = _NEEDS.get((problem.backend, name), needs)
        excludes = tuple(n for n in strategy.excludes if n in names)
        found.append(replace(strategy, parameters=parameters, needs=needs, excludes=excludes))
    return tuple(found)


_NEEDS = {
    ("cpu", "register-tile"): ("packed-panels",),
    ("cpu", "packed-panels"): ("register-tile",),
    ("cuda", "register-tile"): ("shared-tile",),
    ("cuda", "split-k"): ("shared-tile",),
    ("cuda", "vector-loads"): ("shared-tile",),
}
"""What a strategy builds on in products of one language only."""

_WARP_ROW = 4096  # longer rows were never best with one warp each, on an H200
Values = Mapping[str, tuple[str, ...]]
_ANY: Values = {}
_FACTORS: Values = {"factor": ("4", "2", "8")}


def _is_columns(stage: Stage) -> bool:
    return stage.kind is Kind.ROWS and bool(stage.inner)


def _fuses(stage: Stage) -> bool:
    """Whether loops along a row can be joined, or a costly value kept for the last one."""
    groups = [[r for r in level if not r.name.startswith("arg")] for level in levels(stage)]
    if any(len(group) > 1 for group in groups):
        return True
    last = {e for r in groups[-1] for e in parts(*r.args) if e.op in COSTLY}
    return any(e in last for s in stage.stores if set(s.axes) & set(stage.along) for e in parts(s.expr))


def _cpu(layout: Layout) -> dict[str, Values]:
    stages = layout.stages
    kinds = {s.kind for s in stages}
    rows = [s for s in stages if s.kind is Kind.ROWS and not s.inner]
    columns = any(_is_columns(s) for s in stages)
    exprs = [s.expr for stage in stages for s in stage.stores]
    reduced = [r for s in stages if s.kind in (Kind.ROWS, Kind.WHOLE) and not s.inner for r in s.reduces]
    found: dict[str, Values] = {}
    if kinds & {Kind.MAP, Kind.ROWS, Kind.PRODUCT}:
        found["parallel-rows"] = found["static-chunks"] = _ANY
    if columns or Kind.PRODUCT in kinds:
        found["cache-blocking"] = _ANY
    if any(_fuses(s) for s in rows):
        found["fused-passes"] = _ANY
    if any(not r.name.startswith("arg") for r in reduced):
        found["multiple-accumulators"] = _ANY
    if any(set(store.axes) & set(s.along) for s in rows for store in s.stores) or Kind.MAP in kinds:
        found["non-temporal-stores"] = _ANY
    if any(softmax_pair(s) for s in rows):
        found["online-softmax"] = _ANY
    if Kind.PRODUCT in kinds:
        found["packed-panels"] = _ANY
        found["register-tile"] = {"rows": ("8", "4", "12")}
    found["simd"] = _ANY
    if Kind.WHOLE in kinds and not any(
        r.name.startswith("arg") for s in stages if s.kind is Kind.WHOLE for r in s.reduces
    ):
        found["two-stage-reduction"] = _ANY
    found["unroll"] = _FACTORS
    if any(e.op in _FUNCTIONS and e.ctype == "float" for e in parts(*exprs)):
        found["vector-exp"] = _ANY
    return found


def _cuda(problem: Problem, layout: Layout) -> dict[str, Values]:
    stages = layout.stages
    kinds = {s.kind for s in stages}
    rows = [s for s in stages if s.kind is Kind.ROWS and not s.inner]
    exprs = [s.expr for stage in stages for s in stage.stores]
    found: dict[str, Values] = {}
    wide = [_has_clusters(problem) and clustered(problem, layout, s)[0] for s in rows]
    if kinds - {Kind.PRODUCT}:
        found["block-size"] = _threads(problem, layout, rows, clustered=any(wide))
        found["read-only-loads"] = _ANY
        found["unroll"] = _factors(problem, layout, rows) if any(wide) else _FACTORS
    if Kind.MAP in kinds or rows or Kind.WHOLE in kinds:
        found["vector-loads"] = _ANY
    if Kind.MAP in kinds or Kind.WHOLE in kinds:
        found["grid-stride"] = _ANY
    long = [long_rows(problem, layout, s) for s in rows]
    if any(some for some, _ in long):
        found["split-rows"] = _ANY
    if any(wide):
        found["cluster-shared-memory"] = _ANY
    if not all(always for _, always in long):
        found["block-per-row"] = _ANY
    if any(wide) or not all(always for _, always in long):
        found |= dict.fromkeys(_short_rows(problem, layout, rows, MOST_BLOCKS if any(wide) else 1), _ANY)
    if rows or Kind.WHOLE in kinds:
        found["warp-shuffle-reduction"] = _ANY
    if any(softmax_pair(s) and not always for s, (_, always) in zip(rows, long, strict=True)):
        found["online-softmax"] = _ANY
    if Kind.MAP in kinds or any(set(store.axes) & set(s.along) for s in rows for store in s.stores):
        found["streaming-stores"] = _ANY
    if any(e.ctype == "float" and ((e.op in COSTLY and e.op != "erf") or e.op == "div") for e in parts(*exprs)):
        found["fast-intrinsics"] = _ANY
    if Kind.WHOLE in kinds:
        found["two-stage-reduction"] = {"block": ()}
        found["atomic-reduction"] = _ANY
    if Kind.PRODUCT in kinds:
        # Of those that exclude each other, the first is in the first kernel. A double buffer is faster than
        # asynchronous copies on an H200; that tensor cores are faster than either has not been measured.
        found["shared-tile"] = {"depth": ("8", "16", "32")}
        if _tensor_cores(problem, layout) and not starved(problem, layout):
            found["tensor-cores"] = _ANY
        found["register-tile"] = {"rows": tile_rows(problem, layout)}
        found |= {"double-buffer": _ANY, "async-copy": _ANY}
        found |= {"padded-shared": _ANY, "vector-loads": {"width": ("4",)}}
        if few_tiles(problem, layout):
            found["split-k"] = {"parts": depth_parts(problem, layout)}
        if _tensor_cores(problem, layout):
            found.setdefault("tensor-cores", _ANY)
    return found


def _has_clusters(problem: Problem) -> bool:
    strategy: Strategy = plugins("warpsmith.strategies")["cluster-shared-memory"]
    return arch_number(problem.arch) >= strategy.least_arch


def _short_rows(problem: Problem, layout: Layout, rows: Sequence[Stage], blocks: int) -> list[str]:
    """What is only for rows up to some length, as far as there is such a row."""
    shortest = min(length(layout, s.along, w) for s in rows for w in problem.task.workloads)
    nbytes = min(row_bytes(layout, s, shortest) for s in rows)
    limits = {
        "warp-per-row": shortest <= _WARP_ROW,
        "row-in-registers": shortest <= MOST_KEPT,
        "row-in-shared": nbytes <= MOST_SHARED_BYTES * blocks,
    }
    return [name for name, fits in limits.items() if fits]


def _threads(problem: Problem, layout: Layout, rows: Sequence[Stage], *, clustered: bool) -> Values:
    """Sizes of blocks, first the one with about 32 elements of a long row for each thread.

    On an H200 rows of 65535 floats take 10.1 ms with 256 threads each and 7.3 ms with 1024, or 5.0 and 7.6 ms where
    the eight blocks of a cluster share a row.
    """
    longest = max((length(layout, s.along, w) for s in rows for w in problem.task.workloads), default=0)
    wanted = longest // (MOST_BLOCKS if clustered else 1) // 32
    if wanted <= 256:
        return _ANY
    return {"threads": ("1024", "512", "256")} if wanted >= 1024 else {"threads": ("512", "1024", "256")}


def _factors(problem: Problem, layout: Layout, rows: Sequence[Stage]) -> Values:
    """How often to unroll: also so often that a thread of a cluster loads all it has of a row for softmax at once."""
    pairs = [s for s in rows if softmax_pair(s)]
    longest = max((length(layout, s.along, w) for s in pairs for w in problem.task.workloads), default=0)
    packs = longest / (MOST_BLOCKS * 1024 * 4)
    return {"factor": (*_FACTORS["factor"], "12")} if 8 < packs <= 12 else _FACTORS


def wary(problem: Problem, layout: Layout) -> frozenset[str]:
    """What may cost as much as it gives, and is not in the first kernel of a search.

    Measured on an H200: a grid-stride loop (the best kernels of gelu reached 0.96x to 1.01x with it, 1.02x without),
    several packs for each thread of an element-wise kernel (3.13 ms with four, 3.01 ms with one). Online softmax is a
    gain where a cluster shares a row (4.31 ms instead of 4.73 ms for rows of 393,216).
    """
    found = {"fast-intrinsics", "grid-stride", "online-softmax"}
    if not starved(problem, layout):
        found.add("split-k")
    if problem.backend == "cuda" and all(s.kind is Kind.MAP for s in layout.stages):
        found.add("unroll")
    rows = [s for s in layout.stages if s.kind is Kind.ROWS and not s.inner]
    long = [clustered(problem, layout, s)[1] for s in rows]
    if not all(long):
        found.add("cluster-shared-memory")
    elif long and problem.backend == "cuda":
        found.discard("online-softmax")
    return frozenset(found)


def _tensor_cores(problem: Problem, layout: Layout) -> bool:
    """Whether the precision class and the operands' types allow tensor cores."""
    product = next(product_of(s.reduces[0]) for s in layout.stages if s.kind is Kind.PRODUCT)
    if product is None:
        return False
    types = {layout.dtypes[product.left.name], layout.dtypes[product.right.name]}
    precision = problem.task.precision
    if types == {"float32"}:
        return precision is Precision.TF32
    return types in ({"float16"}, {"bfloat16"})


@dataclass(frozen=True)
class Mark:
    """How code shows that it carries a strategy."""

    pattern: str  # found in the code without comments
    settings: Mapping[str, str] = field(default_factory=dict)  # parameter -> macro, or a pattern with one group


_UNROLLED = r"#pragma GCC unroll (\d+)\n\s*for \(int64_t"
_MARKS: Mapping[str, Mapping[str, Mark]] = {
    "cpu": {
        "parallel-rows": Mark(r"#pragma omp parallel for"),
        "static-chunks": Mark(r"schedule\(static, CHUNK\)", {"chunk": "CHUNK"}),
        "simd": Mark(r"#pragma omp simd", {"width": "prefer-vector-width"}),
        "unroll": Mark(_UNROLLED, {"factor": _UNROLLED}),
        "fused-passes": Mark(r"\bfused\d+_"),
        "online-softmax": Mark(r"\+= ONLINE_BLOCK"),
        "vector-exp": Mark(r"\bvector_\w+\("),
        "non-temporal-stores": Mark(r"stream_out\("),
        "cache-blocking": Mark(r"\bTILE\b", {"tile": "TILE"}),
        "packed-panels": Mark(r"\bpanels_\b"),
        "register-tile": Mark(r"\bTILE_ROWS\b", {"rows": "TILE_ROWS"}),
        "multiple-accumulators": Mark(r"stretch\d+_ = along_ / (\d+)", {"count": r"stretch\d+_ = along_ / (\d+)"}),
        "two-stage-reduction": Mark(r"omp_get_thread_num\(\)", {"block": "REDUCE_BLOCK"}),
    },
    "cuda": {
        "vector-loads": Mark(r"\bVECTOR\b", {"width": "VECTOR"}),
        "block-size": Mark(r"\bTHREADS\b", {"threads": "THREADS"}),
        "grid-stride": Mark(r"\bBLOCKS_PER_SM\b", {"blocks-per-sm": "BLOCKS_PER_SM"}),
        "unroll": Mark(r"\bUNROLL(?:_BY)?\b", {"factor": "UNROLL"}),
        "warp-per-row": Mark(r"\bROWS_PER_BLOCK\b"),
        "block-per-row": Mark(r"row_ = blockIdx\.x;"),
        "row-in-registers": Mark(r"\bkept\d*_\[KEEP\]"),
        "row-in-shared": Mark(r"extern __shared__"),
        "online-softmax": Mark(r"\bonline_most_"),
        "streaming-stores": Mark(r"__stcs\("),
        "read-only-loads": Mark(r"__ldg\("),
        "fast-intrinsics": Mark(r"__expf\(|__fdividef\(|__logf\(|tanh\.approx|__powf\(|__sinf\(|__cosf\("),
        "warp-shuffle-reduction": Mark(r"__shfl_xor_sync"),
        "two-stage-reduction": Mark(r"finish\d*_<<<"),
        "atomic-reduction": Mark(r"atomicAdd\(ticket_"),
        "shared-tile": Mark(r"\bTILE_DEPTH\b", {"depth": "TILE_DEPTH"}),
        "register-tile": Mark(r"\bTHREAD_ROWS\b", {"rows": "THREAD_ROWS"}),
        "double-buffer": Mark(r"\bfetched_a_\b"),
        "padded-shared": Mark(r"\bPAD = 4\b"),
        "async-copy": Mark(r"__pipeline_memcpy_async\("),
        "cluster-shared-memory": Mark(r"\b__cluster_dims__\(CLUSTER\b", {"blocks": "CLUSTER"}),
        "split-rows": Mark(r"\bROW_BLOCKS\b", {"blocks": "ROW_BLOCKS"}),
        "split-k": Mark(r"\bSPLIT\b", {"parts": "SPLIT"}),
        "tensor-cores": Mark(r"wmma::mma_sync"),
    },
}  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def contained(backend: str, source: str, strategies: tuple[Strategy, ...]) -> Plan:
    """The plan that a source contains, read from its code and its macros."""
    code = _COMMENT.sub("", source)
    macros = {t.name: t.values[0] for t in tunables(source)}
    choices = []
    for strategy in strategies:
        mark = _MARKS[backend].get(strategy.name)
        if mark is None or not re.search(mark.pattern, code):
            continue
        needed = [word for word in mark.settings.values() if word.isupper()]
        if any(word not in macros for word in needed):
            continue
        settings = []
        for parameter in strategy.parameters:
            where = mark.settings.get(parameter.name, "")
            if where == "prefer-vector-width":
                value = "512" if where in code else "256"
            elif where in macros:
                value = macros[where]
            else:
                found = re.search(where, code) if where else None
                value = found[1] if found and found.groups() else parameter.values[0]
            settings.append((parameter.name, value))
        choices.append(Choice(strategy.name, tuple(sorted(settings))))
    return Plan(tuple(choices))
