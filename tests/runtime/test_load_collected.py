"""`load("suite/name")`: the collection's kernel where it is verified, PyTorch elsewhere."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from warpsmith import load
from warpsmith.kernels import collection as collections
from warpsmith.kernels.collection import find_kernel
from warpsmith.kernels.facts import DeviceFacts, KernelFacts, identity
from warpsmith.model.errors import TaskError, ToolMissing, WarpsmithError
from warpsmith.runtime import load as loading

TITLE = "warpsmith-100/cumsum"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_SAID", set())


def pretend(
    monkeypatch: pytest.MonkeyPatch, gpu: str, verified: bool | None, candidate: str = ""
) -> list[dict[str, Any]]:
    """A machine with a GPU, and a record of the kernel on an H200; returns what would have been built."""
    kernel = find_kernel(TITLE)
    facts = KernelFacts(
        *(TITLE, "scan", candidate or identity(kernel.candidate), "ok", "", 2.0, (1.9, 2.1)),
        *((1.0,), (2.0,), (0.5,), 0.1, verified, "", 1.0),
        any_shape=True,
    )
    known = (DeviceFacts("NVIDIA H200", "2026-01-01", {"torch": "2.x"}, {TITLE: facts}),)
    built: list[dict[str, Any]] = []

    def operator(bundle: Any, program: Any, contract: Any, covered: bool, **rest: Any) -> Any:
        built.append({"manifest": bundle.manifest, "covered": covered, **rest})
        if gpu.endswith("without nvcc"):
            raise ToolMissing("nvcc was not found.")
        return "the kernel"

    monkeypatch.setattr(collections, "read_facts", lambda: known)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: gpu.removesuffix(" without nvcc"))
    monkeypatch.setattr(loading, "_operator", operator)
    return built


def test_without_a_gpu_pytorch_computes_it_and_one_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    op, again = load("warpsmith-100/matmul"), load("warpsmith-100/matmul")
    a, b = torch.randn(7, 5), torch.randn(5, 3)

    assert (
        capsys.readouterr().err == "warpsmith: warpsmith-100/matmul is computed by PyTorch: PyTorch sees no GPU here.\n"
    )
    assert torch.equal(op(a, b), a @ b)
    assert torch.equal(again(a, b=b), a @ b)
    assert op.covers(a, b) == "PyTorch sees no GPU here"
    assert torch.equal(pickle.loads(pickle.dumps(op))(a, b), a @ b)
    assert "def matmul" in op.source
    assert not op.manifest.verified


def test_a_gradient_flows_through_the_reference() -> None:
    a = torch.randn(4, 6, requires_grad=True)

    load("warpsmith-100/cumsum")(a).sum().backward()

    assert a.grad is not None


def test_a_task_without_a_kernel_is_computed_by_pytorch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpsmith.runtime.load.collected", lambda task: None)
    x = torch.randn(3, 4)

    assert torch.equal(load("warpsmith-100/relu")(x), torch.relu(x))
    assert "the collection has no kernel for this task" in capsys.readouterr().err


def test_the_verified_kernel_is_used_on_its_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = pretend(monkeypatch, "NVIDIA H200", verified=True)

    assert str(load(TITLE)) == "the kernel"
    assert built[0]["covered"] is True
    assert built[0]["path"] == TITLE
    assert built[0]["manifest"].verified
    assert built[0]["manifest"].candidate == find_kernel(TITLE).candidate.id
    assert "verified on NVIDIA H200" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpu", "verified", "candidate", "why"),
    [
        ("NVIDIA H200", None, "", r"not verified on NVIDIA H200 \(judged, not verified\)"),
        ("NVIDIA H200", False, "", r"not verified on NVIDIA H200 \(judged, verification failed\)"),
        ("NVIDIA H200", True, "0123456789ab-00000000", r"not verified on NVIDIA H200 \(changed since it was judged\)"),
        ("NVIDIA A100", True, "", r"not verified on NVIDIA A100 \(not judged\)"),
        ("NVIDIA H200 without nvcc", True, "", "nvcc was not found"),
    ],
)
def test_a_kernel_that_is_not_verified_here_is_not_used(
    gpu: str, verified: bool | None, candidate: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpu, verified, candidate)
    x = torch.randn(3, 4)

    assert torch.equal(load(TITLE)(x), x.cumsum(1))
    with pytest.raises(ToolMissing, match=f"for {TITLE}: .*{why}; leave out strict"):
        load(TITLE, strict=True)


def test_an_unknown_task_of_a_suite_is_an_error() -> None:
    with pytest.raises(TaskError, match="has no task 'matmull'"):
        load("warpsmith-100/matmull")
    with pytest.raises(WarpsmithError, match="there is no folder"):
        load("elsewhere/matmul")
