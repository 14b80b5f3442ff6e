"""Evolution histories: kernels that were written one after the other, handed in by ask and tell, judged and kept.

    python -m benchmarks.lineage_record --out runs --limit-s 500
    python -m benchmarks.lineage_record --out runs --only softmax
    python -m benchmarks.lineage_record --out benchmarks/h200/lineage --facts src/warpsmith/kernels/facts/h200.json

A folder `benchmarks/lineage/TASK` holds the kernels for a task of a suite in the order in which they were written; the
first lines of each say what its author thought. Each becomes one trial of the run `OUT/TASK`, which is continued where
it was broken off. Beside the run lie `TASK.html`, the report page, and `TASK.json`, the trials in short.

With --facts, nothing is judged: the record of the collection gets a sentence about each history that lies in --out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import warpsmith
from warpsmith.api import Run, TrialResult
from warpsmith.cli.report import write_run
from warpsmith.kernels.facts import read_device, write_facts
from warpsmith.model.errors import UsageError
from warpsmith.search.options import RunOptions

STEPS = Path(__file__).resolve().parent / "lineage"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=Path, default=STEPS, help="a folder with one folder of kernels per task")
    parser.add_argument("--suite", default="warpsmith-100", help="where the tasks are; or a folder of task files")
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit-s", type=float, default=500.0, help="no kernel is judged after that")
    parser.add_argument("--facts", type=Path, help="the record of the collection that gets the sentences")
    options = parser.parse_args()
    if options.facts:
        say_in_facts(options.facts, options.out)
        return
    ends = time.monotonic() + options.limit_s
    only = set(filter(None, options.only.split(",")))
    for folder in sorted(options.steps.iterdir()):
        if folder.is_dir() and (not only or folder.name in only):
            tell_all(folder, options.suite, options.out / folder.name, options.device, ends)


def tell_all(steps: Path, suite: str, run_folder: Path, device: str, ends: float) -> None:
    """Hand in the kernels that the run does not have yet, and write its page."""
    kernels = sorted(path for path in steps.iterdir() if path.is_file())
    named = f"{suite}/{steps.name}" if not Path(suite).is_dir() else str(Path(suite, f"{steps.name}.py"))
    rules = RunOptions(
        method="evoengineer-full", trials=len(kernels), device=device, repairs=0, stop_at=0.0, remember=False
    )
    begun = (run_folder / "run.db").exists()
    with Run.open(run_folder, options=RunOptions()) if begun else Run.create(named, run_folder, options=rules) as run:
        for kernel in kernels[len(run.trials) :]:
            if time.monotonic() > ends:
                break
            trial = run.tell(run.ask(), kernel)
            print(f"{steps.name:16} {kernel.stem:34} {in_words(trial)}", flush=True)
        found = [shortened(trial, kernel) for trial, kernel in zip(run.trials, kernels, strict=False)]
    document = {"task": named, "warpsmith": warpsmith.__version__, "device": device, "trials": found}
    run_folder.with_suffix(".json").write_text(json.dumps(document, indent=1, default=str) + "\n")
    write_run(run_folder, run_folder.with_suffix(".html"))


def shortened(trial: TrialResult, kernel: Path) -> dict[str, object]:
    """A trial without its source and its whole evaluation."""
    left_out = ("source", "evaluation")
    return {"file": kernel.name, **{name: each for name, each in asdict(trial).items() if name not in left_out}}


def say_in_facts(path: Path, folder: Path) -> None:
    """Write a sentence about each history into the record of the collection."""
    facts = read_device(path)
    if facts is None:
        raise UsageError(f"there is no record {path}; write the collection's record first.")
    kernels = dict(facts.kernels)
    for file in sorted(folder.glob("*.json")):
        history = json.loads(file.read_text(encoding="utf-8"))
        kernels[history["task"]] = replace(kernels[history["task"]], lineage=sentence(history["trials"], file))
    write_facts(path, replace(facts, kernels=kernels))


def sentence(trials: Sequence[dict[str, Any]], file: Path) -> str:
    """A history in one sentence."""
    speedups = [trial["speedup"] for trial in trials if trial["speedup"]]
    where = file.resolve().relative_to(STEPS.parent.parent)
    return (
        f"{len(trials)} kernels written one after the other, {len(speedups)} of them valid, "
        f"from {speedups[0]:.3g}x to {max(speedups):.3g}x PyTorch eager ({where})."
    )


def in_words(trial: TrialResult) -> str:
    """A trial in a line."""
    return f"{trial.speedup:.3g}x" if trial.speedup else f"{trial.status}: {trial.reason[:160]}"


if __name__ == "__main__":
    main()
