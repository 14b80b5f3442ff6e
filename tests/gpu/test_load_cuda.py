"""`load` with CUDA kernels: streams, graphs, `torch.compile`, Triton, and what falls back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.runtime.bundling import made_of, put, verified
from torch import Tensor

import warpsmith
from warpsmith import load
from warpsmith.hardware.device import visible_gpus
from warpsmith.runtime.operator import Operator

pytestmark = pytest.mark.gpu

SHIPPED = Path(warpsmith.__file__).parent / "examples"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TASK = (SHIPPED / "softmax.py").read_text()


@pytest.fixture(scope="module")
def softmax(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """The example kernel, as if it had been verified: it takes rows of up to 16384 columns."""
    folder = tmp_path_factory.mktemp("cuda")
    kernel = (SHIPPED / "softmax_block.cu").read_text()
    return load(put(folder, verified(made_of(folder, TASK, kernel, kernel_name="kernel.cu", device="cuda"))))


def close(found: Tensor, x: Tensor) -> None:
    torch.testing.assert_close(found, torch.softmax(x, -1))


def test_it_computes_what_the_reference_does(softmax: Operator) -> None:
    for shape in ((1024, 1024), (3, 77), (1, 1)):
        x = torch.randn(shape, device="cuda")
        assert softmax.covers(x) is None
        close(softmax(x), x)
    wide = torch.randn(2, 20_000, device="cuda")
    close(softmax(wide), wide)  # the kernel refuses: the reference
    assert "is on cpu" in (softmax.covers(wide.cpu()) or "")
    close(softmax(wide.cpu()), wide.cpu())


def test_it_goes_to_the_current_stream(softmax: Operator) -> None:
    """On a side stream behind a long kernel, it must see what that kernel wrote."""
    x = torch.zeros(4096, 4096, device="cuda")
    fresh = torch.randn(4096, 4096, device="cuda")
    expected = torch.softmax(fresh, -1)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.copy_(fresh)
        found = softmax(x)
    side.synchronize()

    torch.testing.assert_close(found, expected)


def test_it_can_be_captured_in_a_graph(softmax: Operator) -> None:
    x = torch.randn(64, 512, device="cuda")
    softmax(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = softmax(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()

    close(found, x)


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch's own first graph, a placeholder
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_keeps_it_in_one_graph(mode: str, softmax: Operator) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: softmax(x * 2) + 1, fullgraph=True, mode=mode)
    x = torch.randn(256, 1000, device="cuda")

    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1) + 1)


def test_torch_accepts_its_registration(softmax: Operator) -> None:
    name = next(n for n in dir(torch.ops.warpsmith) if n.startswith(f"softmax_{softmax.manifest.candidate}"))

    torch.library.opcheck(getattr(torch.ops.warpsmith, name).default, (torch.randn(8, 100, device="cuda"),))


def test_another_gpu_than_the_current_one(softmax: Operator) -> None:
    if len(visible_gpus()) < 2:
        pytest.skip("there is only one GPU")
    x = torch.randn(64, 512, device="cuda:1")

    found = softmax(x)

    assert found.device == x.device
    close(found, x)


def test_a_triton_kernel(gpu: None, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    kernel = (EXAMPLES / "kernels" / "softmax_triton.py").read_text()
    task = (EXAMPLES / "tasks" / "softmax.py").read_text()
    op = load(put(tmp_path, made_of(tmp_path, task, kernel, kernel_name="softmax_triton.py", device="cuda")))
    x = torch.randn([w.sizes[axis] for w in op.manifest.workloads[:1] for axis in ("rows", "cols")], device="cuda")

    assert op.covers(x) is None
    close(op(x), x)
    torch._dynamo.reset()
    close(torch.compile(op, fullgraph=True)(x), x)
