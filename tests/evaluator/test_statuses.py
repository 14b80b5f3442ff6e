"""Every way to fail that a candidate has, through the real compiler and real processes, on the CPU.

The whole table is one batch of one evaluator, because a batch is what must survive it. The filter of imported symbols
is left out there: it would refuse some of these before they could do what the sandbox must withstand.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings


@dataclass(frozen=True)
class Expected:
    """What must be said about one kernel of tests/kernels/cpu."""

    kernel: str
    status: Status
    says: tuple[str, ...] = ()  # patterns the reason must contain: what a proposer needs
    needs: str = ""  # a sandbox layer without which the machine cannot show it


TABLE = (
    Expected("right", Status.OK),
    Expected("wrong", Status.WRONG, (r"\bout\b", r"expected", r"workload 'wide'")),
    Expected("does_not_compile", Status.BUILD_ERROR, (r"does_not_compile\.cpp:4", "softmax_of")),
    Expected("hangs", Status.TIMED_OUT, (r"within \d.* s while running on workload 'wide'", "endless loop")),
    Expected("segfaults", Status.CRASHED, ("Segmentation fault", "wrote to memory", "0x123400001000")),
    Expected("out_of_bounds", Status.OUT_OF_BOUNDS, (r"wrote .*past the end of 'out'", "index is out of range")),
    Expected("changes_input", Status.INPUT_MODIFIED, ("wrote to the input 'x'", "read-only")),
    Expected("half_written", Status.UNWRITTEN, (r"\bout\b", "50 %|half|65536")),
    # --- beyond the eight ---
    Expected("no_entry", Status.BUILD_ERROR, ("launch", r'extern "C" int launch\(const float\* x')),
    Expected("wrong_signature", Status.BUILD_ERROR, (r"wrong_signature\.cpp:10", "int64_t rows")),
    Expected("returns_error", Status.LAUNCH_FAILED, ("returned 7",)),
    Expected("exits", Status.CRASHED, ("ended its own process with status 0", "return instead")),
    Expected("aborts", Status.CRASHED, ("Aborted", "running on workload 'wide'")),
    Expected("null_pointer", Status.CRASHED, ("null pointer",)),
    Expected("null_workspace", Status.CRASHED, ("null pointer", "defines no workspace_bytes")),
    Expected("stack_overflow", Status.CRASHED, ("Segmentation fault",)),
    Expected("reads_past", Status.OUT_OF_BOUNDS, (r"read .*8000 bytes past the end of 'x'",)),
    Expected("nan_output", Status.WRONG, (r"\bout\b", "(?i)nan")),
    Expected("uses_workspace", Status.OK),
    Expected("greedy_workspace", Status.OUT_OF_MEMORY, ("workspace_bytes", str(1 << 40))),
    Expected("negative_workspace", Status.OUT_OF_MEMORY, ("workspace_bytes", "-1")),
    Expected("constructor_hang", Status.TIMED_OUT, ("being loaded",)),
    Expected("prints_a_lot", Status.OK),
    Expected("writes_file", Status.OK, needs="landlock"),
    Expected("reads_secrets", Status.OK, needs="landlock"),
    Expected("opens_socket", Status.OK, needs="seccomp"),
)


@dataclass
class Aftermath:
    """What the batch gave, and what it left."""

    verdicts: dict[str, Evaluation]
    after: Evaluation  # of a right kernel, judged after all the others
    folders: list[str] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def module_monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def aftermath(
    module_monkeypatch: pytest.MonkeyPatch,
    marked_temp_of_module: Path,
    quick_settings: Settings,
    kernel: Callable[[str], Candidate],
    task_file: Callable[[str], Path],
    left_running: Callable[[Path], list[str]],
) -> Aftermath:
    """The whole table judged in one batch, in full view of a key and of a listening neighbour."""
    module_monkeypatch.setenv("SOME_API_KEY", "must not be seen")
    names = [e.kernel for e in TABLE] + ["memory_bomb", "fork_bomb"]
    with socket.create_server(("127.0.0.1", 0)) as neighbour:
        port = ("PORT", str(neighbour.getsockname()[1]))
        candidates = [kernel(f"{name}.cpp") for name in names]
        candidates = [
            replace(c, defines=(port,)) if n == "opens_socket" else c for n, c in zip(names, candidates, strict=True)
        ]
        unfiltered = replace(quick_settings, without=("imports",))
        with Evaluator("cpu", unfiltered, use_cache=False) as evaluator:
            judged = list(evaluator.evaluate(task_file("softmax"), candidates))
            after = evaluator.evaluate_one(task_file("softmax"), kernel("right.cpp"))
    assert sorted(index for index, _ in judged) == list(range(len(names))), "each candidate exactly once"
    return Aftermath(
        {names[index]: evaluation for index, evaluation in judged},
        after,
        [f for f in os.listdir(marked_temp_of_module) if not f.startswith("torchinductor_")],  # made by importing torch
        left_running(marked_temp_of_module),
    )


@pytest.mark.parametrize("expected", TABLE, ids=lambda e: e.kernel)
def test_each_failure_has_its_status_and_a_reason_to_act_on(expected: Expected, aftermath: Aftermath) -> None:
    verdict = aftermath.verdicts[expected.kernel]
    if expected.needs and not any(layer.startswith(expected.needs) for layer in verdict.environment.sandbox):
        pytest.skip(f"this machine has no {expected.needs}, so nothing refuses what {expected.kernel} tries")
    assert verdict.status is expected.status, verdict.reason
    for pattern in expected.says:
        assert re.search(pattern, verdict.reason), f"{pattern!r} is not in: {verdict.reason}"


def test_a_memory_bomb_dies_alone(aftermath: Aftermath) -> None:
    verdict = aftermath.verdicts["memory_bomb"]
    assert verdict.status in (Status.CRASHED, Status.OUT_OF_MEMORY), verdict.reason


def test_a_fork_bomb_starts_nothing_that_stays(aftermath: Aftermath) -> None:
    """Refused outright it may still be right; whatever it is called, it was judged."""
    assert aftermath.verdicts["fork_bomb"].status is not Status.NOT_JUDGED
    assert aftermath.processes == []


def test_a_valid_verdict_says_how_fast_how_exact_and_under_which_sandbox(
    aftermath: Aftermath, quick_settings: Settings
) -> None:
    verdict = aftermath.verdicts["right"]
    assert [w.workload for w in verdict.workloads] == ["wide", "odd"]
    for workload in verdict.workloads:
        assert workload.latency_ms > 0
        assert workload.error <= workload.error_limit
        assert workload.floor_ms > 0
        assert workload.baselines[0].name == "eager"
        assert workload.baselines[0].samples >= quick_settings.min_samples
        assert workload.checks >= 2, "the task's own inputs and at least one variant"
    assert verdict.environment.sandbox, "the layers that were active are named"
    assert verdict.environment.threads == 1, "as OMP_NUM_THREADS says"


def test_the_evaluator_still_judges_after_all_of_them(aftermath: Aftermath) -> None:
    assert aftermath.after.status is Status.OK, aftermath.after.reason


def test_nothing_is_left_running_or_on_disk(aftermath: Aftermath) -> None:
    assert aftermath.processes == []
    assert aftermath.folders == []


REFUSED = {  # kernel of tests/kernels/cpu: what it is refused for before it runs
    "exits": "forged verdict: the object imports exit;",
    "fork_bomb": r"resource bomb: the object imports fork \(1 other name",
    "opens_socket": r"reaching out: the object imports connect, socket \(1 other name",
    "reads_secrets": "reaching out: the object imports .*environ.*, open;",
    "writes_file": r"reaching out: the object imports open, unlink \(1 other name",
}


def test_what_need_not_be_run_is_refused_by_what_it_imports(
    evaluator: Evaluator, kernel: Callable[[str], Candidate], task_file: Callable[[str], Path]
) -> None:
    candidates = [replace(kernel(f"{name}.cpp"), defines=(("PORT", "1"),)) for name in (*REFUSED, "prints_a_lot")]
    verdicts = {candidates[i].main.name: v for i, v in evaluator.evaluate(task_file("softmax"), candidates)}

    for name, says in REFUSED.items():
        verdict = verdicts[f"{name}.cpp"]
        assert verdict.status is Status.REJECTED, verdict.reason
        assert re.match(says, verdict.reason), verdict.reason
        assert verdict.environment.sandbox == (), "nothing of it ran"
    assert verdicts["prints_a_lot.cpp"].status is Status.OK, "printing is no crime"


PLANTED = """extern "C" int launch(const float* x, float* out, int64_t n, void*, void*) {{
  for (int64_t i = 0; i < n; ++i) out[i] = {value};
  return 0;
}}
"""


def test_a_kernel_that_the_published_rule_accepts_is_refused_and_both_are_said(
    with_settings: Callable[[Settings], AbstractContextManager[Evaluator]],
    quick_settings: Settings,
    task_file: Callable[[str], Path],
) -> None:
    values = {"right": "x[i] > 0 ? x[i] : 0", "coarse": "x[i] > 0 ? 1.002f * x[i] : 0", "far": "x[i]"}
    kernels = {
        name: Candidate((SourceFile("k.cpp", PLANTED.format(value=text)),), "cpu") for name, text in values.items()
    }
    task = task_file("relu")
    with with_settings(replace(quick_settings, published_rule=True)) as judging:
        found = {evaluation.candidate: evaluation for _, evaluation in judging.evaluate(task, list(kernels.values()))}
    said = {name: found[each.id] for name, each in kernels.items()}

    assert {name: (each.ok, each.published) for name, each in said.items()} == {
        "right": (True, True),
        "coarse": (False, True),
        "far": (False, False),
    }
    assert said["coarse"].status is Status.WRONG
