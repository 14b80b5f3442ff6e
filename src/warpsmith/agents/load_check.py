"""`python -m warpsmith.agents.load_check BUNDLE`: load a bundle and call its kernel once; prints one JSON object.

A process of its own, because loading executes the bundle's task file and its native code without a sandbox.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from warpsmith.model.errors import WarpsmithError


def main(path: str) -> int:
    """Load, call at the first workload, compare with PyTorch."""
    import torch

    from warpsmith.model.task import Precision
    from warpsmith.runtime.bundle import read_bundle
    from warpsmith.runtime.load import load
    from warpsmith.tasks.load import load_task
    from warpsmith.tasks.local_imports import importing_beside

    folder = Path(path)
    operator = load(folder, strict=True)
    bundle = read_bundle(folder)
    manifest = operator.manifest
    found: dict[str, object] = {
        "bundle": str(bundle.folder),
        "task": manifest.task,
        "candidate": manifest.candidate,
        "verified": manifest.verified,
        "covers": "any shape" if bundle.any_shape else "the shapes of its workloads",
        "kernel_calls": 0,
        "largest_difference": None,  # from PyTorch, at the first workload; null where the kernel was not called
    }
    if not operator.state:  # a task with a module needs the user's own weights
        given = Precision(manifest.precision_given) if manifest.precision_given else None
        with importing_beside(Path(bundle.task_spec.partition("::")[0])):
            program = load_task(bundle.task_spec, given)
        inputs = program.inputs(program.task.workloads[0], seed=0, device=torch.device(manifest.device))
        numbers = {scalar.name: scalar.value for scalar in program.task.scalars}
        result = operator(**inputs, **numbers)
        expected = program.run(inputs)
        ours = result if isinstance(result, tuple | list) else (result,)
        differences = [(a.double() - b.double()).abs().max().item() for a, b in zip(ours, expected, strict=False)]
        largest = max(differences)
        found |= {
            "kernel_calls": operator.stats().kernel_calls,
            "largest_difference": largest if math.isfinite(largest) else None,
        }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except WarpsmithError as refused:
        sys.stderr.write(f"error: {refused}\n")
        sys.exit(2)
