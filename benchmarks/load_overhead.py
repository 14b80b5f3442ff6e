"""What calling a loaded kernel costs besides the kernel: on a tensor so small that nothing else is left.

    python benchmarks/load_overhead.py [--device cpu|cuda]

Compares the reference, the operator as it is called, and the same through torch's registry, which compiled code uses.
Microseconds per call, the least of many short rounds: whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import torch

import warpsmith
from warpsmith import load
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Status, WorkloadResult
from warpsmith.runtime.bundle import bundle_contents, write_bundle
from warpsmith.tasks.load import load_task

EXAMPLES = Path(warpsmith.__file__).parent / "examples"
KERNELS = {"cpu": "softmax_simple.cpp", "cuda": "softmax_block.cu"}
CALLS, ROUNDS = 100, 500


def bundle(folder: Path, device: str) -> Path:
    """The example kernel as a bundle. Its figures are made up: nothing of them is used here."""
    task_file = EXAMPLES / "softmax.py"
    task = load_task(task_file).task
    candidate = read_candidate(EXAMPLES / KERNELS[device])
    contract = backend_named(candidate.backend).contract(task)
    first = task.workloads[0]
    ratio = Baseline("eager", 1.0, 1.0, Interval(1.0, 1.0), 1)
    result = WorkloadResult(first.name, first.axes, 1.0, "single", (ratio,), 0.0, 1.0, 1.0, 1, 1, 1, "fp64")
    environment = Environment(device, candidate.backend, "", torch.__version__)
    verdict = Evaluation(task.name, candidate.id, Status.OK, "", environment, task.precision.value, (result,))
    text = task_file.read_text(encoding="utf-8")
    write_bundle(folder, bundle_contents(task, str(task_file), text, "", candidate, contract, device, verdict))
    return folder


def microseconds(call: Callable[[], object]) -> float:
    """Of one call; on a GPU, of putting it in the queue."""
    call()
    taken = []
    for _ in range(ROUNDS):
        taken.append(timeit.timeit(call, number=CALLS))
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return 1e6 * min(taken) / CALLS


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=tuple(KERNELS), default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        op = load(bundle(Path(folder) / "softmax", device), any_shape=True, strict=True)
        x = torch.randn(4, 8, device=device)
        name = next(n for n in dir(torch.ops.warpsmith) if n.startswith("softmax_"))
        registered = getattr(torch.ops.warpsmith, name).default
        with torch.inference_mode():
            figures = {
                "reference_us": microseconds(lambda: torch.softmax(x, dim=-1)),
                "operator_us": microseconds(lambda: op(x)),
                "registered_us": microseconds(lambda: registered(x)),
            }
    rounded = {key: round(value, 2) for key, value in figures.items()}
    print(json.dumps({"device": device, "torch": torch.__version__, "shape": [4, 8], **rounded}))


if __name__ == "__main__":
    main()
