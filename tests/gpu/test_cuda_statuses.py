"""Every way to fail that a CUDA candidate has, as one batch on a real GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings

pytestmark = pytest.mark.gpu

TABLE: dict[str, tuple[Status, str]] = {  # kernel of tests/kernels/cuda: status, and what the reason must say
    "right": (Status.OK, ""),
    "wrong": (Status.WRONG, r"\bout\b"),
    "does_not_compile": (Status.BUILD_ERROR, r"does_not_compile\.cu:3"),
    "hangs": (Status.TIMED_OUT, r"within \d.* s while running on workload 'wide'"),
    "segfaults": (Status.CRASHED, "0x123400001000"),
    "out_of_bounds": (Status.OUT_OF_BOUNDS, "past the end of 'out'"),
    "changes_input": (Status.INPUT_MODIFIED, "read-only"),
    "half_written": (Status.UNWRITTEN, r"\bout\b"),
    # --- beyond the eight ---
    "no_entry": (Status.BUILD_ERROR, "launch"),
    "returns_error": (Status.LAUNCH_FAILED, "returned 7"),
    "exits": (Status.CRASHED, "status 0"),
    "aborts": (Status.CRASHED, "Aborted"),
    "bad_launch_config": (Status.LAUNCH_FAILED, "invalid (configuration )?argument|invalid configuration"),
    "illegal_address": (Status.OUT_OF_BOUNDS, "illegal memory access|illegal address"),
    "null_workspace": (Status.OUT_OF_BOUNDS, "defines no workspace_bytes"),
    "device_trap": (Status.LAUNCH_FAILED, "device reports"),
    "device_assert": (Status.LAUNCH_FAILED, "assert"),
    "ignores_stream": (Status.OK, ""),
    "nan_output": (Status.WRONG, "(?i)nan"),
    "uses_workspace": (Status.OK, ""),
    "greedy_workspace": (Status.OUT_OF_MEMORY, "workspace_bytes"),
    "greedy_device": (Status.OUT_OF_MEMORY, "device memory"),
    "constructor_hang": (Status.TIMED_OUT, "being loaded"),
}


@dataclass
class Aftermath:
    """What the batch gave, and what it left."""

    verdicts: dict[str, Evaluation]
    after: Evaluation
    folders: list[str]
    processes: list[str]


@pytest.fixture(scope="module")
def aftermath(
    gpu: None,
    gpu_settings: Settings,
    marked_temp_of_module: Path,
    kernel: Callable[[str], Candidate],
    task_file: Callable[[str], Path],
    left_running: Callable[[Path], list[str]],
) -> Aftermath:
    names = list(TABLE)
    with Evaluator("cuda", gpu_settings, use_cache=False) as evaluator:
        judged = list(evaluator.evaluate(task_file("softmax"), [kernel(f"{name}.cu") for name in names]))
        after = evaluator.evaluate_one(task_file("softmax"), kernel("right.cu"))
    assert sorted(index for index, _ in judged) == list(range(len(names))), "each candidate exactly once"
    return Aftermath(
        {names[index]: evaluation for index, evaluation in judged},
        after,
        [f for f in os.listdir(marked_temp_of_module) if not f.startswith("torchinductor_")],  # made by importing torch
        left_running(marked_temp_of_module),
    )


@pytest.mark.parametrize("name", TABLE)
def test_each_failure_has_its_status_and_a_reason_to_act_on(name: str, aftermath: Aftermath) -> None:
    verdict = aftermath.verdicts[name]
    status, says = TABLE[name]
    assert verdict.status is status, verdict.reason
    assert re.search(says, verdict.reason), verdict.reason


def test_a_valid_verdict_names_the_kernel_s_resources(aftermath: Aftermath) -> None:
    (kernel,) = aftermath.verdicts["right"].resources
    assert kernel.registers > 0


def test_the_kernels_of_a_valid_candidate_were_traced(aftermath: Aftermath) -> None:
    assert not any("not traced" in note for note in aftermath.verdicts["right"].notes)


def test_the_evaluator_still_judges_after_all_of_them(aftermath: Aftermath) -> None:
    assert aftermath.after.status is Status.OK, aftermath.after.reason


def test_nothing_is_left_running_or_on_disk(aftermath: Aftermath) -> None:
    assert aftermath.processes == []
    assert aftermath.folders == []
