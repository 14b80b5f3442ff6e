"""Profiling as it is done: a real compiler's report, real processes under a tool that stands in for Nsight Compute."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.strategies.problems import make_problem

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.worker_pool import host_environ, make_scratch_folder, readable_paths
from warpsmith.hardware.device import Device, select_device
from warpsmith.kernel_templates import strategies_in_source
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Environment, Evaluation, Resources, Status, WorkloadResult
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task
from warpsmith.profiling import cpu_report, ncu, torch_timings
from warpsmith.profiling.digest import Bottleneck, Diagnosis, Rank, compose_digest
from warpsmith.profiling.profiler import EVALUATION, Profile, Profiler, choose_workload
from warpsmith.tasks.load import load_task
from warpsmith.verification.standalone_run import InputFiles, StandaloneCandidate, StandaloneSettings

LOGS = Path(__file__).parent / "ncu"
GPU = Device(DeviceKind.CUDA, 0, "a GPU", "sm_90a", "cuda|a GPU|none")

SCALAR = """\
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* to = out + r * cols;
    float sum = 0.0f;
    for (int64_t c = 0; c < cols; ++c) sum += in[c];
    for (int64_t c = 0; c < cols; ++c) {
      if (in[c] > 1e30f) break;
      to[c] = in[c] / sum;
    }
    for (int64_t c = 0; c < cols; ++c) to[c] = std::exp(to[c]);
  }
  return 0;
}
"""
GOOD = """\
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
#pragma omp parallel for
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = 2.0f * x[i];
  return 0;
}
"""
ONE_THREAD = GOOD.replace("#pragma omp parallel for\n", "")


def evaluated(share: float, *, spill_bytes: int = 0, threads: int = 8, ok: bool = True) -> Evaluation:
    environment = Environment("a device", "cpu", "g++", "2", threads=threads)
    if not ok:
        return Evaluation("softmax", "0", Status.WRONG, "it is wrong.", environment, "fp32")
    axes = (("rows", 1024), ("cols", 1024))
    result = WorkloadResult("1024x1024", axes, 0.01 / share, "batched", (), 0.0, 1.0, 0.01, 8 << 20, 1 << 20, 2, "fp64")
    spills = (Resources("k", registers=255, spill_bytes=spill_bytes),) if spill_bytes else ()
    return Evaluation("softmax", "0", Status.OK, "", environment, "fp32", (result,), spills)


def real(problem: Problem, kind: str = "cpu") -> Problem:
    return replace(problem, contract=backend_named(kind).contract(problem.task))


def on_cpu(source: str, share: float = 0.2, zone: str = "memory") -> Profile:
    candidate = Candidate((SourceFile("kernel.cpp", source),), "cpu")
    with Profiler(select_device("cpu")) as profiler:
        return profiler.profile("task.py", candidate, real(make_problem(backend="cpu", zone=zone)), evaluated(share))


def test_loops_that_were_not_vectorised_are_named_with_the_reason() -> None:
    # Two loops are shown, and whether the sum is one of them depends on the machine.
    digest = on_cpu(SCALAR.replace("for (int64_t c = 0; c < cols; ++c) sum += in[c];", "sum = in[0];")).digest

    assert digest is not None
    assert digest.bottleneck is Bottleneck.NOT_VECTORISED
    assert f"The compiler ({digest.source}) left" in digest.sentence
    assert "calls exp, for which the compiler has no vector form" in digest.text
    assert "vector-exp" in digest.strategies


REMARKS = """\
kernel.cpp:3:30: missed: couldn't vectorize loop
kernel.cpp:3:30: missed: not vectorized: loop nest containing two or more consecutive inner loops cannot be vectorized
kernel.cpp:12:32: missed: couldn't vectorize loop
kernel.cpp:12:58: missed: not vectorized: no vectype for stmt: _88 = *_87;
 scalar_type: float
kernel.cpp:9:7: missed: couldn't vectorize loop
kernel.cpp:9:7: missed: not vectorized: control flow in loop.
kernel.cpp:7:32: missed: couldn't vectorize loop
kernel.cpp:2:9: missed: not vectorized: unsupported use in stmt.
/usr/include/c++/12/bits/stl_algo.h:100:3: missed: couldn't vectorize loop
kernel.cpp:2:9: missed: not vectorized: vectorization is not profitable.
"""


def test_a_report_is_turned_into_words() -> None:
    candidate = Candidate((SourceFile("kernel.cpp", SCALAR),), "cpu")

    found = cpu_report.parse_report(REMARKS, candidate, "g++ 12.2.0")

    assert [(loop.line, loop.reason) for loop in found.scalar] == [
        (7, "its sum or maximum may not be reordered without permission"),
        (8, "a branch or an early exit in it"),
        (12, "it calls exp, for which the compiler has no vector form"),
    ]
    done = "kernel.cpp:12:32: optimized: loop vectorized using 32 byte vectors\n"
    assert [loop.line for loop in cpu_report.parse_report(REMARKS + done, candidate, "").scalar] == [7, 8]
    (suspect,) = cpu_report.diagnoses(found, candidate, make_problem(backend="cpu"), evaluated(0.2))
    assert suspect.evidence[1:] == (
        "the loop at kernel.cpp:8: a branch or an early exit in it",
        "1 loop more; 20 % of the hardware limit",
    )


def test_only_innermost_loops_are_reported() -> None:
    """g++ gives the reason of the outer loop as that of a statement in it."""
    remarks = """\
kernel.cpp:3:30: missed: couldn't vectorize loop
kernel.cpp:5:30: missed: not vectorized: no vectype for stmt: _88 = *_87;
kernel.cpp:8:32: optimized: loop vectorized using 32 byte vectors
"""
    assert cpu_report.parse_report(remarks, Candidate((SourceFile("kernel.cpp", SCALAR),), "cpu"), "").scalar == ()
    nested = "for (int i = 0; i < n; ++i)  // of rows\n  for (int k = 0; k < n; ++k) f(i, k);\n"
    blamed = "kernel.cpp:{}:1: missed: couldn't vectorize loop\n"
    for line, expected in ((1, []), (2, [2])):
        found = cpu_report.parse_report(blamed.format(line), Candidate((SourceFile("kernel.cpp", nested),), "cpu"), "")
        assert [loop.line for loop in found.scalar] == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("_mm_stream_si128(to + i, _mm_loadu_si128(from + i));", []),
        ("_mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));", []),
        ("vst1q_f32(to + i, vld1q_f32(from + i));", []),
        ("to[i] = my_mm_load(from[i]);", [1]),
    ],
)
def test_a_loop_of_vector_instructions_by_hand_is_not_called_scalar(statement: str, expected: list[int]) -> None:
    source = f"for (int i = 0; i < n; i += 4)\n  {statement}\n"
    remarks = "kernel.cpp:1:1: missed: couldn't vectorize loop\n"
    found = cpu_report.parse_report(remarks, Candidate((SourceFile("kernel.cpp", source),), "cpu"), "")
    assert [loop.line for loop in found.scalar] == expected


def test_strategies_that_a_kernel_has_are_not_advised() -> None:
    diagnosis = Diagnosis(Bottleneck.NOT_VECTORISED, "It is slow.", (), ("simd", "vector-exp"), Rank.WASTE, 0.5)
    digest = compose_digest([diagnosis], source="g++")
    assert digest.without(strategies_in_source("cpu", SCALAR)).text.endswith("Try: simd, vector-exp.")
    assert digest.without(strategies_in_source("cpu", "#pragma omp simd\n" + SCALAR)).text.endswith("Try: vector-exp.")
    assert "Try" not in digest.without(strategies_in_source("cpu", "#pragma omp simd\nvector_exp(x);")).text


def test_a_report_of_clang_is_read_too() -> None:
    candidate = Candidate((SourceFile("kernel.cpp", SCALAR),), "cpu")
    log = """\
kernel.cpp:7:40: remark: loop not vectorized: cannot prove it is safe to reorder floating-point operations
kernel.cpp:7:5: remark: loop not vectorized [-Rpass-missed=loop-vectorize]
kernel.cpp:12:5: remark: vectorized loop (vectorization width: 8, interleaved count: 4) [-Rpass=loop-vectorize]
"""
    found = cpu_report.parse_report(log, candidate, "clang++")

    assert [(loop.line, loop.strategies) for loop in found.scalar] == [(7, ("simd", "multiple-accumulators"))]
    assert found.vectorised == 1


def test_a_loop_that_was_vectorised_is_not_blamed() -> None:
    digest = on_cpu(GOOD).digest

    assert digest is not None
    assert digest.bottleneck is Bottleneck.LATENCY
    assert "scalar" not in digest.text


def test_a_kernel_on_one_thread_and_one_at_its_limit_are_told_so() -> None:
    alone, near = on_cpu(ONE_THREAD).digest, on_cpu(SCALAR, share=0.9).digest
    tiny = on_cpu(SCALAR, zone="latency").digest

    assert alone is not None
    assert (alone.bottleneck, alone.evidence[0]) == (Bottleneck.ONE_THREAD, "1 of 8 threads")
    assert near is not None
    assert near.bottleneck is Bottleneck.BANDWIDTH
    assert tiny is not None
    assert (tiny.bottleneck, tiny.strategies[0]) == (Bottleneck.LAUNCH, "serial-when-small")


def test_what_is_not_valid_is_not_profiled() -> None:
    candidate = Candidate((SourceFile("kernel.cpp", GOOD),), "cpu")
    with Profiler(select_device("cpu")) as profiler:
        found = profiler.profile("task.py", candidate, make_problem(backend="cpu"), evaluated(0.5, ok=False))

    assert found.digest is None
    assert "only a valid candidate" in found.reason


# --- without and with a tool for the GPU ---


def test_where_no_profiler_can_look_the_evaluation_speaks() -> None:
    text = "import triton\n@triton.jit\ndef k(x): ...\ndef launch(x, out): ...\n"
    candidate = Candidate((SourceFile("kernel.py", text),), "triton")
    problem = make_problem(backend="triton")
    with Profiler(GPU) as profiler:
        spilling = profiler.profile("task.py", candidate, problem, evaluated(0.2, spill_bytes=512))
        waiting = profiler.profile("task.py", candidate, problem, evaluated(0.2))

    assert spilling.reason
    assert spilling.digest is not None
    assert (spilling.digest.bottleneck, spilling.digest.source) == (Bottleneck.SPILLS, EVALUATION)
    assert waiting.digest is not None
    assert "without counters the cause is unknown" in waiting.digest.text


def test_times_of_kernels_tell_gaps_from_work(tmp_path: Path) -> None:
    def first(*rows: tuple[str, float, float]) -> Diagnosis:
        path = tmp_path / torch_timings.FILE
        path.write_text(json.dumps([{"kernel": name, "start_us": a, "end_us": b} for name, a, b in rows]))
        found = torch_timings.KernelTimes(torch_timings.read(path))
        return next(torch_timings.diagnoses(found))

    gaps = first(("a(float*)", 0.0, 10.0), ("void b<4>(float*)", 40.0, 50.0))
    assert gaps.bottleneck is Bottleneck.LAUNCH
    assert gaps.evidence == ("2 kernels a call", "60 % of the 50.0 µs on the device are gaps")
    assert first(("a", 0.0, 2.0)).bottleneck is Bottleneck.LAUNCH
    shared = first(("a", 0.0, 10.0), ("void b<4>(float*)", 11.0, 41.0))
    assert shared.evidence[0] == "b takes 75 % of 40.0 µs"
    assert list(torch_timings.diagnoses(torch_timings.KernelTimes((torch_timings.KernelTime("a", 0.0, 50.0),)))) == []
    (tmp_path / "broken.json").write_text('[{"kernel": "a"}]')
    assert torch_timings.read(tmp_path / "broken.json") == ()
    assert torch_timings.read(tmp_path / "missing.json") == ()


@pytest.fixture
def settings(cache_folder: Path) -> Iterator[StandaloneSettings]:
    made = make_scratch_folder()
    yield StandaloneSettings("cpu", 0, 2, host_environ(2), readable_paths("cpu"), 1 << 30, 60.0, made.path)
    made.remove()


@pytest.fixture
def standalone(
    settings: StandaloneSettings, cache_folder: Path, task_file: Callable[[str], Path]
) -> StandaloneCandidate:
    """A ReLU on the CPU with a thousand inputs: the tool that is run on it does not mind."""
    task: Task = load_task(task_file("relu")).task
    text = 'extern "C" int launch(const float* x, float* out, int64_t n, void*, void*) {\n'
    text += "  for (int64_t i = 0; i < n; ++i) out[i] = std::max(x[i], 0.0f);\n  return 0;\n}\n"
    backend = backend_named("cpu").configured(Paths(cache_folder), Limits())
    contract = backend.contract(task)
    built = backend.build(Candidate((SourceFile("relu.cpp", text),), "cpu"), contract, Target(DeviceKind.CPU))
    assert isinstance(built, Artifact)
    inputs = settings.folder / "inputs" / "case0"
    inputs.mkdir(parents=True)
    (inputs / "x.bin").write_bytes(struct.pack("1000f", *range(1000)))
    sample = InputFiles("case0", "small", {"n": 1000}, {"x": 4000}, {"out": 4000})
    return StandaloneCandidate(built.library, contract, task, (sample,), inputs.parent)


# Takes everything up to --log-file FILE as its own, then runs the rest, as the real one does.
TOOL = """#!/bin/sh
all="$*"
while [ "$1" != --log-file ]; do shift; done
log="$2"; shift 2
"$@" || exit 1
{body}
"""


def tool(folder: Path, body: str) -> Path:
    path = folder / "ncu"
    path.write_text(TOOL.replace("{body}", body))
    path.chmod(0o755)
    return path


def test_the_candidate_runs_under_the_tool_and_its_counters_come_back(
    settings: StandaloneSettings, standalone: StandaloneCandidate
) -> None:
    program = tool(settings.folder, f'cp {LOGS / "near_peak_copy.csv"} "$log"')

    counted = ncu.count(program, settings, standalone, "memory")

    assert counted.reason == ""
    assert [launch.kernel for launch in counted.launches] == ["copy4"]
    assert counted.confinement == ncu.CONFINEMENTS[0]


def test_a_tool_that_does_not_know_a_metric_is_asked_for_less(
    settings: StandaloneSettings, standalone: StandaloneCandidate
) -> None:
    body = 'case "$all" in *--metrics*) echo "==ERROR== Failed to find metric x" > "$log"; exit 1;; esac\n'
    body += f'cp {LOGS / "spilling.csv"} "$log"'

    counted = ncu.count(tool(settings.folder, body), settings, standalone, "memory")

    assert [launch.kernel for launch in counted.launches] == ["many_values"]


def test_without_rights_every_way_is_tried_and_the_reason_says_what_to_do(
    settings: StandaloneSettings, standalone: StandaloneCandidate
) -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    program = tool(settings.folder, f'echo "{said}" > "$log"; echo x >> {settings.folder}/tries; exit 1')

    counted = ncu.count(program, settings, standalone, "memory")

    assert counted.launches == ()
    assert counted.reason == ncu.NO_RIGHTS
    assert (settings.folder / "tries").read_text().count("x") == len(ncu.CONFINEMENTS)


def test_the_workload_to_profile_is_the_largest_small_one(task_file: Callable[[str], Path]) -> None:
    task = load_task(task_file("relu")).task
    sizes = {w.name: dict(w.axes)["n"] for w in task.workloads}
    found = choose_workload(task)

    assert found is not None
    assert sizes[found.name] == max(sizes.values())
    huge = replace(task, workloads=(replace(task.workloads[0], name="huge", axes=(("n", 1 << 34),)),))
    assert choose_workload(huge) is None
    both = replace(task, workloads=(*huge.workloads, replace(task.workloads[0], name="fits", axes=(("n", 1 << 20),))))
    assert choose_workload(both) is not None
    assert choose_workload(both) == both.workloads[1]


@pytest.mark.nvcc
def test_a_kernel_for_the_gpu_goes_through_the_tool(
    task_file: Callable[[str], Path], tmp_path: Path, cache_folder: Path
) -> None:
    """Build, inputs, tool, digest, as on a machine with a GPU; only that the tool does not start the kernel."""
    if not backend_named("cuda").available().build:
        pytest.skip("no nvcc")
    log = LOGS / "uncoalesced_transpose.csv"
    seen = tmp_path / "seen"
    body = f'while [ "$1" != --log-file ]; do shift; done\ncp {log} "$2"\n'
    body += f'for last; do :; done\ncat "$last" >> {seen}\necho >> {seen}\n'
    (tmp_path / "ncu").write_text("#!/bin/sh\n" + body)
    (tmp_path / "ncu").chmod(0o755)
    task = load_task(task_file("relu")).task
    bounds = (replace(make_problem().bounds[0], workload=task.workloads[0].name, zone="memory"),)
    problem = replace(make_problem(), task=task, bounds=bounds)
    text = "__global__ void k(const float* x, float* out) { out[threadIdx.x] = fmaxf(x[threadIdx.x], 0.0f); }\n"
    text += "int launch(const float* x, float* out, int64_t n, void*, void* stream) {\n"
    text += "  k<<<1, 32, 0, (cudaStream_t)stream>>>(x, out);\n  return 0;\n}\n"
    candidate = Candidate((SourceFile("relu.cu", text),), "cuda")
    environ = {**os.environ, "CUDA_HOME": "", "CUDA_PATH": "", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    if ncu.find(environ) != tmp_path / "ncu":
        pytest.skip("Nsight Compute is installed where it is found first")
    with Profiler(GPU, paths=Paths(cache_folder), environ=environ) as profiler:
        found = [profiler.profile(task_file("relu"), candidate, problem, evaluated(0.2)) for _ in range(2)]

    assert [each.reason for each in found] == ["", ""]
    assert all(each.digest is not None and each.digest.bottleneck is Bottleneck.UNCOALESCED for each in found)
    plans = [json.loads(line) for line in seen.read_text().splitlines()]
    count = dict(task.workloads[0].axes)["n"]
    assert [plan["cases"][0]["inputs"] for plan in plans] == [{"x": 4 * count}] * 2
    folders = {plan["cases"][0]["folder"] for plan in plans}
    assert len(folders) == 1  # inputs are written once for a task
    assert not Path(folders.pop()).exists()  # and removed at the end
