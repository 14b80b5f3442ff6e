"""Which tasks are fit to judge by: honest ones of every kind are, and those that a lazy kernel would pass are not."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from warpsmith.backends.source import read_candidate
from warpsmith.cli.json_documents import evaluate_document
from warpsmith.evaluator.judge.numerics import calibration
from warpsmith.evaluator.judge.numerics.calibration import CalibrationCache, Calibrator
from warpsmith.evaluator.judge.numerics.coarse_arithmetic import CoarseProducts, round_mantissa
from warpsmith.evaluator.judge.numerics.reference import Case, Reference, compare_output, output_share
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.work import count_work
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration
from warpsmith.model.evaluation import Status
from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[2]
KERNELBENCH = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
NATIVE = (
    KERNELBENCH + "from warpsmith import booleans, custom, integers, normal, probabilities, scalar, task, uniform\n"
)
MATRIX = 'x=normal("rows, cols"), workloads=[{"rows": 64, "cols": 96}]'

PRODUCTS_IN_TF32 = """
static double coarse(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  word = (word + 0xfffu + ((word >> 13) & 1u)) & ~0x1fffu;
  std::memcpy(&value, &word, 4);
  return value;
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void*, void*) {
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += coarse(a[r * k + i]) * coarse(b[i * n + c]);
      out[r * n + c] = static_cast<float>(sum);
    }
  }
  return 0;
}
"""

Written = Callable[..., Path]
Calibrate = Callable[..., Calibration]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A native task in a file: its declarations and the expression it returns."""

    def write(declared: str, expression: str, before: str = "") -> Path:
        call = ast.parse(f"task({declared})", mode="eval").body
        assert isinstance(call, ast.Call)
        names = [str(keyword.arg) for keyword in call.keywords]
        parameters = ", ".join(n for n in names if n not in ("workloads", "precision", "returns"))
        path = tmp_path / "mine.py"
        path.write_text(f"{NATIVE}{before}\n\n@task({declared})\ndef mine({parameters}):\n    return {expression}\n")
        return path

    return write


def calibrated(path: Path | str, *, factor: float = 3.0, precision: Precision | None = None) -> Calibration:
    """The outcome for a task file, found here and now."""
    program = load_task(path, precision)
    reductions = {}
    for workload in program.task.workloads:
        fake = program.fake_inputs(workload)
        with fake.mode:
            reductions[workload.name] = count_work(program.run, fake.tensors).reduction
    with torch.no_grad():
        return Calibrator(program, Reference(program, CPU, reductions, factor), CPU).run()


def fate(found: Calibration) -> dict[str, str]:
    """Impostor to what became of it."""
    return {
        i.name: "passes" if i.passes else i.caught_by.partition("/")[0] if i.applies else f"no: {i.detail}"
        for i in found.impostors
    }


# --- tasks that are fit ---


TASKS = [*sorted(ROOT.glob("tests/kernels/tasks/*.py")), ROOT / "src/warpsmith/examples/softmax.py"]
TASKS += [ROOT / "examples/tasks" / f"{name}.py" for name in ("argmax", "matmul", "relu")]


@pytest.mark.parametrize("path", TASKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_tasks_of_this_repository_are_fit(path: Path) -> None:
    found = calibrated(path)
    assert found.passed, found.reason
    assert found.reserve == ()
    assert found.baseline_share is not None
    assert found.baseline_share <= 0.5


@pytest.mark.parametrize(
    ("declared", "expression"),
    [
        (MATRIX, "torch.sign(x)"),
        (MATRIX, "x > 0"),
        (MATRIX, "x.to(torch.bfloat16)"),
        (MATRIX, "torch.clamp(torch.round(x * 20), -127, 127).to(torch.int8)"),
        (MATRIX, "F.pad(x, (0, 32, 0, 32))"),
        (MATRIX, "torch.tril(x)"),
        (MATRIX, "x.mean(-1, keepdim=True).expand_as(x)"),
        (MATRIX, "x.flip(-1)"),
        (MATRIX, "torch.where(x > 3, x, torch.zeros_like(x))"),
        (MATRIX, "x.sum() > 0"),
        (MATRIX, "torch.topk(x, 5)"),
        (MATRIX, "torch.fft.rfft(x)"),
        (MATRIX, "x.std(-1)"),
        (MATRIX, "torch.softmax(x * 100, -1)"),
        ('b=normal("cols"), x=normal("rows, cols"), workloads=[{"rows": 30, "cols": 50}]', "b.expand_as(x)"),
        ('x=normal("1")', "2 * x + 1"),
        ('x=normal("64, 64"), w=normal("64, 64")', "(x @ w) > 0"),
        ('a=normal("50, 16"), b=normal("70, 16")', "torch.cdist(a, b).argmin(-1)"),
        ('i=integers("n", high=16), workloads=[{"n": 300}]', "F.one_hot(i, 16)"),
        (
            'p=probabilities("r, c"), q=probabilities("r, c"), workloads=[{"r": 64, "c": 32}]',
            "(p * (p / q).log()).sum()",
        ),
        ('q=normal("2, 32, 16"), k=normal("2, 32, 16"), precision="bf16"', "torch.softmax(q @ k.mT, -1) @ k"),
        ('x=normal("64, 96"), w=normal("96, 64"), precision="fp16"', "torch.relu(x @ w)"),
        ('x=normal("64, 96"), w=normal("96, 64"), precision="tf32"', "torch.relu(torch.relu(x @ w) @ w.T)"),
        ('x=normal("64, 96"), w=normal("96, 64"), precision="fp64"', "x @ w"),
        ('x=uniform("n"), workloads=[{"n": 200000}]', "x.mean()"),
    ],
)
def test_honest_tasks_of_odd_kinds_are_fit(declared: str, expression: str, written: Written) -> None:
    found = calibrated(written(declared, expression))
    assert found.passed, found.reason


MODULE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3)
        self.norm = nn.BatchNorm1d(8)
        self.gain = nn.Parameter(torch.full((8,), 1e-9))
    def forward(self, x):
        y = self.norm(self.conv(x))
        return y + torch.tanh(y.mean(-1) * self.gain)[..., None]

def get_inputs():
    return [torch.randn(16, 4, 40)]

def get_init_inputs():
    return []
"""


def test_a_kernel_that_ignores_an_input_is_caught_and_an_input_without_influence_is_excused(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(KERNELBENCH + MODULE)
    calibration = calibrated(path)
    found = fate(calibration)
    assert found["ignores x"] == found["ignores conv_weight"] == "own"
    assert found["ignores norm_weight"] == found["ignores norm_bias"] == "constants"
    assert found["ignores conv_bias"] == "no: no influence on the result"  # the norm takes it away
    assert found["ignores norm_running_mean"] == "no: no influence on the result"  # written, not read
    assert found["ignores gain"] == "unit constants"
    assert calibration.reserve == ("unit constants",)
    assert calibration.passed, calibration.reason


def test_every_impostor_is_caught_on_the_own_inputs_of_a_plain_task(task_file: Callable[[str], Path]) -> None:
    found = fate(calibrated(task_file("kernelbench_linear")))
    assert set(found.values()) == {"own"}
    assert set(found) == {
        *("zeros", "constant", "stale result", "row means", "copy of gemm_bias"),
        *(f"{what} tail, {axis} axis" for what in ("dropped", "repeated", "unread") for axis in ("last", "first")),
        *("lower precision", "lower-precision products"),
        *("ignores x", "ignores gemm_weight", "ignores gemm_bias"),
    }


def test_what_does_not_apply_says_why(task_file: Callable[[str], Path], written: Written) -> None:
    assert fate(calibrated(task_file("argmax")))["lower precision"] == "no: whole numbers are exact"
    assert fate(calibrated(task_file("relu")))["lower-precision products"] == "no: no matrix products"
    signs = fate(calibrated(written(MATRIX, "torch.sign(x)")))
    assert signs["lower precision"] == "no: low bits do not matter"
    padded = fate(calibrated(written(MATRIX, "F.pad(x, (0, 96))")))
    assert padded["dropped tail, last axis"] == "no: these are its right values"
    converted = fate(calibrated(written(MATRIX, "x.to(torch.bfloat16)")))
    assert converted["copy of x"] == "no: the operator is this very conversion"
    assert converted["lower precision"] == "no: an honest result is rounded as coarsely"


def test_the_outcome_is_a_property_of_the_task_and_not_of_luck(task_file: Callable[[str], Path]) -> None:
    first, second = (replace(calibrated(task_file("total")), seconds=0.0) for _ in range(2))
    assert fate(first) == fate(second)
    assert first.passed


# --- tasks that are not ---


@pytest.mark.parametrize(
    ("declared", "expression", "impostor", "said"),
    [
        (MATRIX, "torch.softmax(x, -1).sum(-1)", "constant", "writes 1 everywhere in out"),
        (MATRIX, "x * 0 + 2.5", "constant", "writes 2.5 everywhere in out"),
        (MATRIX, "torch.isfinite(x)", "constant", "writes True everywhere in out"),
        (
            'x=uniform("n", low=-2, high=-1), workloads=[{"n": 500}]',
            "torch.relu(x)",
            "zeros",
            "writes only zeros to out",
        ),
        (MATRIX, "torch.relu(x.clamp(max=0.0))", "zeros", "writes only zeros to out"),
        (MATRIX + ', returns="y, aux"', "(x * 2, x.mean(-1) * 0)", "zeros", "writes only zeros to aux"),
        (MATRIX, "x.clone()", "copy of x", "only copies x to out"),
        (MATRIX, "x.reshape(-1)", "copy of x", "only copies x to out"),
        (MATRIX, "x + 1e-12", "copy of x", "only copies x to out"),
        (MATRIX, "torch.arange(96.0, device=x.device).to(x.dtype) + 0 * x", "stale result", "of an earlier call"),
    ],
)
def test_a_task_that_a_lazy_kernel_would_pass_is_refused(
    declared: str, expression: str, impostor: str, said: str, written: Written
) -> None:
    found = calibrated(written(declared, expression))
    assert not found.passed
    assert found.reason.startswith(f"a kernel that {said}") or f"{said} again would pass mine" in found.reason
    assert "would pass mine: " in found.reason
    assert "; choose " in found.reason
    assert fate(found)[impostor] == "passes"


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        # After well-known problems: the largest value of a row minus the mean of that one value; a clamp after a min.
        ("y = self.fc(x).amax(1, keepdim=True)\n        return F.gelu(y - y.mean(1, keepdim=True))", "only zeros"),
        ("return self.fc(x).clamp(max=0.0).clamp(0.0, 1.0)", "only zeros"),
        ("return torch.softmax(self.fc(x), dim=-1).sum(dim=-1, keepdim=True)", "writes 1 everywhere"),
    ],
)
def test_degenerate_problems_of_benchmarks_are_refused(forward: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(
        f"{KERNELBENCH}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.fc = nn.Linear(32, 48)\n    def forward(self, x):\n        {forward}\n\n"
        "def get_inputs():\n    return [torch.rand(16, 32)]\n\ndef get_init_inputs():\n    return []\n"
    )
    found = calibrated(path)
    assert not found.passed
    assert said in found.reason


def test_exact_outputs_that_hang_on_the_last_bit_are_refused(written: Written) -> None:
    found = calibrated(written('a=normal("64, 64"), b=normal("64, 64")', "torch.round((a @ b) * 1e5).to(torch.int32)"))
    assert not found.passed
    assert "do not hang on the last bit" in found.reason


def test_an_ill_conditioned_task_is_refused(written: Written) -> None:
    found = calibrated(written(MATRIX, "torch.sin(x * 1e6)"))
    assert not found.passed
    assert "too far from its fp64 result" in found.reason
    assert found.impostors == ()


def test_pytorch_must_pass_with_room_to_spare(written: Written) -> None:
    task = written('a=normal("96, 96")', "torch.linalg.inv(a)")
    assert calibrated(task).passed
    strict = calibrated(task, factor=0.0)  # as if nobody could be worse than the rounding floor
    assert not strict.passed
    assert "honest kernels may fail" in strict.reason


# --- tasks that need more than the usual inputs ---


@pytest.mark.parametrize(
    ("declared", "expression", "impostor", "variant"),
    [
        # Positive terms: rounding errors average out, unless only a few terms are left, or all errors have one sign.
        ('a=uniform("16, 8192"), b=uniform("8192, 16")', "a @ b", "lower-precision products", "rare"),
        (
            'a=uniform("16, 8192", low=1, high=3), b=uniform("8192, 16", low=1, high=3)',
            "a @ b",
            "lower-precision products",
            "one-sided",
        ),
        # A mean of that many values is the same without some of them, unless they lie unevenly.
        ('x=uniform("100000", low=1, high=3), precision="bf16"', "x.mean()", "unread tail, last axis", "uneven"),
    ],
)
def test_the_reserve_tells_apart_what_the_usual_inputs_do_not(
    declared: str, expression: str, impostor: str, variant: str, written: Written
) -> None:
    found = calibrated(written(declared, expression))
    assert found.passed, found.reason
    assert variant in found.reserve
    assert fate(found)[impostor] == variant


def test_inputs_of_the_reserve_stay_in_their_domain(written: Written) -> None:
    declared = 'x=normal("n"), u=uniform("n", low=1, high=3), p=probabilities("n"), i=integers("n", high=9)'
    for precision in Precision:
        program = load_task(written(declared + ', workloads=[{"n": 50000}]', "x + u + p + i"), precision)
        workload = program.task.workloads[0]
        own = program.inputs(workload, seed=3, device=CPU)
        for variant in ("rare", "uneven", "one-sided"):
            made = program.inputs(workload, variant=variant, seed=3, device=CPU)
            assert 1 <= float(made["u"].min()) <= float(made["u"].max()) <= 3
            assert float(made["p"].sum()) == pytest.approx(1, abs=0.1)
            assert bool(torch.isfinite(made["x"]).all())
            assert made["x"].dtype == own["x"].dtype
            assert not torch.equal(made["x"], own["x"])
        assert 3500 < int((program.inputs(workload, variant="rare", seed=3, device=CPU)["x"] != 0).sum()) < 4700


@pytest.mark.parametrize(("precision", "bits"), [("fp32", 10), ("fp32", 7), ("fp16", 3), ("bf16", 3), ("fp64", 23)])
def test_one_sided_values_all_become_smaller_by_rounding(precision: str, bits: int, written: Written) -> None:
    program = load_task(written('x=normal("1000")', "x * 2"), Precision(precision))
    x = program.inputs(program.task.workloads[0], variant="one-sided", seed=1, device=CPU)["x"]
    assert bool((round_mantissa(x, bits).abs() < x.abs()).all())


@pytest.mark.parametrize("variant", ["rare", "uneven", "one-sided"])
@pytest.mark.parametrize("low", [0, 1])
def test_a_plain_loop_is_exact_enough_on_the_reserve(low: int, variant: str, written: Written) -> None:
    terms = 20_000
    program = load_task(written(f'x=uniform("64, {terms}", low={low}, high={low + 2})', "x.sum(-1)"))
    workload = program.task.workloads[0]
    reference = Reference(program, CPU, {workload.name: terms}, 3.0)
    expected = reference.compute(Case(workload, variant, 5))
    assert expected is not None
    total = torch.zeros(64)
    for column in expected.inputs["x"].T.contiguous():
        total = total + column
    assert output_share(program.task, expected, 0, total) < 0.5


@pytest.mark.slow  # evaluations of its own
def test_kernels_are_judged_on_the_reserve_that_their_task_needs(
    written: Written, evaluator: Evaluator, kernel_path: Callable[[str], Path], tmp_path: Path
) -> None:
    task = written('a=uniform("m, k"), b=uniform("k, n"), workloads=[{"m": 8, "n": 8, "k": 65536}]', "a @ b")
    honest = evaluator.evaluate_one(task, read_candidate(kernel_path("matmul.cpp")))
    assert honest.status is Status.OK, honest.reason
    (tmp_path / "products_in_tf32.cpp").write_text(PRODUCTS_IN_TF32)
    coarse = evaluator.evaluate_one(task, read_candidate(tmp_path / "products_in_tf32.cpp"))
    assert coarse.status is Status.WRONG
    assert "rare inputs" in coarse.reason


# --- the parts ---


def test_the_short_rule_decides_as_the_full_one_does(task_file: Callable[[str], Path]) -> None:
    program = load_task(task_file("relu"))
    workload = program.task.workloads[0]
    expected = Reference(program, CPU, {workload.name: 1}, 3.0).compute(Case(workload, "own", 1))
    assert expected is not None
    right = expected.outputs[0].float()
    for wrong_by in (0.0, 1e-7, 3e-7, 1e-6, 1e-5, 1e-3, math.nan, math.inf):
        result = right.clone()
        result[-1] += wrong_by
        verdict = compare_output(program.task, expected, 0, result)
        assert (output_share(program.task, expected, 0, result) <= 1.0) is verdict.ok
        if verdict.ok:
            assert output_share(program.task, expected, 0, result) == verdict.share


def test_values_are_rounded_to_nearest() -> None:
    values = torch.tensor([1.0, 1 + 2**-11, 1 + 3 * 2**-11, -math.pi, 0.0, math.inf, 3e38, 7.0])
    assert round_mantissa(values, 10).tolist()[:5] == [1.0, 1.0, 1 + 2**-9, -3.140625, 0.0]
    assert round_mantissa(values, 10)[5] == math.inf
    assert round_mantissa(values, 7).equal(values.bfloat16().float())
    assert round_mantissa(torch.tensor([float("nan")]), 3).isnan().all()
    assert round_mantissa(torch.arange(5), 3).equal(torch.arange(5))
    half = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float16)
    assert round_mantissa(half, 10).equal(half)
    assert (round_mantissa(half, 3) - half).abs().max() > 0


def test_only_the_factors_of_products_are_coarse() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(32, 32, generator=generator) for _ in range(3))
    with torch.no_grad(), CoarseProducts(10) as mode:
        product, plain = torch.addmm(c, a, b), a * b + c
    assert mode.seen == 1
    assert plain.equal(a * b + c)
    assert torch.allclose(product, c + round_mantissa(a, 10) @ round_mantissa(b, 10), atol=1e-5)
    assert not torch.allclose(product, c + a @ b, atol=1e-5)


def test_impostors_that_do_not_fit_into_memory_are_left_out(
    task_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "has_room", lambda _, needed: needed <= 1000)
    found = calibrated(task_file("matmul_fp32"))
    assert found.passed, found.reason
    assert fate(found)["zeros"] == "own"
    assert fate(found)["lower precision"] == "no: not tried: not enough memory"


# --- once per task ---


def test_a_task_that_is_not_calibrated_is_judged_and_every_verdict_says_so(
    written: Written, evaluator: Evaluator, kernel: Callable[[str], Candidate], cache_folder: Path
) -> None:
    task = written(MATRIX, "torch.softmax(x, -1).sum(-1)")
    verdict = evaluator.evaluate_one(task, kernel("relu.cpp"))
    assert verdict.uncalibrated.startswith("a kernel that writes 1 everywhere in out would pass mine")
    assert verdict.warning.startswith("calibrated: no (a kernel that writes 1 everywhere")
    document = evaluate_document(verdict, file="relu.cpp", device="cpu")
    assert document["calibrated"] is False
    assert document["uncalibrated"] == verdict.uncalibrated
    described, again = evaluator.calibrate(task)
    assert described.name == "mine"
    assert again.cached
    assert not again.passed
    assert evaluator.survey(task, "cpu").uncalibrated == again.reason
    _, fresh = evaluator.calibrate(task, fresh=True)
    assert not fresh.cached
    assert replace(fresh, cached=True, seconds=0.0) == replace(again, seconds=0.0)


def test_an_outcome_that_cannot_be_read_is_found_again(tmp_path: Path, task_file: Callable[[str], Path]) -> None:
    task = load_task(task_file("relu")).task
    cache = CalibrationCache(tmp_path, "cpu|some", 3.0)
    assert cache.get(task) is None
    cache.put(task, Calibration(True, baseline_share=0.1))
    assert cache.get(task) == Calibration(True, baseline_share=0.1, cached=True)
    assert CalibrationCache(tmp_path, "cpu|other", 3.0).get(task) is None
    assert CalibrationCache(tmp_path, "cpu|some", 2.0).get(task) is None
    for kept in (tmp_path / "calibration").iterdir():
        kept.write_text('{"passed": ')
    assert cache.get(task) is None
    blocked = CalibrationCache(task_file("relu"), "cpu|some", 3.0)  # a file where the folder should be
    blocked.put(task, Calibration(True))
    assert blocked.get(task) is None


def test_a_refusal_has_a_reason_and_an_approval_has_none() -> None:
    with pytest.raises(ValueError, match="reason"):
        Calibration(False)
    with pytest.raises(ValueError, match="reason"):
        Calibration(True, "because")
