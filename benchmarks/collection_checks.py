"""The kernels of the collection against the judge of today: does a text that was verified earlier still pass?

    python -m benchmarks.collection_checks --json benchmarks/h200/collection_checks.json --limit-s 300

Limits of errors and variants of inputs may change after a kernel was verified. Every kernel is judged (all guards and
checks, a short measurement that is not kept) and examined on held-out inputs, as in a verification. Sanitizers, which
see the same text, and the second measurement are left out, so that many kernels share the GPU. The record is written
after each kernel; what passed before with the same text and a judge that is no less strict is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.collection_record import kernels_in
from benchmarks.side_by_side import evaluator, side_by_side, task_bytes
from benchmarks.suite_sitting import versions

from warpsmith.evaluator.supervisor.result_cache import JUDGE_VERSION
from warpsmith.hardware.device import select_device
from warpsmith.kernels.collection import CollectedKernel
from warpsmith.kernels.facts import identity
from warpsmith.model.certificate import CheckStatus
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.settings import Settings
from warpsmith.system.files import put_in_place
from warpsmith.verification.verify import Verifier

_NO_STRICTER = 8  # judges since this version refuse nothing that it accepts
SETTINGS = Settings(seeds=1, max_samples=20, target_width=0.05, timing_budget_s=0.1)


@dataclass(frozen=True)
class Checked:
    """One kernel."""

    task: str
    candidate: str  # `identity` of the kernel
    judge: int  # `JUDGE_VERSION` of the evaluator
    status: str  # of the evaluation
    reason: str  # why it is refused, or which check failed; ""
    error: float | None  # the largest over its limit
    checks: dict[str, str]  # outcome by check
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing was found against it."""
        return not self.reason and bool(self.checks)


def check(kernel: CollectedKernel) -> Checked:
    """Judge and examine one kernel, in a process of `side_by_side`."""
    began, found = time.monotonic(), evaluator()
    found.renew(SETTINGS)
    status, reason, error, checks = "fault", "", None, {}
    try:
        verdict = found.evaluate_one(kernel.task.spec(), kernel.candidate, fresh=True)
        status, reason = verdict.status.value, verdict.reason
        error = max((each.error / each.error_limit for each in verdict.workloads if each.error_limit), default=None)
        outcomes = Verifier(found).examine(kernel.task.spec(), kernel.candidate, sanitizers=False) if verdict.ok else []
        checks = {each.name: each.outcome.value for each in outcomes}
        failed = [each for each in outcomes if each.outcome not in (CheckStatus.PASSED, CheckStatus.NOT_APPLICABLE)]
        reason = reason or "; ".join(f"{each.name}: {each.detail}" for each in failed)
    except WarpsmithError as fault:
        reason = str(fault)
    seconds = round(time.monotonic() - began, 1)
    return Checked(
        kernel.task.title, identity(kernel.candidate), JUDGE_VERSION, status, reason[:500], error, checks, seconds
    )


def read_record(path: Path) -> dict[str, Checked]:
    """The kernels of a record; none if there is no file."""
    if not path.exists():
        return {}
    return {row["task"]: Checked(**row) for row in json.loads(path.read_text(encoding="utf-8"))["kernels"]}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--limit-s", type=float, default=300.0)
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s
    device, known = select_device(options.device), read_record(options.json)
    wanted = set(filter(None, options.only.split(",")))
    works = {}
    for kernel in kernels_in(None):
        before, now = known.get(kernel.task.title), identity(kernel.candidate)
        settled = before is not None and before.passed and before.candidate == now and before.judge >= _NO_STRICTER
        if not settled and (not wanted or kernel.task.name in wanted):
            works[kernel.task.title] = (kernel, task_bytes(kernel.task.spec()))
    print(f"{len(works)} kernels to check", flush=True)
    for title, found in side_by_side(check, works, device, options.at_once, end):
        if found is None:
            print(f"{title:46} its process was killed", flush=True)
            continue
        known[title] = found
        details = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": device.name,
            "versions": versions(device),
        }
        rows = [asdict(known[name]) for name in sorted(known)]
        text = json.dumps({**details, "kernels": rows}, indent=1) + "\n"
        put_in_place(options.json, text.encode(), 0o644)
        print(f"{title:46} {'passed' if found.passed else found.reason[:200]} ({found.seconds:.0f} s)", flush=True)
    passed = sum(title in known and known[title].passed for title in works)
    print(f"{passed} of {len(works)} passed")
    return int(passed < len(works))


if __name__ == "__main__":
    sys.exit(main())
