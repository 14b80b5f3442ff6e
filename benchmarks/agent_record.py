"""The record of the reference agent with a model that is served here: `agentic` with tools or programs, as it came.

    python -m benchmarks.model_server --model model.gguf --name qwen2.5-coder-1.5b --port 8011 &
    python -m benchmarks.agent_record --model qwen2.5-coder-1.5b --base-url http://127.0.0.1:8011/v1 \\
        --model-sha256 SUM --json benchmarks/h200/agent.json

Each task is searched twice with the same trials: by the agent (`agent:openai:MODEL`), and by the model alone
(`openai:MODEL`), which replies once to each brief. Every trial is recorded with its status, whatever the outcome.
Writes everything so far after each run, so that nothing is lost to an interruption.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.engine.engine import Engine, open_engine
from warpsmith.methods.load import load
from warpsmith.model.settings import Settings
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.loop import SearchObserver
from warpsmith.search.session import Session
from warpsmith.tasks.suites import resolve_task

TASKS = "relu,softmax,rms_norm,sum_rows"


@dataclass(frozen=True)
class TrialRow:
    """One trial of a run."""

    trial: int
    step: int  # the brief whose agent had it evaluated; 0 for a reply to a brief
    parents: tuple[int, ...]
    outcome: str
    status: str
    reason: str
    speedup: float | None
    strategy: str


@dataclass(frozen=True)
class RunRow:
    """One run."""

    task: str
    proposer: str
    seed: int
    stopped: str
    detail: str
    seconds: float
    trials: int
    valid: int
    compiled: int
    failed_calls: int
    prompt_tokens: int
    completion_tokens: int
    speedup: float | None
    interval: tuple[float, float] | None
    statuses: dict[str, int]
    rows: tuple[TrialRow, ...]


def run(evaluator: Engine, backend: str, task: str, proposer: str, seed: int, options: argparse.Namespace) -> RunRow:
    """One run of `agentic` on one task."""
    models = ProposerOptions(
        base_url=options.base_url,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        request_s=options.request_seconds,
        step_trials=options.step_trials,
        step_s=options.step_seconds,
        step_tokens=options.step_tokens,
    )
    choice = choose(proposer, models)
    with tempfile.TemporaryDirectory() as folder:
        config = RunConfig(
            task=resolve_task(task),
            device=options.device,
            backend=backend,
            proposer=choice.spec,
            budget=Budget(trials=options.trials, seconds=options.seconds),
            settings=Settings(timing_budget_s=options.time_budget),
            seed=seed,
            parallel=options.parallel,
            start=options.start,
        )
        with open_run.begin(config, load("agentic"), evaluator, folder=Path(folder) / "run") as session:
            active = ActiveRun(session, evaluator, choice, tune=False, parallel=options.parallel)
            ending = active.search(SearchObserver())
            return _row(session, task, proposer, seed, ending.reason.value, ending.detail)


def _row(session: Session, task: str, proposer: str, seed: int, stopped: str, detail: str) -> RunRow:
    state, totals = session.state, session.state.totals
    rows = []
    for number, trial in state.trials.items():
        record = session.record(number)
        status = trial.status.value if trial.status else ""
        strategy, reason = trial.strategy[:200], record.reason[:300]
        rows.append(
            TrialRow(number, trial.step, trial.parents, trial.outcome.value, status, reason, trial.score, strategy)
        )
    evaluation = session.evaluation(state.best) if state.best else None
    interval = evaluation.interval() if evaluation else None
    return RunRow(
        task=task,
        proposer=proposer,
        seed=seed,
        stopped=stopped,
        detail=detail,
        seconds=round(session.elapsed(), 1),
        trials=totals.trials,
        valid=totals.valid,
        compiled=totals.compiled,
        failed_calls=totals.failed_calls,
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        speedup=evaluation.speedup() if evaluation else None,
        interval=(interval.low, interval.high) if interval else None,
        statuses=dict(Counter(row.status or row.outcome for row in rows)),
        rows=tuple(rows),
    )


def main() -> None:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as the endpoint names it")
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model-sha256", default="", help="of the model's file, for the record")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default=TASKS)
    parser.add_argument("--start", default="plain", help="the kernel to start from: plain, auto, or empty for none")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=900.0, help="per run")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--step-trials", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=300.0)
    parser.add_argument("--step-tokens", type=int, default=100_000)
    parser.add_argument("--max-tokens", type=int, default=3000)
    parser.add_argument("--request-seconds", type=float, default=600.0, help="for one request; more on a slow machine")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--time-budget", type=float, default=0.3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device, backend = open_run.choose(options.device, "")
    rows: list[RunRow] = []
    with open_engine("local", device, Settings(timing_budget_s=options.time_budget)) as evaluator:
        for task in options.only.split(","):
            for proposer in (f"agent:openai:{options.model}", f"openai:{options.model}"):
                for seed in range(options.repeats):
                    row = run(evaluator, backend, task, proposer, seed, options)
                    rows.append(row)
                    speedup = f"{row.speedup:.3f}x {row.interval}" if row.speedup else "nothing valid"
                    found = f"{row.valid}/{row.trials} valid in {row.seconds:.1f} s"
                    print(f"{task:11} {proposer:40} {found:26} {speedup}  {row.statuses}", flush=True)
                    if options.json:
                        document = {
                            "date": time.strftime("%Y-%m-%d"),
                            "warpsmith": __version__,
                            "device": device.label,
                            "options": vars(options),
                            "rows": [asdict(each) for each in rows],
                        }
                        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
