"""Writes one input set of a task to files, for a candidate that is run under a profiler with no judge beside it.

    python -m warpsmith.evaluate.profiling.inputs TASK PRECISION WORKLOAD FOLDER

A process of its own, because it needs torch. The files and their list are those that `solorun.read_samples` reads; what
the right result would be is not written, since nobody judges here.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from warpsmith.core.errors import WarpsmithError
from warpsmith.core.task import Precision
from warpsmith.evaluate.verification.solorun import Sample
from warpsmith.tasks.load import load_task

CASES = "cases.json"


def write(task: str, precision: str, workload: str, folder: Path) -> None:
    """The inputs of one workload as `<folder>/case0/<tensor>.bin`, and the list of them."""
    sys.path.append(str(Path(task.partition("::")[0]).parent))  # what the task file imports may lie beside it
    program = load_task(task, precision=Precision(precision) if precision else None)
    chosen = next(each for each in program.task.workloads if each.name == workload)
    inputs = program.inputs(chosen, seed=0, device=torch.device("cpu"))
    case = folder / "case0"
    case.mkdir(parents=True)
    for name, tensor in inputs.items():
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        (case / f"{name}.bin").write_bytes(raw.numpy().tobytes())
    sizes = chosen.sizes
    sample = Sample(
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
