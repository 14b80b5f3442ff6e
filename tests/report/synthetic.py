"""Runs without a judge and without a model, as large as one likes: for the report's tests and its benchmark.

`make_run` goes through the real session, with real prompts; `make_archive` writes the same events into the real log
at once, which takes a tenth of the time. Only what is proposed and how it is judged is made up, by a seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Message, Problem, Prompt, Reply, Role, TrialOutcome, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Resources, Status, WorkloadResult
from warpsmith.model.method import Move, Product
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import (
    BriefAsked,
    Budget,
    Event,
    OperatorTurn,
    PromptSent,
    ProposalRead,
    ReplyReceived,
    RunClosed,
    RunConfig,
    RunCreated,
    RunOpened,
    StopReason,
    TrialJudged,
)
from warpsmith.run_log.log import RunLog
from warpsmith.search.session import Session

NASTY = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "<!-- <svg/onload=alert(1)> ]]> &lt;&amp;\u2028'\"`${1} javascript:alert(1)"
)
"""What a model could write to take over a page."""

ROWS, COLS = 4096, 16384
BYTES, FLOPS = 2 * 4 * ROWS * COLS, 5 * ROWS * COLS
FLOOR_MS = 1e3 * BYTES / 4.02e12
EAGER_MS = 0.62

_TASK = Task(
    name="softmax",
    source="@task(x=normal('rows', 'cols'), workloads=[{'rows': 4096, 'cols': 16384}])\n"
    "def softmax(x):\n    return torch.softmax(x, -1)\n",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", ("rows", "cols"), TensorRole.INPUT),
        TensorSpec("out", "float32", ("rows", "cols"), TensorRole.OUTPUT),
    ),
    scalars=(),
    workloads=(Workload("large", (("rows", ROWS), ("cols", COLS))),),
    precision=Precision.FP32,
    digest="d1",
)
_GAINS = {
    "vector-loads(width=4)": 1.5,
    "online-softmax": 1.4,
    "block-per-row": 1.25,
    "warp-shuffle-reduction": 1.15,
    "fast-intrinsics": 1.1,
    "streaming-stores": 1.05,
    "unroll(factor=4)": 1.02,
    "row-in-shared": 0.9,
    "atomic-reduction": 0.8,
}
_FAILURES = (
    (Status.WRONG, "out[0, 17] is 0.31, not 0.12: the sum misses the last tile; mask the tail."),
    (Status.BUILD_ERROR, "kernel.cu(41): error: identifier 'blockReduceSum' is undefined"),
    (Status.TIMED_OUT, "It did not come back within 10 s: a barrier is not reached by all threads."),
    (Status.REJECTED, "It reads the reference's result: class stale_output."),
    (Status.LAUNCH_FAILED, "invalid configuration argument: 2048 threads per block."),
)


@dataclass
class Maker:
    """Proposes and judges, by a seed."""

    seed: int = 0
    hostile: bool = False
    lines: int = 60  # of code of a candidate's own
    plans: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def reply(self, brief: Brief) -> Reply:
        """What a model would send."""
        draw = random.Random(f"{self.seed} {brief.number}")
        if brief.product is not Product.KERNEL:
            return Reply(
                f"strategy: step {brief.number}\nthought: why not", "gpt-large", TokenUsage(4000, 300, cost_usd=0.01)
            )
        if draw.random() < 0.03:
            return Reply("I am sorry, I cannot help with that.", "gpt-small", TokenUsage(4000, 40, cost_usd=0.002))
        parents = brief.parents or ((brief.best,) if brief.best else ())
        plan = set(parents[0].strategy.split(" + ")) & set(_GAINS) if parents else set()
        for name in draw.sample(sorted(_GAINS), 1 if plan else 2):
            plan ^= {name}
        chosen = " + ".join(sorted(plan)) or "block-per-row"
        model = draw.choice(("gpt-large", "gpt-small"))
        name = NASTY if self.hostile else f"softmax, version {brief.number}"
        strategy = f"{chosen} {NASTY}" if self.hostile else chosen
        thought = "Each row is read once; the maximum and the sum are kept together." + NASTY * self.hostile
        head = f"name: {name}\nstrategy: {strategy}\nthought: {thought}\ncode:\n"
        usage = TokenUsage(
            6000 + draw.randrange(2000), 900 + draw.randrange(600), cost_usd=0.004 + 0.01 * draw.random()
        )
        return Reply(f"{head}```cuda\n{self.code(brief.number, chosen, draw)}```\n", model, usage)

    def code(self, number: int, plan: str, draw: random.Random) -> str:
        """A program that no other number has."""
        body = "".join(
            f"    float v{i} = x[row * cols + lane + {draw.randrange(4096)}];  // part {i} of {number}\n"
            f"    total += __expf(v{i} - top);\n"
            for i in range(self.lines // 2)
        )
        nasty = f"// {NASTY}\n" if self.hostile else ""
        return (
            f"// {plan}\n{nasty}#include <cuda_runtime.h>\n\n"
            "__global__ void rows_kernel(const float* x, float* out, int64_t rows, int64_t cols) {\n"
            "    const int64_t row = blockIdx.x;\n    const int lane = threadIdx.x;\n"
            f"    float top = -INFINITY, total = 0.0f;\n{body}"
            "    for (int64_t at = lane; at < cols; at += blockDim.x) {\n"
            "        out[row * cols + at] = __expf(x[row * cols + at] - top) / total;\n    }\n}\n\n"
            'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, '
            "void* stream) {\n"
            f"    rows_kernel<<<rows, {draw.choice((128, 256, 512))}, 0, (cudaStream_t)stream>>>(x, out, rows, cols);\n"
            "    return 0;\n}\n"
        )

    def verdict(self, candidate: Candidate) -> Evaluation:
        """Two of three are valid; the more good strategies, the faster."""
        draw = random.Random(f"{self.seed} {candidate.id}")
        where = Environment("NVIDIA H200 (cuda:0)", "cuda", "nvcc 13.0", "2.13.0", "580.95")
        if draw.random() < 0.34:
            status, reason = draw.choice(_FAILURES)
            said = reason + NASTY * self.hostile
            return Evaluation("softmax", candidate.id, status, said, where, "fp32", seconds=1.2)
        speedup = 0.6 * draw.uniform(0.93, 1.04)
        for name, gain in _GAINS.items():
            speedup *= gain if name in candidate.strategy else 1.0
        latency_ms = max(EAGER_MS / speedup, FLOOR_MS / 0.94)
        speedup = EAGER_MS / latency_ms
        result = WorkloadResult(
            workload="large",
            axes=(("rows", ROWS), ("cols", COLS)),
            latency_ms=latency_ms,
            timing="replayed",
            baselines=(
                Baseline("eager", EAGER_MS, speedup, Interval(speedup * 0.99, speedup * 1.01), 60),
                Baseline("compile", 0.8 * EAGER_MS, 0.8 * speedup, Interval(0.79 * speedup, 0.81 * speedup), 60),
            ),
            error=0.2,
            error_limit=1.0,
            floor_ms=FLOOR_MS,
            bytes=BYTES,
            flops=FLOPS,
            checks=6,
            reference="fp64",
        )
        used = (Resources("rows_kernel", registers=draw.randrange(24, 96), shared_bytes=128),)
        return Evaluation("softmax", candidate.id, Status.OK, "", where, "fp32", (result,), used, seconds=2.5)


def begun(trials: int, method: str, maker: Maker) -> RunCreated:
    """The first event of a run."""
    config = RunConfig(
        task="softmax.py",
        device="cuda:0",
        backend="cuda",
        proposer="openai:gpt-large",
        budget=Budget(trials=trials),
        settings=Settings(),
        enough_share=None,
    )
    return RunCreated(config, load(method), problem(maker.hostile), "0.test")


def make_archive(folder: Path, trials: int, maker: Maker | None = None, about: Problem | None = None) -> Path:
    """A closed run with so many trials, written at once; of another problem where one is given."""
    maker, draw = maker or Maker(), random.Random(0)
    created = begun(trials, "evoengineer-free", maker)
    created = replace(created, problem=about or created.problem)
    events: list[Event] = [created, RunOpened(created.config.proposer, created.config.budget)]
    valid: list[tuple[float, int, str, str]] = []  # speedup, trial, plan, code
    for number in range(1, trials + 1):
        parent = max(draw.sample(valid, min(len(valid), 5))) if valid else None
        plan = set(parent[2].split(" + ")) & set(_GAINS) if parent else set()
        plan ^= {draw.choice(sorted(_GAINS))}
        chosen = " + ".join(sorted(plan)) or "block-per-row"
        code = maker.code(number, chosen, draw)
        parents = (parent[1],) if parent else ()
        candidate = Candidate((SourceFile("kernel.cu", code),), "cuda", thought="Why not.", strategy=chosen)
        prompt = Prompt((Message(Role.USER, _PREAMBLE + (parent[3] if parent else "")),))
        reply = Reply(f"strategy: {chosen}\ncode:\n{code}", "gpt-large", TokenUsage(6000, 900, cost_usd=0.01))
        evaluation = maker.verdict(candidate)
        events += [
            BriefAsked(number, 0, "mutation", Move.MUTATE, number, OperatorTurn(), parents),
            PromptSent(number, prompt),
            ReplyReceived(number, reply),
            ProposalRead(number, number, TrialOutcome.PENDING, candidate, f"version {number}", fingerprint=str(number)),
            TrialJudged(number, evaluation),
        ]
        if speedup := evaluation.speedup():
            if not valid or speedup > max(valid)[0]:
                events.append(TrialJudged(number, evaluation, again=True))
            valid.append((speedup, number, chosen, code))
    with RunLog.create(folder) as log:
        log.append(*events, RunClosed(StopReason.TRIALS))
    return folder


_PREAMBLE = "".join(f"Rule {number}: what every prompt of a run says in the same words.\n" for number in range(150))


def problem(hostile: bool = False) -> Problem:
    """A softmax on an H200."""
    bound = WorkloadBound("large", (("rows", ROWS), ("cols", COLS)), BYTES, FLOPS, FLOOR_MS, "memory", EAGER_MS)
    device = f"NVIDIA H200 {NASTY}" if hostile else "NVIDIA H200"
    return Problem(
        _TASK,
        backend_named("cuda").contract(_TASK),
        "cuda",
        device,
        DeviceKind.CUDA,
        "sm_90a",
        (bound,),
    )


def make_run(folder: Path, trials: int, maker: Maker | None = None, method: str = "evoengineer-full") -> Path:
    """A closed run with so many trials."""
    maker = maker or Maker()
    with Session.create(folder, begun(trials, method, maker)) as session:
        while (brief := session.ask()) is not None:
            session.sent(brief, render(brief))
            session.answer(brief, maker.reply(brief))
            while jobs := session.pending():
                for job in jobs:
                    session.judge(job, maker.verdict(job.candidate))
        if session.state.best:
            session.profiled(session.state.best, "memory: 91 % of the bandwidth is used; little is left to gain.")
        if maker.hostile:
            session.note(NASTY)
        session.end(StopReason.TRIALS)
    return folder
