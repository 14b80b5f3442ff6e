"""What a session costs by itself: a proposer that answers at once, a judge that knows at once, and a long run.

    python benchmarks/session_overhead.py --trials 3000 --json benchmarks/session_overhead.json

Prints the time per trial in slices of the run, the events kept by then, and the memory in use: neither may grow.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.searching import begun, factor, invalid, reply_text, valid

from warpsmith.archive.events import Budget
from warpsmith.core.candidate import Candidate
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Reply, Usage
from warpsmith.methods.loading import load, methods
from warpsmith.prompts.renderer import render
from warpsmith.run.session import Session


@dataclass(frozen=True)
class Slice:
    """A part of the run."""

    trials: int  # so far
    events: int  # so far
    ms_per_trial: float  # ask, prompt, keep, parse, tell, judge: in this part
    memory_mib: float


def verdict(candidate: Candidate) -> Evaluation:
    """A third is wrong; the others get better slowly, so that there are many new bests to be measured twice."""
    number = factor(candidate)
    return invalid(candidate) if number % 3 == 0 else valid(candidate, 1 + number / 1e6)


def measure(method: str, trials: int, parts: int) -> list[Slice]:
    """One run, in parts."""
    process, found = psutil.Process(), []
    with tempfile.TemporaryDirectory() as folder:
        start = begun(load(method), budget=Budget(trials=trials))
        with Session.begin(Path(folder) / "run", start) as session:
            per_part, done, since = trials // parts, 0, time.perf_counter()
            while (brief := session.ask()) is not None:
                session.sent(brief, render(brief))
                session.answer(brief, Reply(reply_text(brief.number), "canned", Usage(100, 50)))
                for job in session.pending():
                    session.judge(job, verdict(job.candidate))
                done += 1
                if done % per_part == 0:
                    now = time.perf_counter()
                    last = next(iter(session._archive._rows("SELECT max(seq) FROM events", ())))[0]
                    memory = process.memory_info().rss / 2**20
                    found.append(Slice(done, last, 1e3 * (now - since) / per_part, memory))
                    since = time.perf_counter()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=3000)
    parser.add_argument("--parts", type=int, default=6)
    parser.add_argument("--method", default="evoengineer-full", choices=sorted(methods()))
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    found = measure(options.method, options.trials, options.parts)
    for each in found:
        so_far = f"{each.trials:6} trials  {each.events:6} events"
        print(f"{so_far}  {each.ms_per_trial:6.2f} ms per trial  {each.memory_mib:6.1f} MiB")
    if options.json:
        document = {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "cores": psutil.cpu_count(),
            "method": options.method,
            "slices": [asdict(each) for each in found],
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
