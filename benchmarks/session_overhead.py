"""What a session costs by itself: a proposer that answers at once, a judge that knows at once, and a long run.

    python benchmarks/session_overhead.py --events 12000 --json benchmarks/session_overhead.json
    python benchmarks/session_overhead.py --method cupilot

Prints the time per trial in slices of the run, apart for the session with its archive (ask, keep, parse, tell, judge)
and for wording the prompt, as wall time and as processor time, which does not suffer from other work on the machine;
the events kept by then; and the memory in use. None of them may grow.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.searching import answer_to, factor, invalid, reply_text, run_setup, valid

from warpsmith.methods.load import DEFAULT, load, methods
from warpsmith.model.brief import Brief, Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Move, Product
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import Budget
from warpsmith.search.session import Session


@dataclass(frozen=True)
class Slice:
    """A part of the run."""

    trials: int  # so far
    events: int  # so far
    session_ms: float  # per trial in this part, wall time: ask, keep, parse, tell, judge
    session_cpu_ms: float
    prompt_ms: float  # per trial in this part, wall time: wording the prompts
    prompt_cpu_ms: float
    memory_mib: float


@dataclass
class Stopwatch:
    """Wall and processor time spent within it."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    marked: tuple[float, float] = field(default=(0.0, 0.0))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what is done in here."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu

    def since_mark_ms(self, trials: int) -> tuple[float, float]:
        """Wall and processor time per trial since this was last asked."""
        wall, cpu = self.wall_s - self.marked[0], self.cpu_s - self.marked[1]
        self.marked = (self.wall_s, self.cpu_s)
        return 1e3 * wall / max(1, trials), 1e3 * cpu / max(1, trials)


def reference_s() -> float:
    """Processor time of a fixed piece of Python: how fast this machine was when it measured, other work included."""
    since, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number
    return time.process_time() - since


def verdict(candidate: Candidate) -> Evaluation:
    """A third is wrong; the others get better slowly, so that there are many new bests to be measured twice."""
    number = factor(candidate)
    return invalid(candidate) if number % 3 == 0 else valid(candidate, 1 + number / 1e6)


def reply(brief: Brief) -> Reply:
    """What a model would send: a kernel nobody has sent before, or what else is asked for."""
    words = brief.product is not Product.KERNEL or brief.move is Move.WRITE
    text = answer_to(brief, brief.number) if words else reply_text(brief.number)
    return Reply(text, "canned", TokenUsage(100, 50))


def measure(method: str, events: int, parts: int) -> list[Slice]:
    """One run until so many events are kept, in parts."""
    process = psutil.Process()
    found: list[Slice] = []
    session_time, prompt_time = Stopwatch(), Stopwatch()
    # More trials than the events allow; methods with epochs pass through the first ones only, which ask for most.
    budget = Budget(trials=events // 4)
    with tempfile.TemporaryDirectory() as folder:
        with Session.create(Path(folder) / "run", run_setup(load(method), budget=budget)) as session:
            last, before = 0, 0
            while last < events:
                with session_time.running():
                    brief = session.ask()
                if brief is None:
                    break
                with prompt_time.running():
                    prompt = render(brief)
                text = reply(brief)
                with session_time.running():
                    session.sent(brief, prompt)
                    session.answer(brief, text)
                    pending = session.pending()
                verdicts = [(job, verdict(job.candidate)) for job in pending]
                with session_time.running():
                    for job, evaluation in verdicts:
                        session.judge(job, evaluation)
                last = next(iter(session._log._rows("SELECT max(seq) FROM events", ())))[0]
                if last >= (len(found) + 1) * events / parts:
                    trials = session.state.totals.trials
                    spent = (
                        *session_time.since_mark_ms(trials - before),
                        *prompt_time.since_mark_ms(trials - before),
                    )
                    found.append(Slice(trials, last, *spent, process.memory_info().rss / 2**20))
                    before = trials
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=12_000)
    parser.add_argument("--parts", type=int, default=6)
    parser.add_argument("--method", default=DEFAULT, choices=sorted(methods()))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    found = measure(options.method, options.events, options.parts)
    reference = reference_s()
    print(f"{options.method}: ms per trial, as wall (processor) time; 5 million additions took {reference:.2f} s")
    for each in found:
        so_far = f"{each.trials:6} trials  {each.events:6} events"
        session = f"session and archive {each.session_ms:5.2f} ({each.session_cpu_ms:5.2f})"
        prompts = f"prompts {each.prompt_ms:5.2f} ({each.prompt_cpu_ms:5.2f})"
        print(f"{so_far}  {session}  {prompts}  {each.memory_mib:6.1f} MiB")
    if options.json:
        document = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": psutil.cpu_count(),
            "method": options.method,
            "reference_s": reference,
            "slices": [asdict(each) for each in found],
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
