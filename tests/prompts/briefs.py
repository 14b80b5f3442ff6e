"""Briefs to render and to answer: one task, kernels that were judged, and whatever an operator shows of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from warpsmith.backends.source import backend_named
from warpsmith.model.brief import (
    Brief,
    DeviceFigures,
    Effect,
    Idea,
    Insight,
    Precedent,
    Problem,
    ShownCandidate,
    WorkloadBound,
)
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import SourceFile
from warpsmith.model.evaluation import Interval, Status
from warpsmith.model.method import MethodOperator, Move, Product, Show
from warpsmith.model.strategy import Strategy
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.search.next_brief import as_shown_by

TASK = Task(
    name="softmax",
    source="import torch\n\n\ndef softmax(x):\n    return torch.softmax(x, dim=-1)\n",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", ("rows", "cols"), TensorRole.INPUT),
        TensorSpec("out", "float32", ("rows", "cols"), TensorRole.OUTPUT),
    ),
    scalars=(),
    workloads=(
        Workload("short", (("rows", 64), ("cols", 1024))),
        Workload("tall", (("rows", 4096), ("cols", 1024))),
    ),
    precision=Precision.FP32,
    digest="digest",
    description="Softmax over the last axis.",
)
BOUNDS = (
    WorkloadBound("short", (("rows", 64), ("cols", 1024)), 524288, 262144, 0.00013, "latency", 0.00912),
    WorkloadBound("tall", (("rows", 4096), ("cols", 1024)), 33554432, 16777216, 0.00833, "memory", 0.02714),
)
DEVICES = {
    "cuda": ("NVIDIA H200", "cuda", "sm_90a"),
    "cpu": ("AMD EPYC 9534", "cpu", ""),
    "triton": ("NVIDIA H200", "cuda", "sm_90a"),
    "torch_module": ("NVIDIA H200", "cuda", "sm_90a"),
}


FIGURES = {
    "cuda": DeviceFigures(132, 50 << 20, 4.1e12, (("fp32", 51.2e12), ("tf32", 386e12), ("bf16", 742e12)), 2.1e-6),
    "cpu": DeviceFigures(64, 256 << 20, 3.9e11, (("fp32", 4.2e12),), 6.4e-6, "AVX-512"),
}


def problem(backend: str = "cuda") -> Problem:
    """Softmax in one language."""
    device, kind, arch = DEVICES[backend]
    contract = backend_named(backend).contract(TASK)
    return Problem(TASK, contract, backend, device, DeviceKind(kind), arch, BOUNDS, figures=FIGURES[kind])


def source(width: int) -> str:
    """A kernel in outline; it is read and never compiled."""
    return (
        f"__global__ void rows(const float* x, float* out, int64_t cols) {{\n"
        f"    // {width} floats at a time\n"
        f"    out[blockIdx.x * cols + threadIdx.x * {width}] = expf(x[threadIdx.x]);\n"
        "}\n"
        "\n"
        'extern "C" int launch(const float* x, float* out, int64_t rows_, int64_t cols, void* workspace, '
        "void* stream) {\n"
        f"    rows<<<rows_, 256, 0, (cudaStream_t)stream>>>(x, out, cols);  // {width}\n"
        "    return (int)cudaGetLastError();\n"
        "}\n"
    )


def cpu_source(width: int) -> str:
    """The same for a CPU."""
    return (
        'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, '
        "void* stream) {\n"
        f"#pragma omp parallel for  // {width} floats at a time\n"
        "    for (int64_t row = 0; row < rows; ++row) out[row * cols] = expf(x[row * cols]);\n"
        "    return 0;\n"
        "}\n"
    )


def on_cpu(brief: Brief) -> Brief:
    """The brief with kernels for a CPU in place of those for a GPU."""

    def ported(shown: ShownCandidate) -> ShownCandidate:
        files = tuple(
            SourceFile("kernel.cpp", cpu_source(shown.trial)) if file.name == "kernel.cu" else file
            for file in shown.files
        )
        reason = (
            shown.reason.replace("kernel.cu", "kernel.cpp").replace("blockIdxx.x", "roww").replace("blockIdxx", "roww")
        )
        resources = tuple(
            line.replace("32 registers, 0 bytes of shared memory", "vectorised") for line in shown.resources
        )
        return replace(shown, files=files, reason=reason, resources=resources)

    def one(shown: ShownCandidate | None) -> ShownCandidate | None:
        return ported(shown) if shown else None

    return replace(
        brief,
        best=one(brief.best),
        start=one(brief.start),
        failure=one(brief.failure),
        subject=one(brief.subject),
        parents=tuple(map(ported, brief.parents)),
        failures=tuple(map(ported, brief.failures)),
        retrieved=tuple(map(ported, brief.retrieved)),
        strategies=CPU_STRATEGIES[: len(brief.strategies)],
        cards=CPU_STRATEGIES[: len(brief.cards)],
        precedents=(),
    )


def exhibit(number: int, speedup: float, *, profile: str = "") -> ShownCandidate:
    """A valid kernel."""
    return ShownCandidate(
        id=f"{number:012x}",
        name=f"vector width {number}",
        files=(SourceFile("kernel.cu", source(number)),),
        thought=f"Loads {number} floats at a time, so that fewer instructions move the same bytes.",
        strategy=f"vector-loads(width={number})",
        status=Status.OK,
        reason="",
        trial=number,
        latency_ms=(("short", 0.00912 / speedup), ("tall", 0.02714 / speedup)),
        speedup=speedup,
        interval=Interval(speedup * 0.98, speedup * 1.03),
        share_of_floor=0.31 * speedup,
        error_share=0.1 + 0.01 * number,
        error_limit=2.1e-6,
        resources=("rows: 32 registers, 0 bytes of shared memory",),
        profile=profile,
    )


PROFILE = "Memory-bound: 71 % of the bandwidth is used, 12 % of the instructions wait for loads. Try wider loads."
BEST = exhibit(8, 1.6234, profile=PROFILE)
SLOWER = (exhibit(2, 1.0512), exhibit(4, 1.2841), exhibit(5, 1.3), exhibit(6, 1.41))
FAILED = ShownCandidate(
    id="f" * 12,
    name="one pass",
    files=(SourceFile("kernel.cu", source(3)),),
    thought="Keeps a running maximum.",
    strategy="online-softmax",
    status=Status.WRONG,
    reason="out[3, 17] is 0.25 instead of 0.5: the error 1.2e+05 is over the limit 1 in workload tall.",
    trial=7,
)
UNREADABLE = ShownCandidate(
    id="",
    name="",
    files=(SourceFile("reply.txt", "I would use shared memory."),),
    thought="",
    strategy="",
    status=Status.BUILD_ERROR,
    reason="The reply holds no code.",
    trial=9,
)
BROKEN = replace(
    FAILED,
    id="e" * 12,
    name="warp shuffle",
    files=(),
    status=Status.BUILD_ERROR,
    reason='kernel.cu:3: error: identifier "blockIdxx" is undefined\n    int row = blockIdxx.x;',
    trial=5,
)
INSIGHTS = (
    Insight(BEST.id, "Wider loads move the same bytes with fewer instructions.", 1.6234, 1.2642),
    Insight(SLOWER[0].id, "Two rows in one block hide the latency of the reduction.", 1.0512, None),
    Insight(SLOWER[1].id, "expf in place of exp saves half of the arithmetic.", 1.2841, 0.9712),
)
STRATEGIES = (
    Strategy(
        name="vector-loads",
        title="Wide loads and stores",
        backends=("cuda",),
        zones=("memory",),
        families=(),
        advice="Move 16 bytes per instruction with float4.",
        effect="Up to 1.3 times where bytes decide; none where a row is short.",
        example="float4 v = reinterpret_cast<const float4*>(x)[i];",
    ),
    Strategy(
        name="one-warp-per-row",
        title="A warp for each row",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("row_reduction",),
        advice="Reduce a row with shuffles in one warp.",
        effect="Saves the barriers of a block.",
        example="",
    ),
)
CPU_STRATEGIES = (
    Strategy(
        name="simd",
        title="Vector instructions",
        backends=("cpu",),
        zones=("memory", "compute"),
        families=("row_reduction",),
        advice="Let the compiler vectorise the inner loop.",
        effect="Up to 8 times where arithmetic decides.",
        example="#pragma omp simd",
    ),
)
NOTES = (("convert", "def softmax(x):  # [rows, cols]\n    return torch.softmax(x, dim=-1)"),)
IDEAS = (
    Idea(1, "vector loads of 16 bytes, one row per block", tries=1, speedup=1.6234, aligned="vector-loads(width=8)"),
    Idea(2, "one pass with a running maximum", tries=2, failures=2),
    Idea(3, "one warp per row, reduced with shuffles", "No barrier is needed.", parents=(4, 8), tries=1),
)
EFFECTS = (
    Effect("vector-loads", "memory", "row_reduction", 1.2431, 3),
    Effect("fast-intrinsics", "memory", "row_reduction", 0.9912, 1),
)
PRECEDENTS = (
    Precedent(
        *("layer_norm", "warp-per-row + vector-loads(width=4)", "NVIDIA A100", 1.84, 2.1),
        before="float v = row[i];",
        after="float4 v = row[i];",
    ),
    Precedent("rms_norm", "row-in-registers", "NVIDIA H200", 1.31, after="float kept[8];"),
    Precedent("relu", "vector-loads(width=4)", "NVIDIA A100", speedup=1.02),
)
REPAIR = MethodOperator("repair", Move.REPAIR, "common/repair", frozenset({Show.FAILURES}))


def brief(operator: MethodOperator, backend: str = "cuda", *, first: bool = False) -> Brief:
    """What the operator shows, of a run that has found a few kernels; `first`: of one that has found none yet."""
    shows = operator.shows if not first else operator.shows & {Show.NOTES, Show.STRATEGIES, Show.ROOFLINE}
    parents = (*SLOWER[1:], BEST, SLOWER[0])[: operator.parents]
    parents = tuple(sorted(parents, key=lambda each: each.speedup or 0, reverse=operator.order == "best_first"))
    as_shown = partial(as_shown_by, replace(operator, shows=shows))
    return Brief(
        number=12,
        operator=operator.name,
        move=operator.move,
        wording=operator.wording,
        problem=problem(backend),
        seed=7,
        best=as_shown(BEST) if Show.BEST in shows else None,
        start=as_shown(SLOWER[0]) if Show.START in shows else None,
        parents=tuple(map(as_shown, parents)) if Show.PARENTS in shows else (),
        insights=INSIGHTS[: operator.insights] if Show.INSIGHTS in shows else (),
        failure=FAILED if operator.move is Move.REPAIR else None,
        attempt=1 if operator.move is Move.REPAIR else 0,
        failures=(BROKEN, UNREADABLE) if Show.FAILURES in shows else (),
        retrieved=tuple(map(as_shown, SLOWER[1:3])) if Show.RETRIEVED in shows else (),
        notes=NOTES if Show.NOTES in shows else (),
        strategies=STRATEGIES if Show.STRATEGIES in shows else (),
        cards=STRATEGIES[1:] if Show.CARDS in shows else (),
        roofline=Show.ROOFLINE in shows,
        role=operator.role,
        product=operator.product,
        wanted=operator.yields if operator.product is Product.STRATEGIES else 0,
        idea=IDEAS[2] if operator.role in ("translator", "revisor") else None,
        subject=as_shown(SLOWER[1]) if operator.move is Move.ALIGN else None,
        ideas=IDEAS if Show.IDEAS in shows else (),
        effects=EFFECTS if Show.EFFECTS in shows else (),
        precedents=PRECEDENTS if replace(operator, shows=shows).recalls else (),
        lineage=tuple(map(as_shown, (SLOWER[1], BEST))) if Show.LINEAGE in shows else (),
        epoch=1 if first else 2,
        epochs=4,
    )


EVERYTHING = MethodOperator("everything", Move.CROSS, "evoengineer/crossover", frozenset(Show), parents=3, insights=3)
"""An operator that shows all there is."""
