"""Are the suites fit to judge by? Every task calibrated at its full size, on the device they are meant for.

    python -m benchmarks.suite_calibration --json benchmarks/h200/suite_calibration.json
    python -m benchmarks.suite_calibration --json /tmp/cpu.json --device cpu --small --only loss

The tests do the same on the CPU with small workloads. Size matters: a mean of a thousand million values hides what one
of thirty thousand shows. Writes after every task and leaves out what passed before: run it again until nothing is left.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from benchmarks.side_by_side import evaluator, side_by_side, task_bytes
from benchmarks.suite_figures import FitFigures, FitRecord, chosen, in_turn, read_fit, write
from benchmarks.suite_sitting import Common, check_same, common_of, common_parser, ended, merged, versions

from warpsmith.hardware.device import Device, select_device
from warpsmith.model.certificate import Calibration
from warpsmith.model.errors import HarnessFault, TaskError
from warpsmith.tasks import suites
from warpsmith.tasks.suites import SuiteTask

_NO_MEMORY = "not enough memory"
_AT_ONCE = {"cuda": 6, "cpu": 1}
_SPARE = 2  # times the memory that judging takes, so that no impostor is left out for a neighbour's sake


def figures_of(entry: SuiteTask, found: Calibration, seconds: float) -> FitFigures:
    """What is kept of an outcome."""
    caught = [each for each in found.impostors if each.applies and each.caught_by]
    near = min(((each.share, each.name) for each in caught if each.share is not None), default=None)
    return FitFigures(
        task=entry.title,
        family=entry.family,
        passed=found.passed,
        reason=found.reason,
        caught=len(caught),
        weakest=(near[1], near[0]) if near else None,
        untried=tuple(each.name for each in found.impostors if not each.applies and _NO_MEMORY in each.detail),
        baseline_share=found.baseline_share,
        reserve=found.reserve,
        seconds=round(seconds, 1),
    )


def begun(common: Common, device: Device) -> FitRecord:
    """The record to go on with, or a new one."""
    known = common.record(read_fit)
    if known is not None:
        check_same((known.device, known.size), (device.label, common.size))
    return FitRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.label,
        versions=versions(device),
        size=common.size,
        seconds=known.seconds if known else 0.0,
        tasks=known.tasks if known else (),
    )


def work(common: Common, began: float) -> int:
    """Calibrate, write; 0 where all have passed, 1 where one is refused or another sitting is needed."""
    device = select_device(common.device)
    record = begun(common, device)
    done = {task.task for task in record.tasks if task.passed}
    wanted = [entry for entry in in_turn(chosen(suites.select_tasks(), common.only)) if entry.title not in done]
    left = len(wanted)
    works = {
        entry.title: ((entry, spec), _SPARE * task_bytes(spec))
        for entry in wanted
        for spec in [entry.spec(common.size)]
    }
    for title, figures in side_by_side(calibrated, works, device, _AT_ONCE[device.kind], began + common.limit_s):
        entry = works[title][0][0]
        found = figures or FitFigures(title, entry.family, passed=False, failure="its process was killed")
        left -= found.passed
        seconds = round(record.seconds + found.seconds, 1)
        record = replace(record, tasks=merged(record.tasks, found), seconds=seconds)
        write(common.json, record)
        print(line(found), flush=True)
    fit = sum(task.passed for task in record.tasks)
    took = time.monotonic() - began
    print(f"{fit} of {len(record.tasks)} tasks fit in {common.json}, {left} left, {took:.0f} s", file=sys.stderr)
    return 1 if left else 0


def calibrated(work: tuple[SuiteTask, str]) -> FitFigures:
    """One task, in a process of its own."""
    (entry, spec), start = work, time.monotonic()
    try:
        _, found = evaluator().calibrate(spec, fresh=True)
    except (TaskError, HarnessFault) as fault:  # one task that does not work here must not cost the others
        return FitFigures(entry.title, entry.family, passed=False, failure=str(fault))
    return figures_of(entry, found, time.monotonic() - start)


def line(figures: FitFigures) -> str:
    """One task, for whoever watches."""
    if not figures.passed:
        return f"{figures.task:42} {figures.failure or figures.reason}"
    nearest = f", nearest {figures.weakest[0]} at {figures.weakest[1]:.3g}" if figures.weakest else ""
    needs = f", needs {', '.join(figures.reserve)}" if figures.reserve else ""
    short = f", {len(figures.untried)} not tried" if figures.untried else ""
    return f"{figures.task:42} fit, {figures.caught} impostors caught{nearest}{needs}{short}, {figures.seconds:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate the suites."""
    began = time.monotonic()
    given = common_parser(__doc__, device="auto", limit_s=500.0).parse_args(
        sys.argv[1:] if arguments is None else arguments
    )
    common = common_of(given)
    return ended(lambda: work(common, began), common.json)


if __name__ == "__main__":
    sys.exit(main())
