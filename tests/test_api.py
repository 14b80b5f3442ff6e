"""The Python API, as a script, a notebook cell or an interactive session uses it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import warpsmith as ws
from warpsmith.model.errors import TaskError
from warpsmith.model.evaluation import Status
from warpsmith.tasks.capture import task_file
from warpsmith.tasks.load import load_task

OPTIONS = ws.RunOptions(proposer="template", device="cpu", timing_budget_s=0.05, tune=False, stop_at=0, remember=False)
SCALE = 2.0
NEITHER = object()


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


@ws.task(x=ws.normal("rows, cols"), workloads=[{"rows": 8, "cols": 64}], precision="fp32")
def scaled_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(doubled(x), dim=-1)


def plain(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def uses_an_object(x: torch.Tensor) -> torch.Tensor:
    return x if NEITHER else -x


# --- functions as tasks ---


def test_a_function_under_task_becomes_a_file_with_what_it_uses(tmp_path: Path) -> None:
    spec = task_file(scaled_softmax, tmp_path)

    program = load_task(spec)
    text = Path(spec.partition("::")[0]).read_text()

    assert program.task.name == "scaled_softmax"
    assert "SCALE = 2.0" in text
    assert "def doubled" in text
    assert "uses_an_object" not in text  # of this file only what is used
    assert task_file(scaled_softmax, tmp_path) == spec


def test_a_plain_function_with_examples_becomes_a_task(tmp_path: Path) -> None:
    examples = [(torch.ones(4, 32), torch.ones(32), 1e-6), (torch.ones(2, 64), torch.ones(64), 1e-6)]

    task = load_task(task_file(plain, tmp_path, examples)).task

    assert [tuple(axis for axis in spec.dims) for spec in task.inputs] == [("n0", "n1"), ("n1",)]
    assert [dict(workload.sizes) for workload in task.workloads] == [{"n0": 4, "n1": 32}, {"n0": 2, "n1": 64}]


def typed(*lines: str) -> Callable[..., torch.Tensor]:
    """The function that these lines define, made as the prompt of Python makes it: without a source."""
    space: dict[str, object] = {"ws": ws, "torch": torch, "SCALE": 3.0, "__name__": "__main__"}
    exec("\n".join(lines), space)
    made = [value for value in space.values() if getattr(value, "__globals__", None) is space]
    assert callable(made[-1])
    return made[-1]


def test_a_function_typed_at_the_prompt_is_found_in_the_history(tmp_path: Path) -> None:
    readline = pytest.importorskip("readline")
    earlier = ["@ws.task(x=ws.normal('n'), workloads=[{'n': 4}])", "def shifted(x):", "    return x - SCALE"]
    lines = [
        "@ws.task(",
        "    x=ws.normal('n'), workloads=[{'n': 8}],",
        ")",
        "def shifted(x):",
        "    # the prompt keeps comments",
        "    if SCALE > 1:",
        "        x = x + 1.0",
        "    return x + SCALE",
    ]
    function = typed(*lines)
    try:
        for line in (*earlier, "x = (", "SCALE = 3.0", *lines, "shifted", "    "):
            readline.add_history(line)
        path = task_file(function, tmp_path)
        older = task_file(typed(*earlier), tmp_path)
    finally:
        readline.clear_history()

    program = load_task(path)
    assert dict(program.task.workloads[0].sizes) == {"n": 8}
    torch.testing.assert_close(program.run({"x": torch.zeros(8)})[0], torch.full((8,), 4.0))
    assert dict(load_task(older).task.workloads[0].sizes) == {"n": 4}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: task_file(plain, folder), "has no @task above it"),
        (lambda folder: task_file(scaled_softmax, folder, (torch.ones(2, 2),)), "leave out example_inputs"),
        (lambda folder: task_file(plain, folder, (torch.ones(2, 2),)), "do not fit plain"),
        (lambda folder: task_file(uses_an_object, folder, (torch.ones(2),)), "uses the global NEITHER, a object"),
        (lambda folder: task_file(lambda x: x, folder), "a lambda has no name"),
        (lambda folder: task_file(typed("def nowhere(x):", "    return x + 1"), folder, (torch.ones(2),)), "in a file"),
        (lambda folder: task_file(torch.nn.ReLU(), folder), "Wrap the call of the module into a function"),
        (
            lambda folder: task_file(plain, folder, ("x", torch.ones(2), 1.0)),
            "an example input is a tensor or a number",
        ),
    ],
)
def test_a_mistake_is_one_sentence(make: Callable[[Path], str], said: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError) as raised:
        make(tmp_path)

    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


# --- searching ---


def test_optimize_gives_the_best_kernel_its_trials_and_an_operator(tmp_path: Path) -> None:
    seen: list[int] = []

    result = ws.optimize(
        scaled_softmax,
        trials=2,
        folder=tmp_path / "run",
        options=OPTIONS,
        callbacks=[lambda run, trial: seen.append(trial.number)],
    )

    x = torch.randn(8, 64)
    assert result.best.speedup > 0
    assert "launch(" in result.best.source
    assert "launch(" not in repr(result), "a prompt shows the result of a call that nobody stored"
    assert [trial.number for trial in result.trials] == [1, 2]
    assert set(seen) == {1, 2}
    assert result.stopped_because == "trials"
    torch.testing.assert_close(result.load()(x), scaled_softmax(x))


def test_a_run_is_driven_by_ask_and_tell_and_opened_again(tmp_path: Path) -> None:
    with ws.Run.create(scaled_softmax, tmp_path / "run", method="evoengineer-full", options=OPTIONS) as run:
        brief = run.ask()
        assert "launch(" in run.prompt(brief)
        wrong = 'extern "C" int launch(const float* x, float* out, int64_t, int64_t, void*, void*) { return 0; }\n'
        trial = run.tell(brief, wrong)
        assert trial.status is Status.WRONG or trial.status is Status.UNWRITTEN, trial.reason
        assert ws.Run.open(tmp_path / "run") is run
        assert repr(run) == f"Run('{tmp_path / 'run'}', trials=1)"
        with pytest.raises(ws.WarpsmithError, match="is open in this process; close it before"):
            ws.Run.open(tmp_path / "run", options=OPTIONS)

    with ws.Run.open(tmp_path / "run", options=OPTIONS) as again:
        assert [each.number for each in again.trials] == [1]
        with pytest.raises(ws.WarpsmithError, match="no valid kernel"):
            _ = again.best


def test_a_callback_can_stop_the_search(tmp_path: Path) -> None:
    result = ws.optimize(
        scaled_softmax,
        trials=30,
        folder=tmp_path / "run",
        options=OPTIONS,
        callbacks=[lambda run, trial: run.stop()],
    )

    assert result.stopped_because == "interrupted"
    assert len(result.trials) < 30


def test_evaluate_judges_a_file_and_a_text(tmp_path: Path) -> None:
    text = """
extern "C" int launch(const float* x, float* out, int64_t, int64_t, void*, void*) {
  for (int row = 0; row < 8; ++row) {
    float most = -1e30f, sum = 0;
    for (int i = 0; i < 64; ++i) most = std::max(most, 2 * x[64 * row + i]);
    for (int i = 0; i < 64; ++i) sum += out[64 * row + i] = std::exp(2 * x[64 * row + i] - most);
    for (int i = 0; i < 64; ++i) out[64 * row + i] /= sum;
  }
  return 0;
}
"""
    (tmp_path / "kernel.cpp").write_text(text)

    first, second = ws.evaluate_all(scaled_softmax, [tmp_path / "kernel.cpp", text.replace("/= sum", "/= 2 * sum")])

    assert first.ok, first.reason
    assert second.status is Status.WRONG


SCRIPT = """
import torch
import warpsmith as ws

@ws.task(x=ws.normal("n"), workloads=[{"n": 1000}], precision="fp32")
def twice(x):
    return x * 2

options = ws.RunOptions(proposer="template", device="cpu", timing_budget_s=0.05, tune=False, stop_at=0, remember=False)
result = ws.optimize(twice, trials=1, folder="run", options=options)
print(len(result.trials), result.best.evaluation.status)
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_works(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)

    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1 ok"
