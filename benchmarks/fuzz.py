"""Feeds malformed inputs to every border of the program: no crash, no hang, no traceback for a user.

    python benchmarks/fuzz.py --count 100000 --json benchmarks/fuzz.json

The borders and the inputs are those of tests/fuzz. Stops at the first failure with exit status 1, having written
the input and what happened to a file; the same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ["OMP_NUM_THREADS"] = "1"  # children are forked: torch must not have started threads by then

import torch  # noqa: E402
from tests.fuzz.engine import Failure, run  # noqa: E402
from tests.fuzz.mutate import Mutator  # noqa: E402
from tests.fuzz.targets import TARGETS, inputs_for  # noqa: E402

from warpsmith import __version__  # noqa: E402

STEP = 1000  # inputs between two lines of progress


def main() -> int:
    """Run, report, keep a record."""
    parser = argparse.ArgumentParser(description="Feed malformed inputs to every border of the program.")
    parser.add_argument("--count", type=int, default=100_000, help="inputs in all")
    parser.add_argument("--seed", default="0", help="another seed, other inputs")
    parser.add_argument("--only", default="", metavar="NAMES", help="comma-separated borders, each with all the inputs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the record")
    parser.add_argument("--failure", type=Path, default=Path("fuzz-failure.txt"), help="where to write a failure")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    chosen = [target for target in TARGETS if target.name in only] if only else list(TARGETS)
    begun = time.monotonic()
    record: dict[str, dict[str, object]] = {}
    for target in chosen:
        count = options.count if only else inputs_for(target, options.count)
        start = time.monotonic()
        answers: dict[str, int] = {}
        for first in range(0, count, STEP):
            try:
                found = run(target, options.seed, range(first, min(first + STEP, count)))
            except Failure as failure:
                _write_failure(options.failure, options.seed, failure)
                print(f"{failure}\nwritten to {options.failure}", file=sys.stderr)
                return 1
            answers = {word: answers.get(word, 0) + found[word] for word in {*answers, *found}}
        seconds = time.monotonic() - start
        record[target.name] = {"inputs": count, "answers": dict(sorted(answers.items())), "seconds": round(seconds, 1)}
        said = ", ".join(f"{n} {word}" for word, n in sorted(answers.items()))
        print(f"{target.name:<16}{count:>8} inputs {seconds:>7.1f} s   {said}", flush=True)
    total = sum(int(str(entry["inputs"])) for entry in record.values())
    print(f"{total} malformed inputs, no crash, no hang, no traceback ({time.monotonic() - begun:.0f} s)")
    if options.json is not None:
        options.json.write_text(
            json.dumps(_document(record, total, options.seed, time.monotonic() - begun), indent=1) + "\n"
        )
    return 0


def _document(record: dict[str, dict[str, object]], total: int, seed: str, seconds: float) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "warpsmith": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": len(os.sched_getaffinity(0)),
        "seed": seed,
        "inputs": total,
        "failures": 0,
        "seconds": round(seconds, 1),
        "borders": record,
    }


def _write_failure(path: Path, seed: str, failure: Failure) -> None:
    target = next(target for target in TARGETS if target.name == failure.target)
    given = target.make(Mutator(target.name, seed, failure.number))
    text = f"border {failure.target}, seed {seed}, input {failure.number}\n\n{given!r}\n\n{failure.what}\n"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
