from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from warpsmith.model.task import Workload
from warpsmith.tasks.program import Program
from warpsmith.tasks.variants import (
    CONSTANTS,
    HELD_OUT,
    HIDDEN,
    KNOWN,
    NAMES,
    Domain,
    applies,
    apply_variant,
    infer_domain,
    move,
)

Load = Callable[..., Program]
CPU = torch.device("cpu")
_PLAIN = Domain()
N = 400
DECLARED = tuple(n for n in NAMES if n not in ("centred", CONSTANTS))  # for a guessed domain and for constants


@pytest.fixture
def made(native: Load):  # type: ignore[no-untyped-def]
    program = native(f"""
        @task(x=normal("n"), u=uniform("n", low=1, high=3), p=probabilities("n"), i=integers("n", high=9),
              workloads=[{{"n": {N}}}])
        def f(x, u, p, i):
            return x + u + p + i
        """)
    workload = program.task.workloads[0]
    assert program.variants() == DECLARED
    return lambda variant: program.inputs(workload, variant=variant, seed=11, device=CPU)


@pytest.mark.parametrize("variant", DECLARED)
def test_every_variant_stays_in_the_domain(made, variant: str) -> None:  # type: ignore[no-untyped-def]
    inputs = made(variant)
    assert 1 <= float(inputs["u"].min()) <= float(inputs["u"].max()) <= 3
    assert float(inputs["p"].sum()) == pytest.approx(1, abs=1e-4)
    assert 0 <= int(inputs["i"].min()) <= int(inputs["i"].max()) < 9
    assert bool(torch.isfinite(inputs["x"]).all())


def test_each_variant_does_what_it_is_called(made) -> None:  # type: ignore[no-untyped-def]
    assert float(made("large")["x"].abs().max()) > 100
    assert float(made("small")["x"].abs().max()) < 0.1
    assert float(made("positive")["x"].min()) >= 0
    assert float(made("negative")["x"].max()) <= 0
    assert 0.8 < float((made("sparse")["x"] == 0).float().mean()) < 0.97
    assert made("ties")["x"].unique().numel() < 12
    whole = made("integers")["x"]
    assert torch.equal(whole, whole.round())
    assert whole.unique().numel() == 9
    edges = made("large")["u"]
    assert bool(((edges < 1.1) | (edges > 2.9)).all())


def test_domains_are_inferred_from_a_sample() -> None:
    generator = torch.Generator().manual_seed(0)
    unit = torch.rand(64, 64, generator=generator)
    signed = torch.randn(64, 64, generator=generator)
    reals, interval, half = infer_domain(signed), infer_domain(unit), infer_domain(unit * 50)
    assert reals is not None
    assert (reals.low, reals.high) == (-float("inf"), float("inf"))
    assert interval is not None
    assert (interval.low, interval.high) == (0, 1)
    assert half is not None
    assert half.low == 0
    structured = {
        "log probabilities": torch.log_softmax(signed, -1),
        "triangle": signed.tril(),
        "symmetric": signed + signed.t(),
        "labels": torch.randint(0, 5, (64,), generator=generator),
        "signs": torch.sign(signed),
        "mask": signed > 0,
        "constant": torch.full((5,), 0.5).round(),
    }
    for what, tensor in structured.items():
        assert infer_domain(tensor) is None, what
    rows = infer_domain(torch.softmax(signed, -1))
    assert rows is not None
    assert rows.simplex


PROBABLE = ("large", "small", "uneven", "sorted", "heavy-tailed")


@pytest.mark.parametrize("variant", PROBABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_probabilities_are_varied_and_stay_such(variant: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.softmax(torch.randn(8, 300, generator=generator), -1).to(dtype)
    made = apply_variant(variant, own, Domain(low=0.0, high=1.0, simplex=True), generator)
    assert made.dtype is dtype
    assert not torch.equal(made, own)
    assert bool((made >= 0).all())
    assert torch.allclose(
        made.double().sum(-1), torch.ones(8, dtype=torch.float64), atol=1e-5 if own.itemsize > 2 else 0.05
    )


def test_other_variants_leave_probabilities_alone() -> None:
    rows = Domain(low=0.0, high=1.0, simplex=True)
    assert {variant for variant in KNOWN if applies(variant, rows)} == set(PROBABLE)


def test_an_uneven_tensor_is_so_along_both_its_axes() -> None:
    generator = torch.Generator().manual_seed(0)
    made = apply_variant("uneven", torch.ones(160, 320), Domain(), generator)
    for parts in (made.mean(1).view(16, 10).mean(1), made.mean(0).view(16, 20).mean(1)):
        ratio = parts[1:] / parts[:-1]
        assert bool(((ratio > 4) | (ratio < 0.25)).all()), ratio
    short = apply_variant("uneven", torch.ones(3, 5), Domain(), generator)  # fewer than there are stretches
    assert short.shape == (3, 5)


def test_a_guessed_domain_is_also_left_for_both_signs(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def forward(self, a, b):
                return a @ b

        def get_inputs():
            return [torch.rand(32, 64), torch.rand(64, 16)]

        def get_init_inputs():
            return []
        """)
    assert "centred" in program.variants(device=CPU)
    centred = program.inputs(Workload("default"), variant="centred", seed=1, device=CPU)["a"]
    assert float(centred.min()) < -0.5 < 0.5 < float(centred.max())
    assert abs(float(centred.mean())) < 0.1


def test_kernelbench_state_keeps_its_values_in_every_variant(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(8, 8)
            def forward(self, x, targets):
                return F.cross_entropy(self.fc(x), targets)

        def get_inputs():
            return [torch.randn(16, 8), torch.randint(0, 8, (16,))]

        def get_init_inputs():
            return []
        """)
    workload = Workload("default")
    own = program.inputs(workload, seed=4, device=CPU)
    assert program.variants(device=CPU)[0] == "own"
    for variant in program.variants()[1:]:
        other = program.inputs(workload, variant=variant, seed=4, device=CPU)
        assert torch.equal(own["fc_weight"], other["fc_weight"])
        assert torch.equal(own["targets"], other["targets"])
        assert not torch.equal(own["x"], other["x"]), variant


_CONSTANT_STATE = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(64).eval()
            self.register_buffer("eps", torch.tensor(1e-4))
            self.register_buffer("order", torch.ones(64, dtype=torch.int64))
        def forward(self, x, scale, keep):
            return torch.where(keep, self.norm(x) * scale + self.eps, 0)[:, self.order]

    def get_inputs():
        return [torch.randn(16, 64), torch.full((64,), 0.9), torch.ones(64, dtype=torch.bool)]

    def get_init_inputs():
        return []
    """


def test_constant_inputs_and_state_are_drawn_at_random_in_their_valid_range(kernelbench: Load) -> None:
    program = kernelbench(_CONSTANT_STATE)
    workload, constant = (
        Workload("default"),
        {"norm_weight", "norm_bias", "norm_running_mean", "norm_running_var", "eps"},
    )
    own = program.inputs(workload, seed=4, device=CPU)
    assert CONSTANTS in program.variants(device=CPU)
    assert CONSTANTS in program.variants(device=CPU, held_out=True)
    assert float(own["norm_running_var"].std()) == 0
    for variant in (*program.variants(device=CPU)[1:], *program.variants(device=CPU, held_out=True)[1:]):
        other = program.inputs(workload, variant=variant, seed=4, device=CPU)
        assert not any(torch.equal(own[name], other[name]) for name in constant | {"scale", "keep"}), variant
        assert torch.equal(own["order"], other["order"])
        assert float(other["norm_running_var"].min()) > 0.4
        assert 0 < float(other["eps"]) < 2e-4
        assert 0.4 < float(other["scale"].min()) <= float(other["scale"].max()) <= 1
        assert torch.equal(own["x"], other["x"]) == (variant == CONSTANTS)
    unit = program.inputs(workload, variant="unit constants", seed=4, device=CPU)
    assert 0.4 < float(unit["eps"]) < 1.6


def test_timed_calls_get_random_values_for_constant_inputs_and_state(kernelbench: Load) -> None:
    program = kernelbench(_CONSTANT_STATE)
    first, second = (program.redrawn_state(seed=seed, device=CPU) for seed in (1, 2))
    assert first.keys() == {"norm_weight", "norm_bias", "norm_running_mean", "norm_running_var", "eps"}
    assert not any(torch.equal(first[name], second[name]) for name in first)
    drawn = program.arguments(Workload("default"), seed=1, device=CPU)
    assert float(drawn["scale"].std()) > 0
    assert not bool(drawn["keep"].all())


def test_one_element_that_differs_from_draw_to_draw_is_no_constant(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def forward(self, x, scale):
                return x * scale

        def get_inputs():
            return [torch.randn(16, 8), torch.randn(1)]

        def get_init_inputs():
            return []
        """)
    assert CONSTANTS not in program.variants(device=CPU)


# --- kept for verifying winners ---


@pytest.mark.parametrize("variant", HELD_OUT)
def test_every_held_out_variant_stays_in_the_domain(made, variant: str) -> None:  # type: ignore[no-untyped-def]
    inputs = made(variant)
    assert 1 <= float(inputs["u"].min()) <= float(inputs["u"].max()) <= 3
    assert float(inputs["p"].sum()) == pytest.approx(1, abs=1e-4)
    assert bool(torch.isfinite(inputs["x"]).all())
    assert not torch.equal(inputs["x"], made("own")["x"])


def test_each_held_out_variant_does_what_it_is_called(made) -> None:  # type: ignore[no-untyped-def]
    x = {variant: made(variant)["x"] for variant in HELD_OUT}
    assert bool((x["sorted"].diff() >= 0).all())
    assert x["row-constant"].unique().numel() == 1
    assert 290 < float(x["offset"].min()) <= float(x["offset"].max()) < 310
    assert int((x["spiked"] > 5e3).sum()) == 1
    assert bool((x["alternating"][:-1] * x["alternating"][1:] <= 0).all())
    assert 0 < float(x["tiny"].abs().max()) < 1e-35
    kurtosis = float(((x["heavy-tailed"] / x["heavy-tailed"].std()) ** 4).mean())
    assert kurtosis > 10  # 3 for the normal distribution


def test_an_ordinary_evaluation_knows_nothing_of_the_held_out_variants(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 8}], precision="fp16")
        def f(x):
            return x * 2
        """)
    assert not set(HELD_OUT) & set(program.variants(device=CPU))
    assert program.variants(device=CPU, held_out=True) == ("own", *HELD_OUT)
    tiny = program.inputs(program.task.workloads[0], variant="tiny", seed=1, device=CPU)["x"]
    assert 0 < float(tiny.abs().max()) < 0.05


# --- against results that are guessed from the distribution ---


def _timed(own: torch.Tensor, seed: int, domain: Domain = _PLAIN) -> torch.Tensor:
    """What a usual timed call gets."""
    return move(own.clone(), domain, torch.Generator().manual_seed(seed))


def test_a_stretch_or_a_spike_hides_from_samples_and_decides_a_sum() -> None:
    own = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    for variant in HIDDEN:
        for seed in range(4):
            usual, made = _timed(own, seed), apply_variant(variant, own, _PLAIN, torch.Generator().manual_seed(seed))
            changed = made != usual
            assert 0 < float(changed.double().mean()) < 2 / 1024
            assert float(made.abs().sum()) > 1.02 * float(usual.abs().sum())
            assert torch.logsumexp(made, 0) > 3 * torch.logsumexp(usual, 0)
        made = apply_variant(variant, own.view(64, -1), _PLAIN, torch.Generator().manual_seed(9))
        rows = made != _timed(own.view(64, -1), 9)
        assert bool(rows.any(-1).all()) == (variant in ("stretch", "spike"))
        inside = apply_variant(variant, own.abs().clamp(0, 1), Domain(0.0, 1.0, 0.5, 0.25), torch.Generator())
        assert float(inside.max()) <= 1


@pytest.mark.parametrize("variant", HIDDEN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_of_many_bounded_values_is_not_found_by_samples(variant: str, dtype: torch.dtype) -> None:
    """The largest of many values between bounds is the bound but for the last digits, in any large part of them."""
    own, domain = torch.rand(1 << 18, generator=torch.Generator().manual_seed(0)).to(dtype), Domain(0.0, 1.0, 0.5, 0.3)
    drawn = [apply_variant(variant, own, domain, torch.Generator().manual_seed(seed)) for seed in range(8)]
    assert all(bool((made >= 0).all()) and float(made.max()) == 1 for made in drawn)
    in_a_part = [float(made[: made.numel() // 2].max()) for made in drawn]
    assert min(in_a_part) < 0.95


@pytest.mark.parametrize(("dtype", "count"), [(torch.bfloat16, 1 << 22), (torch.float16, 1 << 20)])
def test_a_spike_decides_a_long_mean_in_few_digits(dtype: torch.dtype, count: int) -> None:
    own = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(dtype)
    made, usual = apply_variant("spike", own, _PLAIN, torch.Generator().manual_seed(1)).float(), _timed(own, 1).float()
    assert bool(made.isfinite().all())
    assert int((made != usual).sum()) == 1
    assert float(made.abs().mean()) > 1.02 * float(usual.abs().mean())  # a sample of the others is then wrong


@pytest.mark.parametrize("variant", ["two-point", "box", "mixture"])
def test_same_moments_in_another_shape(variant: str) -> None:
    own = 3 + 2 * torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
    made = apply_variant(variant, own, Domain(centre=3.0, scale=2.0), torch.Generator().manual_seed(1))
    assert float(made.mean()) == pytest.approx(3, abs=0.02)
    assert float(made.std()) == pytest.approx(2, abs=0.02)
    fourth = float((made.double() - 3).pow(4).mean()) / 16
    assert abs(fourth - 3) > 0.4  # of normal values it is 3


def test_inputs_of_timed_calls_are_moved_within_their_domain(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), u=uniform("n", low=1, high=3), p=probabilities("n"), i=integers("n", high=9),
              workloads=[{"n": 20000}])
        def f(x, u, p, i):
            return x + u + p + i
        """)
    drawn = [program.arguments(program.task.workloads[0], seed=seed, device=CPU) for seed in range(8)]
    means = torch.tensor([float(each["x"].mean()) for each in drawn])
    assert float(means.std()) > 0.03  # of eight draws of the task's own distribution 0.007
    assert float(means.abs().max()) < 0.3
    for each in drawn:
        assert 0.75 < float(each["x"].std()) < 1.25
        assert 1 <= float(each["u"].min()) <= float(each["u"].max()) <= 3
        assert float(each["p"].sum()) == pytest.approx(1, abs=1e-4)
        assert 0 <= int(each["i"].min()) <= int(each["i"].max()) < 9


def test_a_patch_leaves_most_rows_as_they_are_and_decides_others_and_the_columns() -> None:
    own = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0))
    columns = torch.randn(65536, 8, generator=torch.Generator().manual_seed(1))
    for seed in range(8):
        made, usual = apply_variant("patch", own, _PLAIN, torch.Generator().manual_seed(seed)), _timed(own, seed)
        sizes, changed = made.abs().sum(-1) / usual.abs().sum(-1), (made != usual).any(-1)
        assert 1 <= int(changed.sum()) <= 2
        assert bool((sizes[changed] > 1.2).any())
        tall = apply_variant("patch", columns, _PLAIN, torch.Generator().manual_seed(seed))
        assert bool((tall.abs().sum(0) > 1.02 * _timed(columns, seed).abs().sum(0)).all())


@pytest.mark.parametrize("variant", HIDDEN)
def test_what_hides_nothing_is_as_in_usual_timed_calls(native: Load, variant: str) -> None:
    """Else a kernel could tell by the rest of the data which calls hold something hidden."""
    program = native("""
        @task(x=normal("rows, cols"), b=normal("rows, cols", dtype="bfloat16"), u=uniform("rows, cols"),
              keep=booleans("rows, cols"), workloads=[{"rows": 64, "cols": 2048}])
        def f(x, b, u, keep):
            return (x + b + u) * keep
        """)
    workload = program.task.workloads[0]
    usual = program.arguments(workload, seed=5, device=CPU)
    made = program.arguments(workload, variant=variant, seed=5, device=CPU)
    assert torch.equal(made["keep"], usual["keep"])
    for name in ("x", "b", "u"):
        assert 0 < float((made[name] != usual[name]).double().mean()) < 1 / 500
    checked = [program.inputs(workload, variant=variant, seed=seed, device=CPU) for seed in range(12)]
    assert max(abs(float(each["x"].median())) for each in checked) > 0.1  # moved, too
    assert max(abs(float(each["keep"].double().mean()) - 0.5) for each in checked) > 0.02


@pytest.mark.parametrize("shape", [(8, 65536), (3, 5, 4096), (4096,), (512, 4)])
def test_one_row_decides_its_own_sum_and_all_others_are_as_usual(shape: tuple[int, ...]) -> None:
    own = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = set()
    for seed in range(64):
        made, usual = apply_variant("row patch", own, _PLAIN, torch.Generator().manual_seed(seed)), _timed(own, seed)
        sizes = (made.abs().sum(-1) / usual.abs().sum(-1)).flatten()
        (changed,) = (made != usual).view(-1, shape[-1]).any(-1).nonzero().flatten().tolist()
        assert float(sizes[changed]) > 1.02
        found.add(changed)
    assert len(found) > min(64, own.numel() // shape[-1]) / 2  # any row may be the one
    assert apply_variant("row patch", torch.tensor(3.0), Domain(), torch.Generator()).shape == ()


def test_masks_of_other_densities_are_tried_and_timed(native: Load) -> None:
    source = """
import torch

from warpsmith import booleans, normal, task


@task(x=normal("n"), keep=booleans("n"), workloads=[{"n": 65536}])
def masked(x, keep):
    return x * keep
"""
    program = native(source)
    (workload,) = program.task.workloads

    def share(variant: str) -> float:
        return float(program.inputs(workload, variant=variant, seed=3, device=CPU)["keep"].double().mean())

    assert abs(share("own") - 0.5) < 0.02
    assert share("sparse") < 0.1
    assert share("large") > 0.9
    timed = [program.arguments(workload, seed=s, device=CPU)["keep"].double().mean().item() for s in range(8)]
    assert max(timed) - min(timed) > 0.05
    assert 0.35 < min(timed) < max(timed) < 0.65
    assert program.structured(device=CPU) == {"keep"}
