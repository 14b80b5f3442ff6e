"""Chains of operations that users write: which of them the offline proposer has a kernel for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kernel_templates.bundle import load_case
from warpsmith.kernel_templates.in_parts import obstacle
from warpsmith.proposers.templates import TemplateProposer

FILE = Path(__file__).with_name("users_chains.py")
NAMES = [
    name
    for name in re.findall(r"^def (\w+)\(", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if name not in ("conv2", "convt2", "conv3", "convt3", "gemm", "c2", "t2", "c3", "t3")
]
FEW = (
    "conv_relu_bias",
    "gemm_batch_norm",
    "transposed_norms_pool",
    "rope_cached",
    "embedding_scaled",
    "topk_gate",
    "cumsum_time",
    "ce_smooth",
)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", FEW)
def test_a_chain_has_a_kernel(name: str, backend: str) -> None:
    check(name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_every_chain_has_a_kernel(name: str, backend: str) -> None:
    check(name, backend)


def check(name: str, backend: str) -> None:
    """A kernel by a form, by templates or in parts."""
    _, problem = load_case(FILE, name, backend)

    assert TemplateProposer.supports(problem), obstacle(problem)
