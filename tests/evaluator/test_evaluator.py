"""The evaluator end to end on the CPU: kinds of tasks, batches, the cache, and the deaths of our own processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision

Kernel = Callable[[str], Candidate]
TaskFile = Callable[[str], Path]
WithSettings = Callable[[Settings], AbstractContextManager[Evaluator]]


def commented(candidate: Candidate, remark: str) -> Candidate:
    """The same program with another content, and so another id."""
    main = candidate.main
    return replace(candidate, files=(SourceFile(main.name, f"// {remark}\n{main.text}"), *candidate.files[1:]))


# --- kinds of tasks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "kernel_name"),
    [
        ("relu", "relu.cpp"),
        pytest.param("softmax", "softmax.cpp", marks=pytest.mark.slow),
        pytest.param("layer_norm", "layer_norm.cpp", marks=pytest.mark.slow),
        ("matmul_fp32", "matmul.cpp"),
        ("total", "total.cpp"),  # an output without dimensions
        ("argmax", "argmax.cpp"),  # an integer output; it takes the last of equal elements, PyTorch the first
        ("mean_and_peak", "mean_and_peak.cpp"),  # two outputs
        ("masked_gather", "masked_gather.cpp"),  # integer and bool inputs
        ("kernelbench_linear", "kernelbench_linear.cpp"),  # weights as state
    ],
)
def test_honest_kernels_are_valid(
    task: str, kernel_name: str, evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    verdict = evaluator.evaluate_one(task_file(task), kernel(kernel_name))
    assert verdict.status is Status.OK, verdict.reason
    assert verdict.speedup() is not None
    interval = verdict.interval()
    assert interval is not None
    assert interval.low <= verdict.speedup() <= interval.high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("task", "kernel_name", "status", "says"),
    [
        ("argmax", "argmax_next.cpp", Status.WRONG, "out"),
        ("mean_and_peak", "mean_without_peak.cpp", Status.UNWRITTEN, "peak"),
        ("matmul_fp32", "matmul_bf16_inputs.cpp", Status.WRONG, "error"),
    ],
)
def test_dishonest_kernels_are_not(
    task: str,
    kernel_name: str,
    status: Status,
    says: str,
    evaluator: Evaluator,
    kernel: Kernel,
    task_file: TaskFile,
) -> None:
    verdict = evaluator.evaluate_one(task_file(task), kernel(kernel_name))
    assert verdict.status is status, verdict.reason
    assert says in verdict.reason


def test_peaks_are_measured_again_when_a_kernel_beats_its_floor(
    quick_settings: Settings, cache_folder: Path, kernel: Kernel, task_file: TaskFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_folder / "beaten"
    shutil.copytree(cache_folder / "peaks", cache / "peaks")
    files = list((cache / "peaks").glob("*.json"))
    for file in files:  # a memory that no machine has, so that every kernel beats its floor and none skips work
        known = json.loads(file.read_text())
        file.write_text(json.dumps(known | {"bandwidth_bytes_s": 1e7, "load": 0.0, "spread": 0.0}))
    monkeypatch.setenv("WARPSMITH_CACHE", str(cache))
    with Evaluator("cpu", quick_settings) as fresh:
        verdict = fresh.evaluate_one(task_file("relu"), kernel("relu.cpp"))
    assert verdict.status is Status.OK, verdict.reason
    assert any(json.loads(file.read_text())["bandwidth_bytes_s"] > 1e8 for file in files)
    assert verdict.workloads[0].floor_ms < 10  # of 2 MiB; 210 ms by the figures that were beaten


def test_kernelbench_weights_are_state(evaluator: Evaluator, task_file: TaskFile) -> None:
    task = evaluator.describe(task_file("kernelbench_linear"))
    assert [(t.name, t.role.value, t.dims) for t in task.tensors] == [
        ("x", "input", (64, 128)),
        ("gemm_weight", "state", (96, 128)),
        ("gemm_bias", "state", (96,)),
        ("out", "output", (64, 96)),
    ]


def test_precision_can_be_overridden(evaluator: Evaluator, kernel: Kernel, task_file: TaskFile) -> None:
    assert {t.dtype for t in evaluator.describe(task_file("total"), Precision.FP64).tensors} == {"float64"}
    exact = evaluator.evaluate_one(task_file("total"), kernel("total_fp64.cpp"), Precision.FP64)
    assert (exact.status, exact.precision) == (Status.OK, "fp64"), exact.reason
    coarse = evaluator.evaluate_one(task_file("total"), kernel("total_fp64_in_float.cpp"), Precision.FP64)
    assert coarse.status is Status.WRONG, coarse.reason


@pytest.mark.slow  # torch.compile starts a compiler of its own
def test_both_baselines_are_measured(
    quick_settings: Settings, kernel: Kernel, task_file: TaskFile, marked_temp: Path
) -> None:
    settings = replace(quick_settings, baselines=("eager", "compile"))
    with Evaluator("cpu", settings) as evaluator:
        verdict = evaluator.evaluate_one(task_file("relu"), kernel("relu.cpp"))
    assert verdict.status is Status.OK, verdict.reason
    assert [b.name for b in verdict.workloads[0].baselines] == ["eager", "compile"], verdict.notes


@pytest.mark.slow
def test_a_kernel_too_slow_to_be_timed_is_its_own_fault(
    quick_settings: Settings, with_settings: WithSettings, kernel: Kernel, task_file: TaskFile
) -> None:
    # It sleeps, which is what the imports guard would refuse it for.
    settings = replace(quick_settings, without=("imports",), limits=replace(quick_settings.limits, total_s=8.0))
    with with_settings(settings) as evaluator:
        verdict = evaluator.evaluate_one(task_file("softmax"), kernel("slow.cpp"))
    assert verdict.status is Status.TIMED_OUT, verdict.reason
    assert "far too slow to be timed" in verdict.reason
    assert verdict.without == ("imports",)  # a verdict names the guards that were missing


SLOW_REFERENCE = """
import time
import torch
from warpsmith import normal, task

@task(x=normal("n"), workloads=[{"n": 1 << 12}], precision="fp32")
def relu(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.2)
    return torch.relu(x)
"""


@pytest.mark.slow
def test_the_time_that_judging_takes_is_not_the_candidates(
    quick_settings: Settings, with_settings: WithSettings, kernel: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW_REFERENCE)
    limits = replace(quick_settings.limits, total_s=4.0)
    with with_settings(replace(quick_settings, limits=limits)) as evaluator:
        verdict = evaluator.evaluate_one(tmp_path / "slow.py", kernel("relu.cpp"))
    assert verdict.status is Status.OK, verdict.reason
    assert verdict.seconds > 4.0


# --- mistakes of the caller ---------------------------------------------------------------------------------


def test_a_candidate_for_another_device_is_refused(evaluator: Evaluator, kernel: Kernel, task_file: TaskFile) -> None:
    with pytest.raises(UsageError, match="runs on cuda, not on"):
        evaluator.evaluate_one(task_file("relu"), kernel("relu.cu"))


def test_a_file_that_is_no_task_is_refused_in_one_sentence(
    evaluator: Evaluator, kernel: Kernel, tmp_path: Path
) -> None:
    stray = tmp_path / "stray.py"
    stray.write_text("print('hello')\n")
    with pytest.raises(TaskError) as refusal:
        evaluator.evaluate_one(stray, kernel("relu.cpp"))
    assert "stray.py" in str(refusal.value)
    assert "\n" not in str(refusal.value)


# --- batches and the cache ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_judges_each_exactly_once(evaluator: Evaluator, kernel: Kernel, task_file: TaskFile) -> None:
    right = commented(kernel("right.cpp"), "batch")
    batch = [right, kernel("wrong.cpp"), kernel("does_not_compile.cpp"), commented(right, "again"), right]
    judged = list(evaluator.evaluate(task_file("softmax"), batch))
    assert sorted(index for index, _ in judged) == [0, 1, 2, 3, 4]
    by_index = dict(judged)
    statuses = [by_index[i].status for i in range(5)]
    assert statuses == [Status.OK, Status.WRONG, Status.BUILD_ERROR, Status.OK, Status.OK]
    assert [by_index[i].candidate for i in range(5)] == [c.id for c in batch]


def test_nobody_answers_for_what_an_earlier_candidate_wrote(
    evaluator: Evaluator, kernel: Kernel, task_file: TaskFile
) -> None:
    """Its own error came first, so nobody looked at the red zones then."""
    vandal, honest = kernel("scribbles_and_fails.cpp"), commented(kernel("softmax.cpp"), "after a vandal")
    first = evaluator.evaluate_one(task_file("softmax"), vandal)
    assert (first.status, "returned 7" in first.reason) == (Status.LAUNCH_FAILED, True), first.reason
    second = evaluator.evaluate_one(task_file("softmax"), honest)
    assert second.status is Status.OK, second.reason


def test_a_verdict_is_remembered_unless_told_otherwise(
    evaluator: Evaluator, quick_settings: Settings, kernel: Kernel, task_file: TaskFile
) -> None:
    candidates = [commented(kernel("right.cpp"), "remember"), kernel("wrong.cpp")]
    first = dict(evaluator.evaluate(task_file("softmax"), candidates))
    assert not first[0].cached
    second = dict(evaluator.evaluate(task_file("softmax"), candidates))
    assert second[0].cached
    assert second[1].cached
    assert second == first, "a cached verdict is the verdict"
    again = evaluator.evaluate_one(task_file("softmax"), candidates[0], fresh=True)
    assert not again.cached
    assert evaluator.evaluate_one(task_file("softmax"), candidates[0]).seconds == again.seconds, "the new one is kept"


# --- our own deaths -----------------------------------------------------------------------------------------


def is_fork_server(process: psutil.Process, kind: str) -> bool:
    """Whether it is the parent process of "judges" (which imports torch) or of "hosts"."""
    words = process.cmdline()
    return "warpsmith.evaluator.supervisor.fork_server" in words and any('"torch"' in word for word in words) == (
        kind == "judges"
    )


@pytest.mark.slow
def test_every_candidate_is_judged_though_our_workers_are_killed(
    quick_settings: Settings,
    kernel: Kernel,
    task_file: TaskFile,
    marked_temp: Path,
    left_running: Callable[[Path], list[str]],
) -> None:
    """Kills, while candidates are being checked: first the judge, then its parent, then the hosts' parent."""
    ours = {p.pid for p in psutil.Process().children()}
    killed: dict[int, str] = {}  # by candidate: one disturbance each

    def newest(kind: str) -> psutil.Process:
        found = [p for p in psutil.Process().children() if p.pid not in ours and is_fork_server(p, kind)]
        return found[-1]

    victims: list[tuple[str, Callable[[], list[psutil.Process]]]] = [
        ("judge", lambda: newest("judges").children()),
        ("parent of judges", lambda: [newest("judges")]),
        ("parent of hosts", lambda: [newest("hosts")]),
    ]

    def disturb(progress: Progress) -> None:
        if progress.stage == "check" and progress.index not in killed:
            killed[progress.index], find = victims.pop(0)
            for process in find():
                process.kill()

    messages: list[str] = []
    candidates = [commented(kernel("right.cpp"), f"disturbed {i}") for i in range(3)]
    with Evaluator("cpu", quick_settings, on_progress=disturb, on_message=messages.append) as evaluator:
        judged = dict(evaluator.evaluate(task_file("softmax"), candidates))
    assert sorted(killed.values()) == ["judge", "parent of hosts", "parent of judges"]
    assert [judged[i].status for i in range(3)] == [Status.OK] * 3, [judged[i].reason for i in range(3)]
    assert sum("Trying again" in message for message in messages) == 3, messages
    assert left_running(marked_temp) == []


SUPERVISOR = """
import json, sys
import psutil
from warpsmith.backends.source import read_candidate
from warpsmith.model.settings import Limits, Settings
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from pathlib import Path

task, *files = sys.argv[1:]
settings = Settings(seeds=1, max_samples=10, timing_budget_s=0.05, limits=Limits(launch_s=60.0))
report = lambda progress: print(progress.stage, file=sys.stderr, flush=True)
with Evaluator("cpu", settings, on_progress=report, use_cache=False) as evaluator:
    statuses = [e.status for _, e in evaluator.evaluate(task, [read_candidate(Path(f)) for f in files])]
print(json.dumps({"statuses": statuses, "rss": psutil.Process().memory_info().rss, "torch": "torch" in sys.modules}))
"""


def start_supervisor(task: Path, *files: Path) -> subprocess.Popen[str]:
    """An evaluator in a process of its own; it reports stages on stderr and one JSON object on stdout."""
    command = [sys.executable, "-c", SUPERVISOR, str(task), *map(str, files)]
    return KilledProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


@pytest.mark.slow
def test_the_supervisor_is_small_and_has_no_torch(task_file: TaskFile, kernel_path: Callable[[str], Path]) -> None:
    supervisor = start_supervisor(task_file("softmax"), kernel_path("right.cpp"), kernel_path("wrong.cpp"))
    with supervisor:
        out, err = supervisor.communicate(timeout=120)
    assert supervisor.returncode == 0, err
    said = json.loads(out)
    assert sorted(said["statuses"]) == ["ok", "wrong"]
    assert said["rss"] < 300e6
    assert said["torch"] is False


def test_nothing_outlives_a_killed_supervisor(
    task_file: TaskFile,
    kernel_path: Callable[[str], Path],
    marked_temp: Path,
    left_running: Callable[[Path], list[str]],
) -> None:
    """Killed while a candidate is in an endless loop."""
    with start_supervisor(task_file("softmax"), kernel_path("hangs.cpp")) as supervisor:
        assert supervisor.stderr is not None
        stages = []
        for line in supervisor.stderr:
            stages.append(line.strip())
            if stages[-1] == "check":
                break
        assert stages[-1] == "check", stages
        time.sleep(0.5)  # now the candidate is in its loop
    assert left_running(marked_temp) == []
