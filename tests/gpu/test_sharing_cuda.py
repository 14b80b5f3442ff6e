"""Four evaluators with tasks of 6 GB on one GPU: each in a process of its own, and every one ends with verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

EVALUATORS, CANDIDATES = 4, 2
TASK = '''
import torch
from warpsmith import normal, task

@task(x=normal("n"), workloads=[{"n": 750_000_000}])
def relu(x: torch.Tensor) -> torch.Tensor:
    """3 GB of inputs and 3 GB of outputs."""
    return torch.relu(x)
'''


@pytest.mark.timeout(1000)
def test_four_evaluators_with_tasks_of_6_gb_end_with_verdicts(
    gpu: None, tmp_path: Path, kernel_path: Callable[[str], Path]
) -> None:
    (tmp_path / "relu.py").write_text(TASK)
    text = kernel_path("relu.cu").read_text()
    started = []
    for number in range(EVALUATORS):
        files = [tmp_path / f"relu_{number}_{index}.cu" for index in range(CANDIDATES)]
        for file in files:
            file.write_text(f"// {file.name}\n{text}")
        command = [sys.executable, "-m", "warpsmith", "evaluate", str(tmp_path / "relu.py"), *map(str, files)]
        environ = os.environ | {"WARPSMITH_CACHE": str(tmp_path / f"cache{number}")}
        started.append(
            subprocess.Popen(
                [*command, "--device", "cuda", "--json"],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        ended = [process.communicate(timeout=900) for process in started]
    finally:
        for process in started:
            process.kill()
    for out, said in ended:
        print(said)  # who waited for memory
        verdicts = [json.loads(line) for line in out.splitlines()]
        assert [verdict["status"] for verdict in verdicts] == ["ok"] * CANDIDATES, (verdicts, said)
        assert "too little memory" not in said
