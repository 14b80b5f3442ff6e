"""Python candidates on the CPU, judged in processes of their own: statuses, reasons, state, extensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels" / "python"
SOFTMAX_TASK = KERNELS / "softmax_task.py"  # allows PyTorch's operators
STRICT_TASK = ROOT / "kernels" / "tasks" / "softmax.py"

# A file, its status, and what the reason must say.
SOFTMAX = {
    "softmax": (Status.OK, ""),
    "softmax_wrong": (Status.WRONG, "out differs"),
    "raises": (Status.LAUNCH_FAILED, "raises.py:7: ValueError: expected three dimensions, got 2"),
    "lazy_tensor": (Status.REJECTED, "lazy tensor: out was returned as candidate.Later"),
    "wrong_shape": (Status.WRONG, "float32 [512, 255], where float32 [512, 256] is expected"),
    "wrong_type": (Status.WRONG, "float64 [512, 256], where float32 [512, 256] is expected"),
    "too_many": (Status.WRONG, "it returned 2 tensors, where the task has 1 tensor (out)"),
    "changes_input": (Status.INPUT_MODIFIED, "wrote to the input 'x'"),
    "hangs": (Status.TIMED_OUT, "an endless loop"),
    "exits": (Status.CRASHED, "ended its own process with status 7"),
    "quits": (Status.CRASHED, "ended its own process"),
    "writes_file": (Status.OK, ""),
    "starts_program": (Status.LAUNCH_FAILED, "starts_program.py:9: PermissionError"),
    "import_fails": (Status.BUILD_ERROR, "import_fails.py:4: RuntimeError: a Tensor with 2 elements"),
}
LEFT_BEHIND = [Path(folder, "warpsmith-python-was-here") for folder in ("/tmp", "/dev/shm", "/var/tmp")]


def judged(evaluator: Evaluator, task: Path, names: tuple[str, ...], entry: str = "") -> Mapping[str, Evaluation]:
    candidates = [read_candidate(KERNELS / name, entry=entry) for name in names]
    return {names[index]: verdict for index, verdict in evaluator.evaluate(task, candidates)}


@pytest.fixture(scope="module")
def softmax_verdicts(evaluator: Evaluator) -> Mapping[str, Evaluation]:
    """All in one batch: the workers are started once."""
    for path in LEFT_BEHIND:
        path.unlink(missing_ok=True)
    return judged(evaluator, SOFTMAX_TASK, tuple(f"{name}.py" for name in SOFTMAX))


@pytest.mark.parametrize("name", SOFTMAX)
def test_every_outcome_has_its_status_and_a_reason_to_act_on(
    softmax_verdicts: Mapping[str, Evaluation], name: str
) -> None:
    verdict = softmax_verdicts[f"{name}.py"]
    status, reason = SOFTMAX[name]

    assert (verdict.status, verdict.reason) == (status, verdict.reason)
    assert reason in verdict.reason
    assert verdict.environment.backend == "torch_module"
    assert verdict.environment.compiler.startswith("python 3.")


def test_a_candidate_leaves_no_file_outside_its_folder(softmax_verdicts: Mapping[str, Evaluation]) -> None:
    assert softmax_verdicts["writes_file.py"].ok
    assert not any(path.exists() for path in LEFT_BEHIND)


def test_a_valid_module_is_timed_against_pytorch(softmax_verdicts: Mapping[str, Evaluation]) -> None:
    verdict = softmax_verdicts["softmax.py"]

    assert [w.workload for w in verdict.workloads] == ["wide", "odd"]
    assert all(w.latency_ms > 0 and w.baselines[0].speedup > 0 for w in verdict.workloads)
    assert all(w.error <= w.error_limit for w in verdict.workloads)
    assert "seccomp" in verdict.environment.sandbox


def test_a_view_is_made_contiguous_within_the_call(evaluator: Evaluator, tmp_path: Path) -> None:
    """Copying it after the call took processor time that no clock of the process explained."""
    task, module = tmp_path / "turned.py", tmp_path / "view.py"
    task.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        '@task(x=normal("m, n"), workloads=[{"m": 1024, "n": 1024}])\n'
        "def turned(x):\n    return x.t().contiguous()\n"
    )
    module.write_text(
        "from torch import nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x.t()\n"
    )
    verdict = evaluator.evaluate_one(task, read_candidate(module))
    assert verdict.status is Status.OK, verdict.reason
    assert verdict.workloads[0].baselines[0].speedup < 4


def test_operators_of_pytorch_are_a_library_that_a_task_must_allow(evaluator: Evaluator) -> None:
    (verdict,) = judged(evaluator, STRICT_TASK, ("softmax.py",)).values()

    assert verdict.status is Status.REJECTED
    assert "library call" in verdict.reason
    assert 'allow = ["torch"]' in verdict.reason


@pytest.mark.parametrize("entry", ["softmax(x, dim=1)", "softmax_into(x, out)"])
def test_a_plain_function_is_called_as_the_entry_says(evaluator: Evaluator, entry: str) -> None:
    (verdict,) = judged(evaluator, SOFTMAX_TASK, ("functions.py",), entry).values()

    assert verdict.ok, verdict.reason


def test_a_module_gets_the_weights_of_the_task(evaluator: Evaluator) -> None:
    names = tuple(f"linear_{name}.py" for name in ("relu", "renamed", "unknown", "cached"))
    verdicts = judged(evaluator, KERNELS / "linear_task.py", names)

    assert verdicts["linear_relu.py"].ok, verdicts["linear_relu.py"].reason
    assert verdicts["linear_renamed.py"].ok, verdicts["linear_renamed.py"].reason
    # Its parameter has no counterpart, and what it derived from its own weights is of no use with others.
    assert verdicts["linear_unknown.py"].status is Status.BUILD_ERROR
    assert "no values for the parameter packed [12384]" in verdicts["linear_unknown.py"].reason
    assert verdicts["linear_cached.py"].status is Status.WRONG


def test_a_layer_may_write_to_its_own_buffers(evaluator: Evaluator) -> None:
    (verdict,) = judged(evaluator, KERNELS / "norm_task.py", ("norm.py",)).values()

    assert verdict.ok, verdict.reason


def test_several_outputs_come_in_the_order_of_the_task(evaluator: Evaluator) -> None:
    (verdict,) = judged(evaluator, KERNELS / "mean_and_peak_task.py", ("mean_and_peak.py",)).values()

    assert verdict.ok, verdict.reason


# --- extensions: what is compiled, is compiled once ---


@pytest.fixture(scope="module")
def patient(quick_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Paths]:
    """Time for torch's headers on a busy machine, and a cache of its own."""
    limits = replace(quick_settings.limits, build_s=240.0, memory_bytes=1 << 30, scratch_bytes=64 << 20)
    return replace(quick_settings, limits=limits), Paths(tmp_path_factory.mktemp("extension-cache"))


@pytest.mark.slow  # it builds an extension
def test_nothing_outlives_the_compiling_of_a_candidate(patient: tuple[Settings, Paths]) -> None:
    settings, paths = patient
    impatient = replace(settings, limits=replace(settings.limits, build_s=1.0))
    with Evaluator("cpu", impatient, paths=paths, use_cache=False) as evaluator:
        verdicts = judged(evaluator, SOFTMAX_TASK, ("leaves_process.py", "import_hangs.py"))
        left = [p.pid for p in psutil.process_iter(["cmdline"]) if "73137" in " ".join(p.info["cmdline"] or [])]

    assert left == []
    assert verdicts["leaves_process.py"].ok, verdicts["leaves_process.py"].reason
    assert verdicts["import_hangs.py"].status is Status.BUILD_ERROR
    assert "import_hangs.py took longer than 5 s" in verdicts["import_hangs.py"].reason


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_published_extension_sources_are_judged_as_they_are(patient: tuple[Settings, Paths], tmp_path: Path) -> None:
    settings, paths = patient
    names, entry = ("softmax_extension.cpp",), "softmax_forward(x, 1)"
    with Evaluator("cpu", settings, paths=paths, use_cache=False) as evaluator:
        (verdict,) = judged(evaluator, STRICT_TASK, names, entry).values()
    assert verdict.ok, verdict.reason
    assert verdict.environment.compiler.startswith("torch extension, ")

    # The second time no compiler can be found, and none is needed.
    stages: list[Progress] = []
    with Evaluator("cpu", settings, paths=paths, use_cache=False, on_progress=stages.append) as evaluator:
        with pytest.MonkeyPatch.context() as patch:
            evaluator.describe(STRICT_TASK)
            patch.setenv("CXX", str(_recording_compiler(tmp_path)))
            (again,) = judged(evaluator, STRICT_TASK, names, entry).values()
    assert again.ok, again.reason
    assert not (tmp_path / "compiled").exists()


def _recording_compiler(folder: Path) -> Path:
    """A compiler that is the same as the usual one, and leaves a trace when it compiles."""
    path = folder / "g++"
    ask = 'case "$1" in --version|-print-file-name=*) exec g++ "$1";; esac'
    path.write_text(f'#!/bin/sh\n{ask}\ntouch {folder}/compiled\nexec g++ "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.timeout(600)
@pytest.mark.slow  # it builds an extension
def test_an_inline_extension_is_built_before_the_sandbox_closes(patient: tuple[Settings, Paths]) -> None:
    settings, paths = patient
    with Evaluator("cpu", settings, paths=paths, use_cache=False) as evaluator:
        (verdict,) = judged(evaluator, SOFTMAX_TASK, ("softmax_inline.py",)).values()
        (broken,) = judged(evaluator, SOFTMAX_TASK, ("extension_broken.cpp",), "softmax_forward(x)").values()

    assert verdict.ok, verdict.reason
    assert broken.status is Status.BUILD_ERROR
    assert "extension_broken.cpp:1:10: fatal error: no_such_header.h" in broken.reason
