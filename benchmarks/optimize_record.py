"""The record of `optimize` with the offline catalogue: seven operators, best kernel against PyTorch eager.

    python benchmarks/optimize_record.py --device cuda --trials 24 --json benchmarks/h200/optimize.json
    python benchmarks/optimize_record.py --only softmax,gelu --method evoengineer-full,cupilot --repeats 3

One evaluator serves all runs of a task; each run has a seed of its own. Prints a line per run as it ends and writes
everything so far after each, so that nothing is lost to an interruption.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import load
from warpsmith.model.settings import Settings
from warpsmith.proposers.templates import TemplateProposer
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search import open_run
from warpsmith.search.loop import SearchLoop, SearchObserver

HERE = Path(__file__).resolve().parent
TASKS = ("softmax", "layer_norm", "rms_norm", "gelu", "sum_rows", "mse_loss", "matmul")


@dataclass(frozen=True)
class Row:
    """One run."""

    task: str
    method: str
    seed: int
    trials: int
    valid: int
    compiled: int
    seconds: float
    stopped: str
    speedup: float | None
    interval: tuple[float, float] | None
    latency_ms: float | None
    share_of_floor: float | None
    strategy: str
    failures: tuple[str, ...]  # statuses of the invalid ones, with the first words of the reason


def run(evaluator: Evaluator, backend: str, task: str, method: str, seed: int, options: argparse.Namespace) -> Row:
    """One run of one method on one task."""
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            task=f"{HERE / 'seven_tasks.py'}::{task}",
            device=options.device,
            backend=backend,
            proposer="template",
            budget=Budget(trials=options.trials, seconds=options.seconds),
            settings=evaluator.settings,
            seed=seed,
            parallel=options.parallel,
        )
        with open_run.begin(config, load(method), evaluator, folder=Path(folder) / "run") as session:
            bench = open_run.task_evaluator(session, evaluator)
            loop = SearchLoop(
                session, TemplateProposer(), bench, SearchObserver(), parallel=options.parallel, prepare=bench.prepare
            )
            stopped = loop.run()
            state = session.state
            evaluation = session.evaluation(state.best) if state.best else None
            interval = evaluation.interval() if evaluation else None
            failures = tuple(
                f"{trial.status}: {session.record(trial.number).reason[:160]}"
                for trial in state.trials.values()
                if trial.status and trial.score is None
            )
            return Row(
                task=task,
                method=method,
                seed=seed,
                trials=state.totals.trials,
                valid=state.totals.valid,
                compiled=state.totals.compiled,
                seconds=round(session.elapsed(), 1),
                stopped=stopped,
                speedup=evaluation.speedup() if evaluation else None,
                interval=(interval.low, interval.high) if interval else None,
                latency_ms=evaluation.workloads[0].latency_ms if evaluation else None,
                share_of_floor=evaluation.workloads[0].share_of_floor if evaluation else None,
                strategy=state.trials[state.best].strategy if state.best else "",
                failures=failures,
            )


def main() -> None:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=None, help="per run")
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--method", default="evoengineer-full")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--time-budget", type=float, default=0.3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device, backend = open_run.choose(options.device, "")
    settings = Settings(timing_budget_s=options.time_budget)
    rows: list[Row] = []
    with Evaluator(device, settings) as evaluator:
        for task in options.only.split(","):
            for method in options.method.split(","):
                for seed in range(options.first_seed, options.repeats):
                    row = run(evaluator, backend, task, method, seed, options)
                    rows.append(row)
                    speedup = f"{row.speedup:.3f}x {row.interval}" if row.speedup else "nothing valid"
                    found = f"{row.valid}/{row.trials} valid in {row.seconds:.1f} s"
                    print(f"{task:11} {method:18} {found:26} {speedup}  {row.strategy}", flush=True)
                    if options.json:
                        document = {
                            "date": time.strftime("%Y-%m-%d"),
                            "device": device.label,
                            "settings": asdict(settings),
                            "rows": [asdict(each) for each in rows],
                        }
                        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
