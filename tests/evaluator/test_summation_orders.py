"""Sums in other orders: what they compute, when they are complete, and the limits that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from warpsmith.evaluator.judge.numerics import tolerance
from warpsmith.evaluator.judge.numerics.compare import Errors
from warpsmith.evaluator.judge.numerics.reference import Case, Reference, output_share
from warpsmith.evaluator.judge.numerics.summation_orders import ORDERS, STARTS, Order, OtherOrder
from warpsmith.hardware.work import count_work
from warpsmith.model.task import Precision, Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

CPU = torch.device("cpu")
OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(),
    "rows": lambda x: x.sum(-1, keepdim=True),
    "columns": lambda x: x.sum(0),
    "mean": lambda x: x.mean((0, 1)),
    "log-sum-exp": lambda x: torch.logsumexp(x, -1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log-softmax": lambda x: torch.log_softmax(x, 0),
    "variance": lambda x: x.var(-1, correction=0),
    "deviation": lambda x: x.std(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
}


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_order_gives_another_rounding_of_the_same_result(name: str, dtype: torch.dtype) -> None:
    x, operator = (drawn(24, 3000) + 0.5).to(dtype), OPERATORS[name]
    with OtherOrder(Order(1)) as order:
        found = operator(x)
    assert order.complete
    assert order.replaced == 1
    plain = operator(x)
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert torch.allclose(found.double(), operator(x.double()), rtol=2e-2 if dtype is torch.bfloat16 else 1e-4)
    assert dtype is torch.bfloat16 or not torch.equal(found, plain)


def test_one_lane_adds_one_value_after_the_other() -> None:
    x = drawn(5000)
    total = torch.zeros(())
    for value in x:
        total += value
    with OtherOrder(Order(1)):
        assert torch.equal(x.sum(), total)


@pytest.mark.parametrize("operator", [lambda x: x @ x.T, lambda x: x.cumsum(0)])
def test_what_cannot_be_replaced_is_noted(operator: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with OtherOrder(Order(2)) as order:
        operator(drawn(8, 8)).sum()
    assert order.replaced == 1
    assert not order.complete


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross entropy": lambda x: functional.cross_entropy(x, torch.arange(len(x))),
    "smoothed": lambda x: functional.cross_entropy(x, torch.arange(len(x)), label_smoothing=0.1),
    "weighted": lambda x: functional.cross_entropy(x, torch.arange(len(x)), torch.full_like(x[0], 2.0)),
    "squares": lambda x: functional.mse_loss(x, torch.zeros_like(x)),
    "summed squares": lambda x: functional.mse_loss(x, torch.zeros_like(x), reduction="sum"),
    "smooth": lambda x: functional.smooth_l1_loss(x, torch.zeros_like(x)),
    "Huber": lambda x: functional.huber_loss(x, torch.zeros_like(x), delta=0.5),
    "binary": lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.full_like(x, 0.25)),
    "logits": lambda x: functional.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.25)),
    "divergence": lambda x: functional.kl_div(x.log_softmax(-1), x.flip(-1).softmax(-1), reduction="batchmean"),
    "Poisson": lambda x: functional.poisson_nll_loss(x, torch.ones_like(x)),
    "margin": lambda x: functional.soft_margin_loss(x, torch.ones_like(x)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_taken_apart(name: str) -> None:
    x, loss = drawn(24, 3000) + 0.5, LOSSES[name]
    with OtherOrder(Order(1)) as order:
        found = loss(x)
    assert order.complete
    assert order.replaced >= 1
    assert (found.dtype, found.shape) == (torch.float32, ())
    assert float(found) == pytest.approx(float(loss(x.double())), rel=1e-4)


def test_a_guessed_cross_entropy_fails_and_honest_sums_pass(tmp_path: Path) -> None:
    """Rows as long as a large vocabulary: from the moments of each row, the mean loss is known to five digits."""
    path = tmp_path / "loss.py"
    path.write_text(
        "import torch\nfrom warpsmith import integers, normal, task\n\n\n"
        '@task(x=normal("n, v"), y=integers("n", high="v"), workloads=[{"n": 16, "v": 262144}])\n'
        "def loss(x, y):\n    return torch.nn.functional.cross_entropy(x, y)\n"
    )
    program = load_task(path)
    workload = program.task.workloads[0]
    reference = Reference(program, CPU, {workload.name: workload.sizes["v"]}, 3.0)
    guesses, honest = [], []
    with torch.no_grad():
        for seed in range(4):
            expected = reference.compute(Case(workload, "own", seed))
            assert expected is not None
            x, y = expected.inputs["x"], expected.inputs["y"]
            rows = math.log(x.shape[1]) + x.double().mean(-1) + x.double().var(-1) / 2
            guess = (rows - x.gather(1, y[:, None])[:, 0]).mean().float()
            guesses.append(output_share(program.task, expected, 0, guess))
            for order in (*ORDERS, Order(64)):
                with OtherOrder(order):
                    honest.append(output_share(program.task, expected, 0, functional.cross_entropy(x, y)))
    assert max(guesses) > 1
    assert max(honest) < 0.7


def test_measured_orders_lower_a_limit_and_never_raise_it() -> None:
    like, nothing = torch.empty(1000), Errors(0.0, 0.0)

    def limit(orders: Errors | None, terms: int = 1 << 20) -> float:
        return tolerance.error_limit(nothing, like, Precision.FP32, reduction=terms, factor=3.0, orders=orders).rms

    assert limit(Errors(1e-6, 1e-6)) == limit(None, 4096) < limit(Errors(1e-5, 1e-5)) < limit(None)
    assert limit(Errors(1.0, 1.0)) == limit(None)


def log_sum_exp(folder: Path, size: int) -> tuple[Program, Workload, Reference]:
    path = folder / "lse.py"
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        f'@task(x=normal("n"), workloads=[{{"n": {size}}}])\n'
        "def lse(x):\n    return torch.logsumexp(x, 0)\n"
    )
    program = load_task(path)
    workload = program.task.workloads[0]
    fake = program.fake_inputs(workload)
    with fake.mode:
        terms = count_work(program.run, fake.tensors).reduction
    return program, workload, Reference(program, CPU, {workload.name: terms}, 3.0)


def test_a_result_guessed_from_the_distribution_fails_and_honest_sums_pass(tmp_path: Path) -> None:
    program, workload, reference = log_sum_exp(tmp_path, 1000448)
    guesses, honest = [], []
    with torch.no_grad():
        for seed in range(4):
            expected = reference.compute(Case(workload, "own", seed))
            assert expected is not None
            x = expected.inputs["x"]
            moments = math.log(x.numel()) + x.mean() + x.var() / 2
            guesses.append(output_share(program.task, expected, 0, moments))
            for order in (*ORDERS, Order(64), Order(1024)):
                with OtherOrder(order):
                    honest.append(output_share(program.task, expected, 0, torch.logsumexp(x, 0)))
    assert max(guesses) > 1
    assert max(honest) < 0.7
    assert reference.own_orders(workload)[0] is not None


def test_each_draw_of_equal_terms_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """How far a sum of mostly equal terms drifts depends on their last bits: with the limit of the first draw,
    honest sums of others are refused."""
    program, workload, reference = log_sum_exp(tmp_path, 262144)
    shares = []
    with torch.no_grad():
        for seed in range(30):
            expected = reference.compute(Case(workload, "sparse", seed))
            assert expected is not None
            with OtherOrder(Order(2)):
                result = torch.logsumexp(expected.inputs["x"], 0)
            shares.append(output_share(program.task, expected, 0, result))
    assert max(shares) < 0.7


def test_starting_points_make_a_single_sum_a_sample_of_many() -> None:
    """From one order alone, a fifth of honest sequential sums would be three times as wrong as the measured one."""
    x = drawn(24, 100_000).double().abs()
    errors = []
    for order in (Order(1), *STARTS):
        with OtherOrder(order):
            errors.append((x.float().sum(-1).double() - x.sum(-1)).abs())
    first, rest = errors[0], torch.stack(errors[1:]).amax(0)
    assert (first > tolerance.HONEST_MARGIN * errors[1]).any()
    assert (first <= tolerance.HONEST_MARGIN * rest).all()
