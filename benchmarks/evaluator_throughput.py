"""How many candidates the evaluator judges per minute, end to end, on a cold build cache.

    python benchmarks/evaluator_throughput.py --device cuda --count 64 --compare-load-inline 4 --json result.json

One batch of distinct, right kernels for a small softmax goes through `Evaluator`, with the default settings:
workers started, every kernel built, checked against fp64 and timed against PyTorch. `--compare-load-inline`
does to a sample of the same kernels what KernelBench-style evaluators do: load_inline, allclose, an event
loop. `--guard-cost` judges part of the batch again, with all guards and with none, in turn. It measures
throughput; how fast the kernels are is not its subject.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.guards import all_guards
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths, Settings

SIZES = {"cuda": (1024, 1024), "cpu": (256, 256)}  # rows, cols

TASK = """
import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": @ROWS@, "cols": @COLS@}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
"""

CUDA_KERNEL = """
// Candidate @NUMBER@: one block of @THREADS@ threads per row, loops unrolled @UNROLL@ times.
template <typename Combine>
__device__ float across_block(float value, float neutral, Combine combine) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? partial[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

__global__ void __launch_bounds__(@THREADS@) softmax(const float* x, float* out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float peak = -INFINITY, sum = 0.f;
#pragma unroll @UNROLL@
  for (int64_t c = threadIdx.x; c < cols; c += @THREADS@) peak = fmaxf(peak, in[c]);
  peak = across_block(peak, -INFINITY, [] __device__(float a, float b) { return fmaxf(a, b); });
#pragma unroll @UNROLL@
  for (int64_t c = threadIdx.x; c < cols; c += @THREADS@) sum += expf(in[c] - peak);
  sum = across_block(sum, 0.f, [] __device__(float a, float b) { return a + b; });
#pragma unroll @UNROLL@
  for (int64_t c = threadIdx.x; c < cols; c += @THREADS@) result[c] = expf(in[c] - peak) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<static_cast<unsigned>(rows), @THREADS@, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
"""

CPU_KERNEL = """
// Candidate @NUMBER@: @THREADS@ rows per piece of work, loops unrolled @UNROLL@ times.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for schedule(static, @THREADS@)
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* result = out + r * cols;
    float peak = -INFINITY, sum = 0.f;
#pragma GCC unroll @UNROLL@
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
#pragma GCC unroll @UNROLL@
    for (int64_t c = 0; c < cols; ++c) sum += result[c] = std::exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) result[c] /= sum;
  }
  return 0;
}
"""

PLAIN_LOOP = """
import json, sys, time
import torch
from torch.utils.cpp_extension import load_inline

WRAPPER = '''
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  launch(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0), x.size(1), nullptr,
         c10::cuda::getCurrentCUDAStream().stream());
  return out;
}
'''
job = json.load(sys.stdin)
torch.zeros(1, device="cuda")
for number, source in enumerate(job["sources"]):
    start = time.perf_counter()
    module = load_inline(
        name=f"plain_{number}", cpp_sources="torch::Tensor run(torch::Tensor x);",
        cuda_sources="#include <cmath>\\n#include <cstdint>\\n" + source + WRAPPER, functions=["run"],
        extra_cuda_cflags=["-O3", "--extended-lambda"],
    )
    right = True
    for _ in range(5):
        x = torch.randn(job["rows"], job["cols"], device="cuda")
        right &= torch.allclose(module.run(x), torch.softmax(x, dim=-1), rtol=1e-3, atol=1e-3)
    times = []
    for _ in range(100):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        module.run(x)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    seconds = time.perf_counter() - start
    print(json.dumps({"right": right, "seconds": seconds, "ms": sorted(times)[50]}), flush=True)
"""


@dataclass(frozen=True)
class Phases:
    """Seconds since the start at which each part of the work was over; builds and verdicts overlap on a GPU."""

    ready_s: float  # workers started, task opened, the device's peaks measured
    built_s: float  # the last kernel compiled
    judged_s: float  # the last verdict
    closed_s: float  # nothing left running
    stages_s: dict[str, float]  # of one candidate on average, once the task was ready, by what the judge was doing


@dataclass(frozen=True)
class PlainLoop:
    """What load_inline + allclose + events takes for the same kernels."""

    sample: int
    seconds_each: float
    per_minute: float
    ratio: float  # how many times the evaluator's rate is higher


@dataclass(frozen=True)
class GuardCost:
    """The same batch, built already, judged with all guards and with none, in turn (with, without, without, with)."""

    candidates: int
    guards: tuple[str, ...]
    with_s: tuple[float, ...]
    without_s: tuple[float, ...]
    share: float  # what the guards add to the time of an evaluation


@dataclass
class Throughput:
    """The record of one run."""

    date: str
    device: str
    versions: dict[str, str]
    cores: int
    candidates: int
    statuses: dict[str, int]
    seconds: float
    per_minute: float
    phases: Phases
    import_s: float | None
    help_s: float | None
    plain_loop: PlainLoop | None = None
    guard_cost: GuardCost | None = None
    failures: list[str] = field(default_factory=list)


def make_candidates(device: str, count: int) -> list[Candidate]:
    """Distinct programs: other constants, and a number each, so that no cache can help."""
    template, suffix = (CUDA_KERNEL, ".cu") if device == "cuda" else (CPU_KERNEL, ".cpp")
    sizes = (64, 128, 256, 512) if device == "cuda" else (1, 2, 4, 8)
    made = []
    for number in range(count):
        threads, unroll = sizes[number % 4], (1, 2, 4, 8)[number // 4 % 4]
        text = template.replace("@NUMBER@", str(number))
        text = text.replace("@THREADS@", str(threads)).replace("@UNROLL@", str(unroll))
        made.append(Candidate((SourceFile(f"candidate_{number}{suffix}", text),), device))
    return made


def judge_batch(device: str, candidates: list[Candidate], folder: Path) -> tuple[list[Evaluation], Phases]:
    """One batch through a fresh evaluator with an empty cache."""
    task = folder / "softmax.py"
    rows, cols = SIZES[device]
    task.write_text(TASK.replace("@ROWS@", str(rows)).replace("@COLS@", str(cols)))
    os.environ["WARPSMITH_CACHE"] = str(folder / "cache")
    start = time.monotonic()
    last: dict[str, float] = {}
    stages: dict[str, float] = {}
    doing = "wait"
    since: float = math.inf  # until the task is ready

    def note(progress: Progress) -> None:
        nonlocal doing, since
        now = time.monotonic() - start
        last[progress.stage] = now
        if not progress.stage.startswith("buil"):  # of candidates that are judged later
            stages[doing] = stages.get(doing, 0.0) + max(0.0, now - since) / len(candidates)
            doing, since = "wait" if progress.stage == "judged" else progress.stage, now

    with Evaluator(device, paths=Paths(folder / "cache"), on_progress=note, on_message=_complain) as evaluator:
        evaluator.describe(task)
        ready_s = since = time.monotonic() - start
        verdicts = [evaluation for _, evaluation in evaluator.evaluate(task, candidates)]
    return verdicts, Phases(ready_s, last["built"], last["judged"], time.monotonic() - start, stages)


def guard_cost(device: str, candidates: list[Candidate], folder: Path) -> GuardCost:
    """Needs the builds of `judge_batch`; verdicts are not taken from the cache."""
    names = tuple(sorted(all_guards()))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for guarded in (True, False, False, True):
        settings = Settings(without=() if guarded else names)
        with Evaluator(device, settings, paths=Paths(folder / "cache"), use_cache=False) as evaluator:
            evaluator.describe(folder / "softmax.py")
            start = time.monotonic()
            for _ in evaluator.evaluate(folder / "softmax.py", candidates):
                pass
            seconds[guarded].append(time.monotonic() - start)
    share = sum(seconds[True]) / sum(seconds[False]) - 1
    return GuardCost(len(candidates), names, tuple(seconds[True]), tuple(seconds[False]), share)


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def plain_loop(candidates: list[Candidate], folder: Path, per_minute: float) -> PlainLoop | None:
    """The slow side, in one process and without counting the import of torch."""
    rows, cols = SIZES["cuda"]
    job = {"rows": rows, "cols": cols, "sources": [c.main.text for c in candidates]}
    environ = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "MAX_JOBS": str(os.cpu_count())}
    done = subprocess.run(
        [sys.executable, "-c", PLAIN_LOOP], input=json.dumps(job), env=environ, capture_output=True, text=True
    )
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not results:
        print(f"the load_inline loop failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    if not all(r["right"] for r in results):
        print("the load_inline loop calls a right kernel wrong", file=sys.stderr)
        return None
    each_s = sum(r["seconds"] for r in results) / len(results)
    return PlainLoop(len(results), each_s, 60 / each_s, per_minute * each_s / 60)


def best_of_five(code: str, *arguments: str, inner: bool = False) -> float | None:
    """Seconds of the fastest of five new interpreters; `inner`: as the code itself prints them."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        times.append(float(done.stdout) if inner and done.returncode == 0 else time.perf_counter() - start)
        if done.returncode != 0:
            print(done.stderr[-500:], file=sys.stderr)
            return None
    return min(times)


def measure(device: str, count: int, sample: int, guarded: int) -> Throughput:
    """The whole benchmark."""
    folder = Path(tempfile.mkdtemp(prefix="throughput-"))
    try:
        candidates = make_candidates(device, count)
        verdicts, phases = judge_batch(device, candidates, folder)
        environment = verdicts[0].environment
        per_minute = 60 * count / phases.closed_s
        return Throughput(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            device=environment.device,
            versions={
                "warpsmith": environment.harness,
                "torch": environment.torch,
                "compiler": environment.compiler,
                "driver": environment.driver,
                "python": sys.version.split()[0],
            },
            cores=len(os.sched_getaffinity(0)),
            candidates=count,
            statuses=dict(Counter(v.status.value for v in verdicts)),
            seconds=phases.closed_s,
            per_minute=per_minute,
            phases=phases,
            import_s=best_of_five(
                "import time; t = time.perf_counter(); import warpsmith; print(time.perf_counter() - t)", inner=True
            ),
            help_s=best_of_five("from warpsmith.cli.main import main; main()", "--help"),
            plain_loop=plain_loop(candidates[:sample], folder, per_minute) if sample else None,
            guard_cost=guard_cost(device, candidates[:guarded], folder) if guarded else None,
            failures=sorted({v.reason for v in verdicts if not v.ok}),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(result: Throughput) -> None:
    """For people."""
    phases = result.phases
    statuses = ", ".join(f"{n} {status}" for status, n in result.statuses.items())
    print(f"{result.device}, {result.cores} cores, {', '.join(f'{k} {v}' for k, v in result.versions.items() if v)}")
    print(f"{result.candidates} candidates ({statuses}) in {result.seconds:.1f} s: {result.per_minute:.1f} per minute")
    print(
        f"  workers and task ready after {phases.ready_s:.1f} s, last build after {phases.built_s:.1f} s, "
        f"last verdict after {phases.judged_s:.1f} s, closed after {phases.closed_s:.1f} s\n"
        f"  of a candidate: {', '.join(f'{stage} {1e3 * each:.0f} ms' for stage, each in phases.stages_s.items())}"
    )
    judging = (phases.judged_s - phases.ready_s) / result.candidates
    print(f"  without starting up: {60 / judging:.1f} per minute ({judging:.2f} s each)")
    if result.plain_loop:
        plain = result.plain_loop
        print(
            f"load_inline + allclose + events: {plain.seconds_each:.1f} s each ({plain.sample} kernels), "
            f"{plain.per_minute:.2f} per minute; the evaluator's rate is {plain.ratio:.1f} times that"
        )
    if result.guard_cost:
        cost = result.guard_cost
        with_s, without_s = (", ".join(f"{s:.1f}" for s in side) for side in (cost.with_s, cost.without_s))
        print(f"guards ({', '.join(cost.guards)}) add {100 * cost.share:.1f} % to the time of an evaluation:")
        print(f"  {cost.candidates} candidates in {with_s} s with them, in {without_s} s without")
    for name, seconds in (("import warpsmith", result.import_s), ("warpsmith --help", result.help_s)):
        print(f"{name}: {'failed' if seconds is None else f'{seconds:.3f} s'} (best of 5)")
    for reason in result.failures:
        print(f"not valid: {reason}")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, default=64, help="candidates in the batch")
    parser.add_argument("--compare-load-inline", type=int, default=0, metavar="N", help="size of the slow sample")
    parser.add_argument("--guard-cost", type=int, default=0, metavar="N", help="judge N again with and without guards")
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count must be at least 1")
    if options.compare_load_inline and options.device != "cuda":
        parser.error("--compare-load-inline needs --device cuda")
    there = backend_named(options.device).available()
    if not (there.build and there.run):
        print(f"cannot run on {options.device}: {there.detail}", file=sys.stderr)
        return 2
    try:
        result = measure(
            options.device, options.count, min(options.compare_load_inline, options.count), options.guard_cost
        )
    except WarpsmithError as error:
        print(error, file=sys.stderr)
        return 2
    report(result)
    if options.json:
        options.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    return 0 if set(result.statuses) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
