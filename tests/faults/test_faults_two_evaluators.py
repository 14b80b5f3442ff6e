"""Two evaluators on one device at once: both right, never timed at the same time, though one is killed."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import World, commented
from warpsmith.model.candidate import Candidate

pytestmark = pytest.mark.slow  # minutes in all; `make test-all` runs them

SUPERVISOR = """
import json, sys, time
from pathlib import Path
from warpsmith.backends.source import read_candidate
from warpsmith.model.settings import Limits, Settings
from warpsmith.evaluator.supervisor.evaluator import Evaluator


def say(**words):
    print(json.dumps({"at": time.monotonic(), **words}), flush=True)

task, *files = sys.argv[1:]
settings = Settings(seeds=1, max_samples=10, timing_budget_s=0.3, limits=Limits(start_s=60.0))
with Evaluator(
    "cpu",
    settings,
    use_cache=False,
    on_progress=lambda progress: say(stage=progress.stage, index=progress.index),
    on_message=lambda text: say(message=text),
) as evaluator:
    for index, evaluation in evaluator.evaluate(task, [read_candidate(Path(f)) for f in files]):
        say(index=index, status=evaluation.status, reason=evaluation.reason)
"""


@dataclass(frozen=True)
class Account:
    """What one evaluator said, line by line, with times of the machine's clock."""

    lines: list[dict[str, object]]

    @property
    def statuses(self) -> dict[object, object]:
        """By candidate."""
        return {line["index"]: line["status"] for line in self.lines if "status" in line}

    def timed(self) -> list[tuple[float, float]]:
        """From the start of each timing to the verdict: the device was ours for at least that long."""
        begun: dict[object, float] = {}
        spans = []
        for line in self.lines:
            at = float(str(line["at"]))
            if line.get("stage") == "time":
                begun[line["index"]] = at
            elif line.get("stage") == "judged":
                spans.append((begun[line["index"]], at))
        return spans


def files_of(folder: Path, right: Candidate, count: int, suffix: str = ".cpp") -> list[str]:
    found = []
    for i in range(count):
        path = folder / f"{folder.name}_{i}{suffix}"
        path.write_text(commented(right, f"{folder.name} {i}").main.text)
        found.append(str(path))
    return found


def account(process: subprocess.Popen[str]) -> Account:
    out, said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    return Account([json.loads(line) for line in out.splitlines()])


def test_two_evaluators_share_a_device_and_survive_each_other(
    world: World, plain: Candidate, tiny: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second", "victim")]
    for folder in folders:
        folder.mkdir()
    first, second, victim = (
        world.start("-c", SUPERVISOR, str(tiny), *files_of(folder, plain, 4)) for folder in folders
    )
    # The third is killed while it holds the device.
    assert victim.stdout is not None
    for line in victim.stdout:
        if json.loads(line).get("stage") == "time":
            break
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    accounts = [account(first), account(second)]
    for one in accounts:
        assert one.statuses == dict.fromkeys(range(4), "ok"), one.lines
    spans = sorted(span for one in accounts for span in one.timed())
    assert len(spans) == 8
    overlaps = [(a, b) for a, b in itertools.pairwise(spans) if b[0] < a[1]]
    assert overlaps == []
    assert world.left() == []
