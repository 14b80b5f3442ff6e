"""What a candidate calls is seen in what it does, and a library may be allowed for one evaluation. On the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings

TaskFile = Callable[[str], Path]

HIDDEN = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        with torch._C._DisableTorchDispatch():
            return torch.softmax(x, dim=-1)
"""
BORROWED = """
import numpy
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        values = numpy.asarray(x)
        powers = numpy.exp(values - values.max(axis=-1, keepdims=True))
        numpy.divide(powers, powers.sum(axis=-1, keepdims=True), out=out.numpy())
        return out
"""
LOADER = """
#include <dlfcn.h>
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  auto power = reinterpret_cast<float (*)(float)>(dlsym(dlopen("libm.so.6", RTLD_NOW), "expf"));
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float peak = in[0], sum = 0;
    for (int64_t c = 1; c < cols; ++c) peak = std::max(peak, in[c]);
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = power(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def generous(quick_settings: Settings) -> Iterator[Evaluator]:
    """An evaluator that allows what the task does not."""
    with Evaluator("cpu", replace(quick_settings, allow=("torch", "dl"))) as evaluator:
        yield evaluator


def judged(evaluator: Evaluator, task: Path, folder: Path, name: str, text: str) -> Evaluation:
    path = folder / name
    path.write_text(text)
    return evaluator.evaluate_one(task, read_candidate(path))


@pytest.mark.parametrize(("text", "seen"), [(HIDDEN, "aten::softmax"), (BORROWED, "numpy.numpy")], ids=["op", "numpy"])
def test_a_library_is_seen_even_where_it_hides_from_the_dispatcher(
    evaluator: Evaluator, task_file: TaskFile, tmp_path: Path, text: str, seen: str
) -> None:
    verdict = judged(evaluator, task_file("softmax"), tmp_path, "module.py", text)

    assert verdict.status is Status.REJECTED, verdict.reason
    assert verdict.reason.startswith(f"library call: it computes with {seen}; compute it yourself")


@pytest.mark.slow  # two evaluators of its own
def test_a_library_can_be_allowed_for_one_evaluation(
    evaluator: Evaluator, generous: Evaluator, task_file: TaskFile, tmp_path: Path
) -> None:
    refused = judged(evaluator, task_file("softmax"), tmp_path, "loader.cpp", LOADER)
    native = judged(generous, task_file("softmax"), tmp_path, "loader.cpp", LOADER)
    python = judged(generous, task_file("softmax"), tmp_path, "module.py", HIDDEN)

    assert refused.status is Status.REJECTED, "what was allowed once is not remembered for others"
    assert refused.reason.startswith("library call: the object imports dlopen, dlsym;")
    assert native.status is Status.OK, native.reason
    assert python.status is Status.OK, python.reason
    for verdict in (native, python):
        assert "libraries allowed for this evaluation: torch, dl" in verdict.notes
