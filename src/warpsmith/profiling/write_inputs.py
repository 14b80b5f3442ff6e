"""Writes one input set of a task to files, for a candidate that runs under a profiler without a judge.

    python -m warpsmith.profiling.write_inputs TASK PRECISION WORKLOAD FOLDER

A process of its own, because it needs torch. `standalone_run.read_samples` reads the list of files. Expected results
are not written.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from warpsmith.model.errors import WarpsmithError
from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task
from warpsmith.verification.standalone_run import InputFiles

CASES = "cases.json"


def write(task: str, precision: str, workload: str, folder: Path) -> None:
    """Write the inputs of one workload as `<folder>/case0/<tensor>.bin`, and the list of them."""
    sys.path.append(str(Path(task.partition("::")[0]).parent))  # the task file may import modules beside it
    program = load_task(task, precision=Precision(precision) if precision else None)
    chosen = next(each for each in program.task.workloads if each.name == workload)
    inputs = program.inputs(chosen, seed=0, device=torch.device("cpu"))
    case = folder / "case0"
    case.mkdir(parents=True)
    for name, tensor in inputs.items():
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        (case / f"{name}.bin").write_bytes(raw.numpy().tobytes())
    sizes = chosen.sizes
    sample = InputFiles(
        folder=case.name,
        workload=workload,
        sizes=sizes,
        inputs={each.name: each.nbytes(sizes) for each in program.task.inputs},
        outputs={each.name: each.nbytes(sizes) for each in program.task.outputs},
    )
    (folder / CASES).write_text(json.dumps([asdict(sample)]), encoding="utf-8")


if __name__ == "__main__":
    try:
        write(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    except WarpsmithError as fault:
        sys.exit(str(fault))
