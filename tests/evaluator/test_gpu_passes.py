"""Kernels of our own for large tensors: their texts compile, and without a GPU nobody is helped."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest
import torch

from warpsmith.backends.toolchain import find_nvcc
from warpsmith.evaluator.judge.numerics import gpu_passes

SOURCES = {
    **{
        f"compared-{c}-{r}": gpu_passes.source_of(gpu_passes._COMPARED, C=c[0], R=r[0], WIDEN_C=c[1], WIDEN_R=r[1])
        for c, r in itertools.product(gpu_passes._TYPES.values(), repeat=2)
    },
    **{f"norm-{r}": gpu_passes.source_of(gpu_passes._NORM, R=r[0], WIDEN_R=r[1]) for r in gpu_passes._TYPES.values()},
    **{f"equal-{b}": gpu_passes.source_of(gpu_passes._EQUAL, B=b) for b in gpu_passes._BITS.values()},
    "weighted": gpu_passes.source_of(gpu_passes._WEIGHTED),
}


def test_every_text_compiles(tmp_path: Path) -> None:
    nvcc = find_nvcc(os.environ)
    if nvcc is None:
        pytest.skip("no nvcc on this machine")
    texts = [text.replace('extern "C" ', "") for text in SOURCES.values()]
    file, made = tmp_path / "all.cu", tmp_path / "all.ptx"
    file.write_text("\n".join(f"namespace n{i} {{{text}}}" for i, text in enumerate(texts)))
    done = subprocess.run(
        [
            *nvcc.command,
            "-ptx",
            "-arch=sm_90",
            "-Werror",
            "all-warnings",
            "-o",
            str(made),
            str(file),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_left_to_be_replaced() -> None:
    assert [name for name, text in SOURCES.items() if "@" in text] == []


def test_on_a_cpu_there_is_no_help() -> None:
    large = torch.ones(gpu_passes.LEAST_ELEMENTS)
    assert gpu_passes.norm_and_peak(large) is None
    assert gpu_passes.difference_norms(large, large.double(), 1.0) is None
    assert gpu_passes.count_equal(large.view(torch.int32), 0) is None
    assert gpu_passes.weighted_sum(large.view(torch.int32), torch.ones(4, dtype=torch.int64), large.long()) is None
