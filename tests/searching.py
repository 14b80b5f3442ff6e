"""What tests of searches share: a task, verdicts without a judge, a proposer that answers at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.model.brief import Brief, Message, Problem, Prompt, Reply, Role, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.model.method import Method, Move, Product
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.model.usage import TokenUsage
from warpsmith.run_log.events import Budget, RunConfig, RunCreated
from warpsmith.search.run_state import RunState
from warpsmith.search.session import Session

TASK = Task(
    name="double",
    source="@task(x=normal('n'), workloads=[{'n': 1024}])\ndef double(x):\n    return 2 * x\n",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", ("n",), TensorRole.INPUT),
        TensorSpec("out", "float32", ("n",), TensorRole.OUTPUT),
    ),
    scalars=(),
    workloads=(Workload("n1024", (("n", 1024),)),),
    precision=Precision.FP32,
    digest="d0",
)
PROBLEM = Problem(
    task=TASK,
    contract=backend_named("cpu").contract(TASK),
    backend="cpu",
    device="some CPU",
    kind=DeviceKind.CPU,
    arch="",
    bounds=(WorkloadBound("n1024", (("n", 1024),), 8192, 1024, 0.001, "memory", 0.01),),
)


def run_setup(method: Method, *, budget: Budget | None = None, seed: int = 0, repairs: int | None = None) -> RunCreated:
    """A run of the task above."""
    config = RunConfig(
        task="double.py",
        device="cpu",
        backend="cpu",
        proposer="canned",
        budget=budget or Budget(trials=20),
        settings=Settings(),
        seed=seed,
        repairs=repairs,
        enough_share=None,
    )
    return RunCreated(config, method, PROBLEM, "test")


def source(number: int, body: str = "") -> str:
    """A program unlike those of other numbers."""
    return (
        'extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {\n'
        f"  for (int64_t i = 0; i < n; i += 1) out[i] = {number}.0f * x[i];{body}\n  return 0;\n}}\n"
    )


def reply_text(number: int, body: str = "") -> str:
    """That program as a model would send it."""
    head = f"name: kernel {number}\nstrategy: s{number}\nthought: idea {number}\ncode:\n"
    return f"{head}```cpp\n{source(number, body)}```\n"


def answer_to(brief: Brief, number: int) -> str:
    """What a model would send for a brief, by a number; the kernels of 17 numbers repeat."""
    if brief.product is Product.STRATEGIES:
        return "".join(f"strategy: step {number} in {part} parts\nthought: why\n" for part in range(brief.wanted))
    if brief.product is Product.ALIGNMENT:
        return f"strategy: really step {number}\nthought: none"
    return "free text\n```python\npass\n```" if brief.move is Move.WRITE else reply_text(number % 17)


def valid(candidate: Candidate, speedup: float, interval: Interval | None = None, *, share: float = 0.5) -> Evaluation:
    """A verdict: right, and this much faster than PyTorch."""
    interval = interval or Interval(speedup * 0.99, speedup * 1.01)
    result = WorkloadResult(
        workload="n1024",
        axes=(("n", 1024),),
        latency_ms=0.001 / share,
        timing="batched",
        baselines=(Baseline("eager", speedup * 0.001 / share, speedup, interval, 10),),
        error=0.1,
        error_limit=1.0,
        floor_ms=0.001,
        bytes=8192,
        flops=1024,
        checks=4,
        reference="fp64",
    )
    return Evaluation("double", candidate.id, Status.OK, "", _ENVIRONMENT, "fp32", (result,), seconds=0.5)


def invalid(candidate: Candidate, status: Status = Status.WRONG, reason: str = "out[3] is 7, not 8") -> Evaluation:
    """A verdict: not right."""
    return Evaluation("double", candidate.id, status, reason, _ENVIRONMENT, "fp32", seconds=0.5)


_ENVIRONMENT = Environment("some CPU", "cpu", "g++", "2.x")


@dataclass
class CannedProposer:
    """Answers at once, by a function of the brief."""

    text: Callable[[Brief], str]
    name: str = "canned"
    concurrency: int = 1
    usage: TokenUsage = field(default_factory=lambda: TokenUsage(100, 50, cost_usd=0.01))

    def prompt(self, brief: Brief) -> Prompt:
        return Prompt((Message(Role.USER, f"brief {brief.number}"),))

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        return Reply(self.text(brief), "canned", self.usage)

    def close(self) -> None:
        pass


@dataclass
class CannedJudge:
    """Judges at once, by a function of the candidate; counts what it was asked."""

    verdict: Callable[[Candidate], Evaluation]
    judged: int = 0
    again: int = 0

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        for position, candidate in enumerate(candidates):
            self.judged += 1
            self.again += fresh
            yield position, self.verdict(candidate)


@dataclass
class ScriptedJudge:
    """Judges a kernel by its number: what each measurement of it says, the last one over and over."""

    scores: Mapping[int, Sequence[float | Status]]
    seen: list[tuple[int, bool]] = field(default_factory=list)  # kernels in the order they were judged; True: again

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        for position, candidate in enumerate(candidates):
            yield position, self.verdict(candidate, fresh=fresh)

    def verdict(self, candidate: Candidate, *, fresh: bool) -> Evaluation:
        number = factor(candidate)
        self.seen.append((number, fresh))
        scores = self.scores[number]
        score = scores[min(len(scores), sum(known == number for known, _ in self.seen)) - 1]
        return invalid(candidate, score) if isinstance(score, Status) else valid(candidate, score)

    @property
    def again(self) -> list[int]:
        """Whom it has measured once more."""
        return [number for number, fresh in self.seen if fresh]


def factor(candidate: Candidate) -> int:
    """The number that makes a program of `source` what it is."""
    return int(candidate.main.text.split("out[i] = ")[1].split(".0f")[0])


def answered(session: Session, number: int, body: str = "") -> Brief:
    """Ask, and answer with a numbered program; the brief."""
    brief = session.ask()
    assert brief is not None, session.stop_reason
    session.answer(brief, Reply(reply_text(number, body), "canned", TokenUsage(100, 50, cost_usd=0.01)))
    return brief


def proposed(session: Session, *numbers: int) -> None:
    """Answers under way at the same time, with numbered programs; none of them judged."""
    briefs = [session.ask() for _ in numbers]
    for brief, number in zip(briefs, numbers, strict=True):
        assert brief is not None, session.stop_reason
        session.answer(brief, Reply(reply_text(number), "canned", TokenUsage(100, 50, cost_usd=0.01)))


def judged(session: Session, verdict: Callable[[Candidate], Evaluation]) -> None:
    """Judge whatever is pending, and what that makes pending."""
    while jobs := session.pending():
        for job in jobs:
            session.judge(job, verdict(job.candidate))


def snapshot(state: RunState) -> object:
    """All that a state knows, to be compared."""
    return (
        state.population.members,
        state.trials,
        state.totals,
        state.stage,
        state.best,
        list(state.repairs),
        state.pending,
        state.confirmation.waiting,
        state.found,
        list(state.failures),
        state.fingerprints,
        state.standings,
        state.ideas,
        list(state.alignments),
        list(state.returned),
        state.effects,
    )


def slower(evaluation: Evaluation, by: float) -> Evaluation:
    """The same verdict with a lower speedup."""
    (result,) = evaluation.workloads
    (baseline,) = result.baselines
    speedup = baseline.speedup / by
    changed = replace(baseline, speedup=speedup, interval=Interval(speedup * 0.99, speedup * 1.01))
    return replace(evaluation, workloads=(replace(result, baselines=(changed,)),))


def new_session(folder: Path, method: Method, **options: object) -> Session:
    """A run that has just begun."""
    return Session.create(folder, run_setup(method, **options))  # type: ignore[arg-type]
