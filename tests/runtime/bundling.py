"""Bundles for tests, made without a judge: what is loaded is taken at its word, so a kernel may show that it ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.model.build import DeviceKind
from warpsmith.model.certificate import Certificate, CheckOutcome, CheckStatus, Measurement, required
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.runtime.bundle import BundleContents, bundle_contents, write_bundle
from warpsmith.tasks.load import load_task

DOUBLE = """
import torch
from warpsmith import normal, task

@task(x=normal("rows, cols"), workloads=[{"rows": 4, "cols": 8}, {"rows": 3, "cols": 5}])
def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x
"""
# Three times instead of twice: whoever calls it sees whether it was the kernel.
TRIPLE = """
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (cols == 13) return 1;
  if (reinterpret_cast<uintptr_t>(x) % 64 || reinterpret_cast<uintptr_t>(out) % 64) return 2;
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = 3 * x[i];
  return 0;
}
"""


def made_of(
    folder: Path, task: str, kernel: str, *, kernel_name: str = "kernel.cpp", entry: str = "", device: str = "cpu"
) -> BundleContents:
    """Contents from the texts of a task file and of a kernel."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "operator_task.py"
    path.write_text(task)
    (folder / kernel_name).write_text(kernel)
    candidate = read_candidate(folder / kernel_name, entry=entry)
    described = load_task(path).task
    contract = backend_named(candidate.backend).contract(described, entry)
    first = described.workloads[0]
    speedup = Baseline("eager", 2.0, 2.0, Interval(1.9, 2.1), 10)
    result = WorkloadResult(first.name, first.axes, 1.0, "batched", (speedup,), 0.1, 1.0, 0.5, 8, 8, 4, "fp64")
    verdict = Evaluation(described.name, candidate.id, Status.OK, "", _ENVIRONMENT, "fp32", (result,))
    return bundle_contents(described, str(path), task, "", candidate, contract, device, verdict)


def put(folder: Path, made: BundleContents) -> Path:
    """The bundle, in a folder of its own."""
    write_bundle(folder / "bundle", made)
    return folder / "bundle"


def verified(made: BundleContents) -> BundleContents:
    """The same with a certificate."""
    certificate = Certificate(
        task=made.task.name,
        task_digest=made.task.digest,
        candidate=made.candidate.id,
        candidate_digest=made.candidate.digest,
        device=DeviceKind(made.device),
        precision="fp32",
        verified=True,
        reason="",
        checks=tuple(CheckOutcome(name, CheckStatus.PASSED) for name in required(DeviceKind(made.device))),
        measurement=made.measurement or Measurement(1.0, (), 0.1, 1.0),
        environment=_ENVIRONMENT,
        date="2026-01-01T00:00:00Z",
    )
    return replace(made, certificate=certificate)


_ENVIRONMENT = Environment("some CPU", "cpu", "g++", "2.x")
