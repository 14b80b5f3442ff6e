"""The plans of convolution.cuh, carried out on the host: every way to fold taps into channels gives the right sums."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warpsmith.backends.library import LIBRARY

HERE = Path(__file__).resolve().parent


@pytest.mark.nvcc
def test_a_plan_computes_the_convolution_and_reads_nothing_before_it_is_split(tmp_path: Path) -> None:
    flags = ["-std=c++17", "-O1", "-arch=sm_90a", f"-I{LIBRARY}"]
    source = HERE / "convolution_plan.cu"
    subprocess.run(["nvcc", *flags, source, "-o", tmp_path / "check"], check=True, capture_output=True)

    done = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["84 plans"]
