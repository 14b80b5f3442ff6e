"""Which strategies the templates can carry out for a kernel, and which a generated source contains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from warpsmith.backends.tunables import tunables
from warpsmith.kernel_templates.cuda_long_rows import MOST_BLOCKS, clustered, long_rows, row_bytes
from warpsmith.kernel_templates.cuda_product import depth_parts, few_tiles, leaves_sms_idle, tile_rows
from warpsmith.kernel_templates.cuda_rows import MOST_KEPT, MOST_SHARED_BYTES
from warpsmith.lowering.emitter import COSTLY, length, levels, softmax_pair
from warpsmith.lowering.expressions import subexpressions
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage, product_of
from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice, StrategyParameter, arch_number
from warpsmith.model.task import Precision
from warpsmith.strategies.catalogue import strategies

_FUNCTIONS = frozenset(("exp", "expm1", "tanh", "erf", "log", "log1p"))  # `math_functions` has vector forms of these


def able_strategies(problem: Problem, layout: KernelLayout) -> tuple[Strategy, ...]:
    """The strategies that change the code of a kernel, with the parameter values that suit its sizes."""
    names = _cpu(layout) if problem.backend == "cpu" else _cuda(problem, layout)
    catalogue = strategies()
    found = []
    for name, values in names.items():
        strategy = catalogue[name]
        parameters = tuple(
            StrategyParameter(p.name, values.get(p.name, p.values))
            for p in strategy.parameters
            if values.get(p.name) != ()
        )
        needs = tuple(n for n in strategy.needs if n in names)
        if any(s.kind is StageKind.PRODUCT for s in layout.stages):
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
"""The strategies that a strategy needs in matrix products, by backend and name."""

_WARP_ROW = 4096  # longer rows were never best with one warp each, on an H200
Values = Mapping[str, tuple[str, ...]]
_ANY: Values = {}
_FACTORS: Values = {"factor": ("4", "2", "8")}


def _is_columns(stage: TemplateStage) -> bool:
    return stage.kind is StageKind.ROWS and bool(stage.inner)


def _fuses(stage: TemplateStage) -> bool:
    """Whether two loops along a row can be joined, or the storing loop can reuse a costly value of a reduction."""
    groups = [[r for r in level if not r.name.startswith("arg")] for level in levels(stage)]
    if any(len(group) > 1 for group in groups):
        return True
    last = {e for r in groups[-1] for e in subexpressions(*r.args) if e.op in COSTLY}
    return any(e in last for s in stage.stores if set(s.axes) & set(stage.along) for e in subexpressions(s.expr))


def _cpu(layout: KernelLayout) -> dict[str, Values]:
    stages = layout.stages
    kinds = {s.kind for s in stages}
    rows = [s for s in stages if s.kind is StageKind.ROWS and not s.inner]
    columns = any(_is_columns(s) for s in stages)
    exprs = [s.expr for stage in stages for s in stage.stores]
    reduced = [r for s in stages if s.kind in (StageKind.ROWS, StageKind.WHOLE) and not s.inner for r in s.reduces]
    found: dict[str, Values] = {}
    if kinds & {StageKind.MAP, StageKind.ROWS, StageKind.PRODUCT}:
        found["parallel-rows"] = found["static-chunks"] = _ANY
    if columns or StageKind.PRODUCT in kinds:
        found["cache-blocking"] = _ANY
    if any(_fuses(s) for s in rows):
        found["fused-passes"] = _ANY
    if any(not r.name.startswith("arg") for r in reduced):
        found["multiple-accumulators"] = _ANY
    if any(set(store.axes) & set(s.along) for s in rows for store in s.stores) or StageKind.MAP in kinds:
        found["non-temporal-stores"] = _ANY
    if any(softmax_pair(s) for s in rows):
        found["online-softmax"] = _ANY
    if StageKind.PRODUCT in kinds:
        found["packed-panels"] = _ANY
        found["register-tile"] = {"rows": ("8", "4", "12")}
    found["simd"] = _ANY
    if StageKind.WHOLE in kinds and not any(
        r.name.startswith("arg") for s in stages if s.kind is StageKind.WHOLE for r in s.reduces
    ):
        found["two-stage-reduction"] = _ANY
    found["unroll"] = _FACTORS
    if any(e.op in _FUNCTIONS and e.ctype == "float" for e in subexpressions(*exprs)):
        found["vector-exp"] = _ANY
    return found


def _cuda(problem: Problem, layout: KernelLayout) -> dict[str, Values]:
    stages = layout.stages
    kinds = {s.kind for s in stages}
    rows = [s for s in stages if s.kind is StageKind.ROWS and not s.inner]
    exprs = [s.expr for stage in stages for s in stage.stores]
    found: dict[str, Values] = {}
    wide = [_has_clusters(problem) and clustered(problem, layout, s)[0] for s in rows]
    if kinds - {StageKind.PRODUCT}:
        found["block-size"] = _threads(problem, layout, rows, clustered=any(wide))
        found["read-only-loads"] = _ANY
        found["unroll"] = _factors(problem, layout, rows) if any(wide) else _FACTORS
    if StageKind.MAP in kinds or rows or StageKind.WHOLE in kinds:
        found["vector-loads"] = _ANY
    if StageKind.MAP in kinds or StageKind.WHOLE in kinds:
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
    if rows or StageKind.WHOLE in kinds:
        found["warp-shuffle-reduction"] = _ANY
    if any(softmax_pair(s) and not always for s, (_, always) in zip(rows, long, strict=True)):
        found["online-softmax"] = _ANY
    if StageKind.MAP in kinds or any(set(store.axes) & set(s.along) for s in rows for store in s.stores):
        found["streaming-stores"] = _ANY
    if any(
        e.ctype == "float" and ((e.op in COSTLY and e.op != "erf") or e.op == "div") for e in subexpressions(*exprs)
    ):
        found["fast-intrinsics"] = _ANY
    if StageKind.WHOLE in kinds:
        found["two-stage-reduction"] = {"block": ()}
        found["atomic-reduction"] = _ANY
    if StageKind.PRODUCT in kinds:
        # Of strategies that exclude each other, the first kernel uses the one listed first. On an H200 a double buffer
        # is faster than asynchronous copies; tensor cores have not been compared with them.
        found["shared-tile"] = {"depth": ("8", "16", "32")}
        if _tensor_cores(problem, layout) and not leaves_sms_idle(problem, layout):
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
    strategy = strategies()["cluster-shared-memory"]
    return arch_number(problem.arch) >= strategy.least_arch


def _short_rows(problem: Problem, layout: KernelLayout, rows: Sequence[TemplateStage], blocks: int) -> list[str]:
    """The strategies for short rows that the shortest row of the task is short enough for."""
    shortest = min(length(layout, s.along, w) for s in rows for w in problem.task.workloads)
    nbytes = min(row_bytes(layout, s, shortest) for s in rows)
    limits = {
        "warp-per-row": shortest <= _WARP_ROW,
        "row-in-registers": shortest <= MOST_KEPT,
        "row-in-shared": nbytes <= MOST_SHARED_BYTES * blocks,
    }
    return [name for name, fits in limits.items() if fits]


def _threads(problem: Problem, layout: KernelLayout, rows: Sequence[TemplateStage], *, clustered: bool) -> Values:
    """Threads of a block: first the number that leaves each thread about 32 elements of the longest row.

    On an H200 rows of 65535 floats take 10.1 ms with 256 threads each and 7.3 ms with 1024, or 5.0 and 7.6 ms where
    the eight blocks of a cluster share a row.
    """
    longest = max((length(layout, s.along, w) for s in rows for w in problem.task.workloads), default=0)
    wanted = longest // (MOST_BLOCKS if clustered else 1) // 32
    if wanted <= 256:
        return _ANY
    return {"threads": ("1024", "512", "256")} if wanted >= 1024 else {"threads": ("512", "1024", "256")}


def _factors(problem: Problem, layout: KernelLayout, rows: Sequence[TemplateStage]) -> Values:
    """Unroll factors; also 12 where a thread of a cluster then loads its whole part of a softmax row at once."""
    pairs = [s for s in rows if softmax_pair(s)]
    longest = max((length(layout, s.along, w) for s in pairs for w in problem.task.workloads), default=0)
    packs = longest / (MOST_BLOCKS * 1024 * 4)
    return {"factor": (*_FACTORS["factor"], "12")} if 8 < packs <= 12 else _FACTORS


def risky_strategies(problem: Problem, layout: KernelLayout) -> frozenset[str]:
    """Strategies that may cost more than they gain; the first kernel of a search leaves them out.

    Measured on an H200: a grid-stride loop (the best kernels of gelu reached 0.96x to 1.01x with it, 1.02x without),
    several packs for each thread of an element-wise kernel (3.13 ms with four, 3.01 ms with one). Online softmax is a
    gain where a cluster shares a row (4.31 ms instead of 4.73 ms for rows of 393,216).

    Measured on two cores with AVX-512: streaming stores (ReLU of 16,000,000 elements in memory that no cache holds:
    19.8 ms with them, 16.1 ms without) and chunks of a fixed number of items, which leave threads without work where
    there are few items (ReLU of 64,000 elements: 69 us with them, 39 us without).
    """
    if problem.backend == "cpu":
        return frozenset(("online-softmax", "non-temporal-stores", "static-chunks"))
    found = {"fast-intrinsics", "grid-stride", "online-softmax"}
    if not leaves_sms_idle(problem, layout):
        found.add("split-k")
    if all(s.kind is StageKind.MAP for s in layout.stages):
        found.add("unroll")
    rows = [s for s in layout.stages if s.kind is StageKind.ROWS and not s.inner]
    long = [clustered(problem, layout, s)[1] for s in rows]
    if not all(long):
        found.add("cluster-shared-memory")
    elif long:
        found.discard("online-softmax")
    return frozenset(found)


def _tensor_cores(problem: Problem, layout: KernelLayout) -> bool:
    """Whether the precision class and the operands' types allow tensor cores."""
    product = next(product_of(s.reduces[0]) for s in layout.stages if s.kind is StageKind.PRODUCT)
    if product is None:
        return False
    types = {layout.dtypes[product.left.name], layout.dtypes[product.right.name]}
    precision = problem.task.precision
    if types == {"float32"}:
        return precision is Precision.TF32
    return types in ({"float16"}, {"bfloat16"})


@dataclass(frozen=True)
class CodePattern:
    """A pattern by which a strategy is recognised in the code of a kernel."""

    pattern: str  # found in the code without comments
    settings: Mapping[str, str] = field(default_factory=dict)  # parameter -> macro, or a pattern with one group


_UNROLLED = r"#pragma GCC unroll (\d+)\n\s*for \(int64_t"
_STRETCH = r"stretch\d+_ = along_ / (\d+)"
_CODE_PATTERNS: Mapping[str, Mapping[str, CodePattern]] = {
    "cpu": {
        "parallel-rows": CodePattern(r"#pragma omp parallel for"),
        "static-chunks": CodePattern(r"schedule\(static, CHUNK\)", {"chunk": "CHUNK"}),
        "simd": CodePattern(r"#pragma omp simd", {"width": "prefer-vector-width"}),
        "unroll": CodePattern(_UNROLLED, {"factor": _UNROLLED}),
        "fused-passes": CodePattern(r"\bfused\d+_"),
        "online-softmax": CodePattern(r"\+= ONLINE_BLOCK"),
        "vector-exp": CodePattern(r"\bvector_\w+\("),
        "non-temporal-stores": CodePattern(r"stream_out\("),
        "cache-blocking": CodePattern(r"\bTILE\b", {"tile": "TILE"}),
        "packed-panels": CodePattern(r"\bpanels_\b"),
        "register-tile": CodePattern(r"\bTILE_ROWS\b", {"rows": "TILE_ROWS"}),
        "multiple-accumulators": CodePattern(_STRETCH, {"count": _STRETCH}),
        "two-stage-reduction": CodePattern(r"omp_get_thread_num\(\)", {"block": "REDUCE_BLOCK"}),
    },
    "cuda": {
        "vector-loads": CodePattern(r"\bVECTOR\b", {"width": "VECTOR"}),
        "block-size": CodePattern(r"\bTHREADS\b", {"threads": "THREADS"}),
        "grid-stride": CodePattern(r"\bBLOCKS_PER_SM\b", {"blocks-per-sm": "BLOCKS_PER_SM"}),
        "unroll": CodePattern(r"\bUNROLL(?:_BY)?\b", {"factor": "UNROLL"}),
        "warp-per-row": CodePattern(r"\bROWS_PER_BLOCK\b"),
        "block-per-row": CodePattern(r"row_ = blockIdx\.x;"),
        "row-in-registers": CodePattern(r"\bkept\d*_\[KEEP\]"),
        "row-in-shared": CodePattern(r"extern __shared__"),
        "online-softmax": CodePattern(r"\bonline_most_"),
        "streaming-stores": CodePattern(r"__stcs\("),
        "read-only-loads": CodePattern(r"__ldg\("),
        "fast-intrinsics": CodePattern(r"__expf\(|__fdividef\(|__logf\(|tanh\.approx|__powf\(|__sinf\(|__cosf\("),
        "warp-shuffle-reduction": CodePattern(r"__shfl_xor_sync"),
        "two-stage-reduction": CodePattern(r"finish\d*_<<<"),
        "atomic-reduction": CodePattern(r"atomicAdd\(ticket_"),
        "shared-tile": CodePattern(r"\bTILE_DEPTH\b", {"depth": "TILE_DEPTH"}),
        "register-tile": CodePattern(r"\bTHREAD_ROWS\b", {"rows": "THREAD_ROWS"}),
        "double-buffer": CodePattern(r"\bfetched_a_\b"),
        "padded-shared": CodePattern(r"\bPAD = 4\b"),
        "async-copy": CodePattern(r"__pipeline_memcpy_async\("),
        "cluster-shared-memory": CodePattern(r"\b__cluster_dims__\(CLUSTER\b", {"blocks": "CLUSTER"}),
        "split-rows": CodePattern(r"\bROW_BLOCKS\b", {"blocks": "ROW_BLOCKS"}),
        "split-k": CodePattern(r"\bSPLIT\b", {"parts": "SPLIT"}),
        "tensor-cores": CodePattern(r"wmma::mma_sync"),
    },
}  # fmt: skip
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def strategies_in_source(backend: str, source: str) -> frozenset[str]:
    """The names of the strategies whose code a source contains, whoever wrote the source."""
    code, macros = _COMMENT.sub("", source), {t.name for t in tunables(source)}
    return frozenset(
        name
        for name, mark in _CODE_PATTERNS.get(backend, {}).items()
        if re.search(mark.pattern, code) and all(word in macros for word in mark.settings.values() if word.isupper())
    )


def plan_in_source(backend: str, source: str, strategies: tuple[Strategy, ...]) -> Plan:
    """The plan that a source contains, read from its code and its macros."""
    code = _COMMENT.sub("", source)
    macros = {t.name: t.values[0] for t in tunables(source)}
    choices = []
    for strategy in strategies:
        mark = _CODE_PATTERNS[backend].get(strategy.name)
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
        choices.append(StrategyChoice(strategy.name, tuple(sorted(settings))))
    return Plan(tuple(choices))
