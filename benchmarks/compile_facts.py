"""Adds what torch.compile does for each task to the facts that ship with the package.

    python -m benchmarks.compile_facts
    python -m benchmarks.compile_facts --check

It copies the times of PyTorch eager and torch.compile, with their intervals, date and versions, from
`benchmarks/h200/suite.json` to `src/warpsmith/kernels/facts/h200.json`, and changes nothing else there. It measures
nothing. `warpsmith kernels` and the tables of README.md compare kernels with torch.compile by these times.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.suite_figures import SuiteRecord, read_suite

from warpsmith.kernels.facts import FACTS, DeviceFacts, PytorchRecord, read_device, write_facts
from warpsmith.model.errors import UsageError, WarpsmithError

SUITE = Path(__file__).resolve().parent / "h200" / "suite.json"
KERNELS = FACTS / "h200.json"
_PRECISION = "fp32"  # the class of the kernels of the collection


def with_pytorch(facts: DeviceFacts, suite: SuiteRecord) -> DeviceFacts:
    """The facts with what a record of the suites says of PyTorch; both must be of one kind of GPU."""
    if suite.device.partition(" (")[0] != facts.device or suite.size != "full":
        raise UsageError(
            f"the record is of {suite.device} at the {suite.size} size and the facts are of {facts.device}; "
            "name a record of the same GPU at the full size."
        )
    tasks = {task.task: times for task in suite.tasks if (times := task.pytorch(_PRECISION))}
    return replace(facts, pytorch=PytorchRecord(suite.date, suite.versions, _PRECISION, tasks))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the facts, or say whether they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, default=SUITE, help="the record of PyTorch's times")
    parser.add_argument("--facts", type=Path, default=KERNELS, help="the facts of the same GPU")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 where they are out of date")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        suite, facts = read_suite(options.suite), read_device(options.facts)
        if suite is None or facts is None:
            raise UsageError(f"there is no file {options.suite if suite is None else options.facts}; measure first.")
        wanted = with_pytorch(facts, suite)
    except WarpsmithError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    if wanted == facts:
        return 0
    print(f"{options.facts.name} is out of date" if options.check else f"wrote {options.facts.name}")
    if not options.check:
        write_facts(options.facts, wanted)
    return int(options.check)


if __name__ == "__main__":
    sys.exit(main())
