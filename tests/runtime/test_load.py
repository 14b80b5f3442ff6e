"""`load`: kernels in the place of functions and modules, and the reference wherever they do not fit."""

from __future__ import annotations

import copy
import pickle
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

import warpsmith
from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put, verified
from warpsmith import load
from warpsmith.model.errors import CandidateError, ToolMissing, UsageError
from warpsmith.runtime.coverage import KernelCoverage
from warpsmith.runtime.operator import Operator
from warpsmith.tasks.load import load_task

SHIPPED = Path(warpsmith.__file__).parent / "examples"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "before_after.py"
SUMMARY = """
import torch
from warpsmith import normal, scalar, task

@task(x=normal("rows, cols"), weight=normal("cols"), shift=scalar(0.5), workloads=[{"rows": 6, "cols": 9}])
def summary(x: torch.Tensor, weight: torch.Tensor, shift: float = 0.5) -> dict:
    return {"mean": (x * weight).mean(-1) + shift, "count": (x > 0).sum(-1)}
"""
SUMMARY_KERNEL = """
extern "C" int64_t workspace_bytes(double shift, int64_t rows, int64_t cols) { return cols * 4; }
extern "C" int launch(const float* x, const float* weight, float* mean, int64_t* count, double shift, int64_t rows,
                      int64_t cols, void* workspace, void* stream) {
  float* product = static_cast<float*>(workspace);
  for (int64_t row = 0; row < rows; ++row) {
    float sum = 0;
    count[row] = 0;
    for (int64_t i = 0; i < cols; ++i) {
      product[i] = x[row * cols + i] * weight[i];
      count[row] += x[row * cols + i] > 0;
    }
    for (int64_t i = 0; i < cols; ++i) sum += product[i];
    mean[row] = sum / cols + shift;
  }
  return 0;
}
"""
POOLED = """
import torch
from warpsmith import normal, task

@task(x=normal("rows, width"), workloads=[{"rows": 4, "width": 10}, {"rows": 2, "width": 21}])
def pooled(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool1d(x, 3, stride=2)
"""
POOLED_FUNCTION = """
import torch

def pool(x):
    return torch.stack([x[:, i : i + 3].amax(-1) for i in range(0, x.shape[1] - 2, 2)], -1)
"""
LINEAR = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gemm = nn.Linear(width, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return torch.relu(self.drop(self.gemm(x)))

def get_inputs():
    return [torch.rand(5, 4)]

def get_init_inputs():
    return [4]
"""
LINEAR_KERNEL = """
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, void* w, void* stream) {
  for (int r = 0; r < 5; ++r)
    for (int c = 0; c < 3; ++c) {
      float sum = bias[c];
      for (int k = 0; k < 4; ++k) sum += x[r * 4 + k] * weight[c * 4 + k];
      out[r * 3 + c] = (sum > 0 ? sum : 0) + 100;
    }
  return 0;
}
"""
LINEAR_MODULE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gemm = nn.Linear(width, 3)

    def forward(self, x):
        return torch.relu(self.gemm(x)) + 100
"""


class Layer(nn.Module):
    """A user's own module, like the task's."""

    def __init__(self) -> None:
        super().__init__()
        self.gemm = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.drop(self.gemm(x)))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of TRIPLE that is verified (`any`), and one that is not (`some`)."""
    folder = tmp_path_factory.mktemp("bundles")
    made = made_of(folder, DOUBLE, TRIPLE)
    put(folder / "some", made)
    put(folder / "any", verified(made))
    return folder


@pytest.fixture(scope="module")
def triple(home: Path) -> Operator:
    return load(home / "any" / "bundle")


def grid(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def test_it_takes_what_the_reference_takes(triple: Operator) -> None:
    x = grid(7, 11)

    assert torch.equal(triple(x), 3 * x)
    assert torch.equal(triple(x=x), 3 * x)
    assert triple.covers(x) is None
    assert "3 * x[i]" in triple.source
    assert triple.manifest.task == "double"
    with pytest.raises(TypeError):
        triple(x, x)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: grid(4, 8).double(), "x is float64, but the kernel takes float32"),
        (lambda: grid(8, 4).T, "x is not contiguous"),
        (lambda: grid(4, 8)[:, ::2], "x is not contiguous"),
        (lambda: grid(8), "x has the shape [8], but the kernel takes [rows, cols]"),
        (lambda: grid(4, 0), "empty"),
        (lambda: torch.zeros(4, 8, dtype=torch.complex64).imag.contiguous().neg().to(torch.int32), "int32"),
        (lambda: torch.ones(4, 8, dtype=torch.complex64).conj().imag, "not contiguous"),
        (lambda: torch._efficientzerotensor((4, 8)), "x is no plain tensor"),
    ],
)
def test_what_it_does_not_cover_goes_to_the_reference(
    given: Callable[[], Tensor], said: str, triple: Operator, home: Path
) -> None:
    x = given()

    assert said in (triple.covers(x) or "")
    assert torch.equal(triple(x), 2 * x)
    with pytest.raises(UsageError, match="does not cover this call"):
        load(home / "any" / "bundle", strict=True)(x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_goes_to_the_reference(triple: Operator) -> None:
    x = torch.nested.nested_tensor([grid(4, 8), grid(2, 8)], layout=torch.strided)

    assert "x is no plain tensor: nested" in (triple.covers(x) or "")
    for part, expected in zip(triple(x).unbind(), (2 * grid(4, 8), 2 * grid(2, 8)), strict=True):
        assert torch.equal(part, expected)


def test_the_kernel_computes_and_the_reference_is_differentiated(triple: Operator) -> None:
    for x in (grid(4, 8).requires_grad_(), nn.Parameter(grid(4, 8))):
        assert triple.covers(x) is None
        made = triple(x)
        assert torch.equal(made, 3 * x)
        made.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, torch.full((4, 8), 2.0))
    with torch.no_grad():
        assert not triple(x).requires_grad
    assert torch.equal(triple(grid(2, 13).requires_grad_()), 2 * grid(2, 13))  # it refuses


def test_second_derivatives_and_outputs_without_one(tmp_path: Path) -> None:
    text = SUMMARY.replace("(x * weight)", "(x * x * weight)")
    op = load(put(tmp_path, made_of(tmp_path, text, SUMMARY_KERNEL)), strict=True)
    x, weight = torch.randn(6, 9).requires_grad_(), torch.randn(9)

    found = op(x, weight)
    (slope,) = torch.autograd.grad(found["mean"].sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)

    assert not found["count"].requires_grad
    torch.testing.assert_close(slope, 2 * x * weight / 9)
    torch.testing.assert_close(bend, (2 * weight / 9).expand(6, 9))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_network_with_a_kernel_learns_what_it_learns_with_the_reference(compiled: bool, home: Path) -> None:
    folder = home / "honest"
    kernel = TRIPLE.replace("3 * x[i]", "2 * x[i]")
    double = load(put(folder, verified(made_of(folder, DOUBLE, kernel))), strict=True)
    before = double.stats()

    def trained(middle: Callable[[Tensor], Tensor]) -> list[float]:
        torch.manual_seed(0)
        first, last = nn.Linear(6, 8), nn.Linear(8, 1)
        network = nn.Sequential(first, nn.Tanh())
        x, wanted = torch.randn(16, 6), torch.randn(16, 1)
        optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.05)

        def forward(x: Tensor) -> Tensor:
            out: Tensor = last(middle(network(x)))
            return out

        torch._dynamo.reset()
        call = torch.compile(forward, fullgraph=True, backend="aot_eager") if compiled else forward
        losses = []
        for _ in range(12):
            loss = nn.functional.mse_loss(call(x), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    with_kernel, with_reference = trained(double), trained(lambda x: 2 * x)

    assert with_kernel == pytest.approx(with_reference, rel=1e-6)
    assert with_kernel[-1] < with_kernel[0] / 2
    after = double.stats()
    assert after.kernel_calls - before.kernel_calls == 12
    assert after.fallbacks == before.fallbacks


def test_calls_are_counted_and_the_first_fallback_is_a_warning(home: Path) -> None:
    folder = home / "counted"
    op = load(put(folder, verified(made_of(folder, DOUBLE, TRIPLE.replace("== 13", "== 17")))))

    op(grid(4, 8))
    with pytest.warns(UserWarning, match=r"double.*calls the reference, not the kernel: x is float64") as said:
        op(grid(4, 8).double())
    op(grid(4, 8).double())
    op(grid(2, 17))

    assert said[0].filename == __file__
    stats = op.stats()
    assert (stats.kernel_calls, stats.fallbacks) == (1, 3)
    assert stats.reasons == {
        "x is float64, but the kernel takes float32": 2,
        "the kernel refused these sizes": 1,
    }


def test_tangents_come_from_the_reference(triple: Operator) -> None:
    x, tangent = grid(4, 8), torch.ones(4, 8)
    torch._dynamo.reset()
    compiled = torch.compile(triple, fullgraph=True, backend="aot_eager")

    assert torch.equal(compiled(x), 3 * x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        assert "x has a tangent" in (triple.covers(dual) or "")
        for found in (forward_ad.unpack_dual(triple(dual)), forward_ad.unpack_dual(compiled(dual))):
            assert torch.equal(found.primal, 2 * x)
            assert torch.equal(found.tangent, 2 * tangent)
        with pytest.raises(UsageError, match="does not take this: x has a tangent"):
            triple._registered(dual)
        assert torch.equal(triple(x), 3 * x)  # it has none itself
    assert torch.equal(compiled(x), 3 * x)

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        made = torch.func.jvp(triple, (x,), (tangent,))
        return made[0], made[1]

    for call in (both, torch.compile(both, backend="aot_eager")):
        value, slope = call(x)
        assert torch.equal(value, 2 * x)
        assert torch.equal(slope, 2 * tangent)


def test_without_a_certificate_only_the_workloads_are_covered(home: Path) -> None:
    some = load(home / "some" / "bundle")

    assert torch.equal(some(grid(3, 5)), 3 * grid(3, 5))
    assert torch.equal(some(grid(3, 6)), 2 * grid(3, 6))
    assert some.covers(grid(4, 5)) == (
        "the kernel was only tested at (rows=4, cols=8), (rows=3, cols=5); "
        "for other sizes the bundle needs a certificate: `warpsmith export RUN --verify`"
    )
    assert torch.equal(load(home / "some" / "bundle", any_shape=True)(grid(3, 6)), 3 * grid(3, 6))


def test_a_bundle_takes_along_what_its_task_imports_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "parts").mkdir(parents=True)
    (here / "scaling.py").write_text("from parts.numbers import TWO\ndef scaled(x): return TWO * x\n")
    (here / "parts" / "numbers.py").write_text("from .one import ONE\nTWO = 2 * ONE\n")
    (here / "parts" / "one.py").write_text("ONE = 1\n")
    (here / "unused.py").write_text("")
    helped = DOUBLE.replace("import torch\n", "import torch\nfrom scaling import scaled\n").replace(
        "2 * x", "scaled(x)"
    )
    with monkeypatch.context() as path:
        path.syspath_prepend(str(here))
        bundle = put(tmp_path, made_of(here, helped, TRIPLE))
    assert {str(path.relative_to(bundle)) for path in bundle.rglob("*.py")} == {
        *("task/operator_task.py", "task/scaling.py", "task/parts/numbers.py", "task/parts/one.py")
    }
    shutil.rmtree(here)
    other = ModuleType("scaling")  # of a program that loads the bundle
    monkeypatch.setitem(sys.modules, "scaling", other)

    double = load(bundle)

    assert torch.equal(double(grid(4, 8)), 3 * grid(4, 8))
    assert torch.equal(double(grid(9, 9)), 2 * grid(9, 9))
    assert sys.modules["scaling"] is other


@pytest.mark.parametrize("any_shape", [False, True])  # with a certificate as without one
def test_fixed_sizes_are_named_as_the_reason(any_shape: bool, tmp_path: Path) -> None:
    (tmp_path / "summary.py").write_text(SUMMARY)
    coverage = KernelCoverage(load_task(tmp_path / "summary.py"), "cpu", any_shape=any_shape)
    tensors = (grid(7, 9), torch.ones(9))
    mismatch = coverage.shape_mismatch([tensor.shape for tensor in tensors])
    assert mismatch is not None
    assert coverage.describe(mismatch, tensors) == (
        "the kernel is compiled only for rows = 6, cols = 9, the same in every workload of its task; for other sizes "
        "add a workload to the task and optimise again"
    )


def test_a_kernel_that_refuses_is_not_insisted_on(triple: Operator, home: Path) -> None:
    assert torch.equal(triple(grid(2, 13)), 2 * grid(2, 13))
    with pytest.raises(UsageError, match="refused these sizes"):
        load(home / "any" / "bundle", strict=True)(grid(2, 13))


def test_a_kernel_gets_aligned_memory_whatever_view_it_is_called_on(triple: Operator) -> None:
    x = grid(100)[1:65].view(8, 8)
    assert x.data_ptr() % 64

    assert torch.equal(triple(x), 3 * x)


def test_transforms_modes_and_autocast_see_no_surprise(triple: Operator) -> None:
    x = grid(3, 4, 5)

    assert torch.equal(torch.func.vmap(triple)(x), 2 * x)
    with torch.autocast("cpu", torch.bfloat16):
        assert "autocast" in (triple.covers(x[0]) or "")
    with FlopCounterMode(display=False):
        assert torch.equal(triple(x[0]), 3 * x[0])


def test_torch_compile_keeps_the_kernel_in_one_graph(triple: Operator) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: triple(x + 1) - 1, fullgraph=True, backend="aot_eager")

    for shape in ((4, 8), (5, 6)):
        assert torch.equal(compiled(grid(*shape)), 3 * (grid(*shape) + 1) - 1)
    assert torch.equal(compiled(grid(2, 13)), 2 * (grid(2, 13) + 1) - 1)  # it refuses: the graph is compiled
    assert torch.equal(compiled(grid(4, 8).double()), 2 * (grid(4, 8).double() + 1) - 1)
    assert torch.equal(compiled(grid(2, 2).requires_grad_()), 3 * (grid(2, 2) + 1) - 1)


def test_torch_accepts_its_registration(triple: Operator) -> None:
    name = next(n for n in dir(torch.ops.warpsmith) if n.startswith(f"double_{triple.manifest.candidate}"))
    registered = getattr(torch.ops.warpsmith, name).default

    torch.library.opcheck(registered, (grid(4, 8),))

    assert torch.equal(registered(grid(4, 8)), 3 * grid(4, 8))
    assert torch.equal(registered(grid(8, 4).T), 3 * grid(8, 4).T)
    with pytest.raises(UsageError, match="does not take this: x is float64"):
        registered(grid(4, 8).double())


def test_scalars_workspace_and_several_outputs(tmp_path: Path) -> None:
    op = load(put(tmp_path, made_of(tmp_path, SUMMARY, SUMMARY_KERNEL)), strict=True)
    x, weight = torch.randn(6, 9), torch.randn(9)

    found = op(x, weight, shift=0.5)

    assert list(found) == ["mean", "count"]
    torch.testing.assert_close(found["mean"], (x * weight).mean(-1) + 0.5)
    assert torch.equal(found["count"], (x > 0).sum(-1))
    assert op.covers(x, weight) is None
    assert "differ from the task's" in (op.covers(x, weight, 0.25) or "")
    assert "does not fit" in (op.covers(x, torch.randn(8)) or "")
    torch._dynamo.reset()
    again = torch.compile(op, fullgraph=True, backend="eager")(x, weight)
    assert torch.equal(again["mean"], found["mean"])


def test_a_python_function_with_shapes_that_only_the_reference_knows(tmp_path: Path) -> None:
    made = made_of(tmp_path, POOLED, POOLED_FUNCTION, kernel_name="pooling.py", entry="pool(x)")
    op = load(put(tmp_path, verified(made)), strict=True)
    reference: Callable[..., Tensor] = torch.nn.functional.max_pool1d

    for shape in ((4, 10), (5, 33)):
        x = torch.randn(shape)
        assert torch.equal(op(x), reference(x, 3, stride=2))
    torch._dynamo.reset()
    x = torch.randn(3, 17)
    assert torch.equal(
        torch.compile(op, fullgraph=True, backend="aot_eager", dynamic=False)(x), reference(x, 3, stride=2)
    )
    assert op.assumes == ()


@pytest.mark.parametrize(("kernel", "name"), [(LINEAR_KERNEL, "kernel.cpp"), (LINEAR_MODULE, "module.py")])
def test_a_module_keeps_its_weights(kernel: str, name: str, tmp_path: Path) -> None:
    op = load(put(tmp_path, made_of(tmp_path, LINEAR, kernel, kernel_name=name)))
    model = Layer()
    x = torch.randn(5, 4)
    expected = torch.relu(model.gemm(x)).detach()

    with pytest.raises(UsageError, match="has weights"):
        op(x)
    with pytest.raises(UsageError, match=r"no tensor gemm\.weight, gemm\.bias"):
        op.replacing(nn.ReLU())
    replaced = op.replacing(model.eval())
    with torch.no_grad():
        torch.testing.assert_close(replaced(x), expected + 100)
        model.gemm.bias.add_(1)
        torch.testing.assert_close(replaced(x), torch.relu(model.gemm(x)) + 100)
        torch._dynamo.reset()
        compiled = torch.compile(replaced, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), torch.relu(model.gemm(x)) + 100)
        model.train()
        assert "not in the task's mode" in (replaced.covers(x) or "")
    model.eval()
    torch.testing.assert_close(replaced(x), torch.relu(model.gemm(x)) + 100)
    replaced(x).sum().backward()  # through the reference, with these weights
    found = model.gemm.weight.grad
    assert found is not None
    (wanted,) = torch.autograd.grad(torch.relu(model.gemm(x)).sum(), model.gemm.weight)
    torch.testing.assert_close(found, wanted)


def test_a_model_with_an_operator_in_it_can_be_copied_and_pickled(triple: Operator) -> None:
    for twin in (copy.deepcopy(triple), pickle.loads(pickle.dumps(triple))):
        assert torch.equal(twin(grid(2, 3)), 3 * grid(2, 3))


def test_a_bundle_of_another_contract_or_task_is_refused(tmp_path: Path) -> None:
    made = made_of(tmp_path, DOUBLE, TRIPLE)
    other = made_of(tmp_path / "other", DOUBLE.replace("2 * x", "4 * x"), TRIPLE)
    with pytest.raises(UsageError, match="not the one that its kernel was judged with"):
        load(put(tmp_path, replace(made, task=other.task)))
    with pytest.raises(UsageError, match="another contract"):
        load(put(tmp_path, replace(made, contract=replace(made.contract, arguments=()))))


def test_a_cuda_bundle_where_there_is_no_gpu(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: tests/gpu/test_load_cuda.py")
    bundle = put(tmp_path, made_of(tmp_path, DOUBLE, TRIPLE, kernel_name="kernel.cu", device="cuda"))

    op = load(bundle)

    assert torch.equal(op(grid(4, 8)), 2 * grid(4, 8))
    assert "x is on cpu, but the kernel runs on cuda" in (op.covers(grid(4, 8)) or "")
    with pytest.raises(ToolMissing, match="PyTorch sees no GPU here"):
        load(bundle, strict=True)


def test_a_kernel_that_does_not_build_says_so(tmp_path: Path) -> None:
    bundle = put(tmp_path, made_of(tmp_path, DOUBLE, TRIPLE.replace("return 0;", "return zero;")))

    with pytest.raises(CandidateError, match="does not build for native here") as error:
        load(bundle)

    assert "zero" in str(error.value)


def test_the_example_runs_and_its_two_models_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = (SHIPPED / "softmax.py").read_text().replace("1024", "64")
    bundle = put(tmp_path, made_of(tmp_path, task, (SHIPPED / "softmax_simple.cpp").read_text()))

    runpy.run_path(str(EXAMPLE))["main"]([str(bundle), "--rounds", "2"])

    printed = capsys.readouterr().out
    assert "covers [64, 64]: yes" in printed
    assert "The outputs agree" in printed


@pytest.mark.parametrize("task", ["double", "summary", "absent"])
def test_the_example_says_in_one_sentence_what_it_cannot_use(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if task != "absent":
        text, kernel = (DOUBLE, TRIPLE) if task == "double" else (SUMMARY, SUMMARY_KERNEL)
        put(tmp_path, made_of(tmp_path, text, kernel))

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE))["main"]([str(tmp_path / "bundle")])

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: ")
    no_softmax = f"a kernel for {task}, which is no softmax over the rows of a matrix; make one with `warpsmith"
    assert (no_softmax if task != "absent" else "bundle") in said.err
