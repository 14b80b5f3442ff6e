"""Python candidates on a GPU: Triton, ModelNew, inline CUDA, published CUDA extensions."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]  # beside other tests it waits for its turns on the device

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels" / "python"
SOFTMAX_TASK = KERNELS / "softmax_task.py"  # allows PyTorch's operators
STRICT_TASK = ROOT / "kernels" / "tasks" / "softmax.py"

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
needs_ninja = pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed")


def judged(evaluator: Evaluator, task: Path, names: tuple[str, ...], entry: str = "") -> Mapping[str, Evaluation]:
    candidates = [read_candidate(KERNELS / name, entry=entry) for name in names]
    return {names[index]: verdict for index, verdict in evaluator.evaluate(task, candidates)}


TRITON = {
    "triton_softmax.py": (Status.OK, ""),
    "triton_tuned.py": (Status.OK, ""),
    "triton_module.py": (Status.OK, ""),
    "triton_wrong.py": (Status.WRONG, "out differs"),
    "triton_broken.py": (Status.BUILD_ERROR, "no_such_function"),
    # From its third call on it wants another variant compiled; the first two were made before it was judged.
    "triton_late.py": (Status.LAUNCH_FAILED, "triton_late.py:"),
}
MODULES = {
    "softmax.py": (Status.OK, ""),
    "softmax_wrong.py": (Status.WRONG, "out differs"),
    "raises.py": (Status.LAUNCH_FAILED, "raises.py:7: ValueError"),
    "lazy_tensor.py": (Status.REJECTED, "lazy tensor: "),
    "changes_input.py": (Status.INPUT_MODIFIED, "inputs are read-only"),
    "hangs.py": (Status.TIMED_OUT, "an endless loop"),
}


@pytest.fixture(scope="module")
def verdicts(gpu_evaluator: Evaluator) -> Mapping[str, Evaluation]:
    """One batch: the workers are started once."""
    triton = tuple(TRITON) if importlib.util.find_spec("triton") else ()
    modules = judged(gpu_evaluator, SOFTMAX_TASK, tuple(MODULES))
    return {**modules, **judged(gpu_evaluator, STRICT_TASK, triton)}


@pytest.mark.parametrize("name", MODULES)
def test_modules_get_the_status_they_deserve(verdicts: Mapping[str, Evaluation], name: str) -> None:
    status, reason = MODULES[name]

    assert verdicts[name].status is status, verdicts[name].reason
    assert reason in verdicts[name].reason


@needs_triton
@pytest.mark.parametrize("name", TRITON)
def test_triton_kernels_get_the_status_they_deserve(verdicts: Mapping[str, Evaluation], name: str) -> None:
    status, reason = TRITON[name]

    assert verdicts[name].status is status, verdicts[name].reason
    assert reason in verdicts[name].reason


@needs_triton
def test_kernels_of_its_own_are_replayed_and_operators_of_torch_are_timed_from_outside(
    verdicts: Mapping[str, Evaluation],
) -> None:
    for name in ("triton_softmax.py", "triton_tuned.py", "triton_module.py"):
        assert [w.timing for w in verdicts[name].workloads] == ["replayed", "replayed"], (name, verdicts[name].notes)
    assert [w.timing for w in verdicts["softmax.py"].workloads] == ["outside", "outside"]
    assert verdicts["triton_softmax.py"].environment.compiler.startswith("triton ")


@needs_triton
def test_a_triton_kernel_is_compiled_once(gpu: None, gpu_settings: Settings, cache_folder: Path) -> None:
    """With the cache of the batch above, which holds what Triton made."""
    paths = Paths(cache_folder)
    with Evaluator("cuda", gpu_settings, paths=paths, use_cache=False) as evaluator:
        (first,) = judged(evaluator, STRICT_TASK, ("triton_softmax.py",)).values()
        (again,) = judged(evaluator, STRICT_TASK, ("triton_softmax.py",)).values()

    assert first.ok, first.reason
    assert again.ok, again.reason
    assert again.seconds < 30.0


def test_weights_and_buffers_of_a_module(gpu_evaluator: Evaluator) -> None:
    names = ("linear_relu.py", "linear_renamed.py", "linear_cached.py")
    linear = judged(gpu_evaluator, KERNELS / "linear_task.py", names)
    norm = judged(gpu_evaluator, KERNELS / "norm_task.py", ("norm.py",))

    assert linear["linear_relu.py"].ok, linear["linear_relu.py"].reason
    assert linear["linear_renamed.py"].ok, linear["linear_renamed.py"].reason
    assert linear["linear_cached.py"].status is Status.LAUNCH_FAILED, "what it kept stayed on the CPU"
    assert norm["norm.py"].ok, norm["norm.py"].reason


@needs_ninja
@pytest.mark.timeout(900)
def test_a_module_with_an_inline_cuda_extension(gpu_evaluator: Evaluator) -> None:
    (verdict,) = judged(gpu_evaluator, STRICT_TASK, ("cuda_inline.py",)).values()

    assert verdict.ok, verdict.reason
    assert verdict.environment.compiler.startswith("torch extension, nvcc ")


@needs_ninja
@pytest.mark.timeout(900)
def test_a_published_cuda_extension_with_its_own_bindings(gpu_evaluator: Evaluator) -> None:
    entry = "softmax_into(x, out, rows)"
    (verdict,) = judged(gpu_evaluator, STRICT_TASK, ("softmax_extension.cu",), entry).values()

    assert verdict.ok, verdict.reason
