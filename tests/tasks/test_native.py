from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.task import Precision, ScalarKind, Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

Load = Callable[..., Program]
CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


def test_a_declaration_becomes_tensors_axes_and_workloads(native: Load) -> None:
    task = native("""
        @task(x=normal("rows, cols"), workloads=[{"rows": 8, "cols": 4}, {"rows": 8, "cols": 6, "name": "wide"}])
        def softmax(x):
            "Rows."
            return torch.softmax(x, dim=-1)
        """).task
    assert [(t.name, t.dtype, t.dims, t.role) for t in task.tensors] == [
        ("x", "float32", ("rows", "cols"), "input"),
        ("out", "float32", ("rows", "cols"), "output"),
    ]
    assert task.workloads == (Workload("8x4", (("rows", 8), ("cols", 4))), Workload("wide", (("rows", 8), ("cols", 6))))
    assert (task.name, task.kind, task.description, task.fixed_axes) == ("softmax", "native", "Rows.", {"rows": 8})


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "relu", "cross_entropy", "argmax"])
def test_examples_run_on_a_small_workload(name: str) -> None:
    program = load_task(EXAMPLES / f"{name}.py")
    small = program.workload("small", dict.fromkeys(program.task.axes, 5))
    inputs = program.inputs(small, seed=1, device=CPU)
    outputs = program.run(inputs)
    for spec, output in zip(program.task.outputs, outputs, strict=True):
        assert tuple(output.shape) == spec.shape(small.sizes)
        assert str(output.dtype) == f"torch.{spec.dtype}"
    assert set(inputs) == {t.name for t in program.task.inputs}


def test_square_workloads_do_not_confuse_axes(native: Load) -> None:
    program = native("""
        @task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 4, "n": 4, "k": 4}])
        def product(a, b):
            return (a @ b).t()
        """)
    assert program.task.outputs[0].dims == ("n", "m")


def test_an_extent_that_is_no_axis_is_derived_per_workload(native: Load) -> None:
    program = native("""
        @task(x=normal("n, c"), y=normal("m, c"), workloads=[{"n": 4, "m": 6, "c": 2}, {"n": 10, "m": 5, "c": 2}])
        def stacked(x, y):
            both = torch.cat([x, y])
            return both, both.reshape(-1)
        """)
    first, second = program.task.outputs
    assert (first.name, first.dims, second.dims) == ("out0", ("out0_dim0", "c"), ("out1_dim0",))
    assert [w.sizes["out0_dim0"] for w in program.task.workloads] == [10, 15]
    other = program.workload("other", {"n": 1, "m": 2, "c": 7})
    assert (other.sizes["out0_dim0"], other.sizes["out1_dim0"]) == (3, 21)


def test_a_constant_extent_stays_a_number_even_if_an_axis_has_that_value(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 2}])
        def pair(x):
            return torch.stack([x.sum(), x.prod()])
        """)
    assert program.task.outputs[0].dims == (2,)


def test_a_function_that_needs_particular_sizes(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 64}, {"n": 128}])
        def heads(x):
            return x.view(8, x.shape[0] // 8).sum(0)
        """)
    assert [w.sizes["out_dim0"] for w in program.task.workloads] == [8, 16]


def test_outputs_may_be_named_nested_and_partly_none(native: Load) -> None:
    named = native("""
        @task(x=normal("n"), workloads=[{"n": 3}], returns="y, total")
        def f(x):
            return x * 2, x.sum()
        """).task
    assert [(t.name, t.dims) for t in named.outputs] == [("y", ("n",)), ("total", ())]
    nested = native("""
        @task(x=normal("n"), workloads=[{"n": 3}])
        def f(x):
            return {"logits": x, "extra": (None, x > 0)}, 4
        """).task
    assert [(t.name, t.dtype) for t in nested.outputs] == [("out0", "float32"), ("out1", "bool")]
    assert any("not checked" in note for note in nested.notes)


def test_every_distribution_draws_what_it_says(native: Load) -> None:
    program = native("""
        def lower(shape, generator, device):
            return torch.rand(shape, generator=generator, device=device).tril()

        @task(
            a=normal("n, n", mean=10, std=0.1), b=uniform("n", low=-2, high=-1), c=integers("n", low=1, high="n"),
            d=booleans("n", p=1.0), e=probabilities("n, 3"), f=custom("n, n", lower), g=scalar(3), h=normal(""),
            workloads=[{"n": 50}],
        )
        def everything(a, b, c, d, e, f, g, h, eps=1e-5, mode=None):
            return a + b + c + d + e.sum() + f + g + h + eps
        """)
    made = program.inputs(program.task.workloads[0], seed=3, device=CPU)
    assert 9 < float(made["a"].min()) < float(made["a"].max()) < 11
    assert -2 <= float(made["b"].min()) < float(made["b"].max()) <= -1
    assert made["c"].dtype is torch.int64
    assert {int(made["c"].min()), int(made["c"].max())} <= set(range(1, 50))
    assert bool(made["d"].all())
    assert torch.allclose(made["e"].sum(-1), torch.ones(50))
    assert torch.equal(made["f"], made["f"].tril())
    assert made["h"].shape == ()
    assert [(s.name, s.kind, s.value) for s in program.task.scalars] == [
        ("g", ScalarKind.INT, 3),
        ("eps", ScalarKind.FLOAT, 1e-5),
    ]
    assert program.run(made)[0].shape == (50, 50)


def test_inputs_follow_the_seed_and_tensors_are_independent(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), y=normal("n"), workloads=[{"n": 100}])
        def f(x, y):
            return x + y
        """)
    workload = program.task.workloads[0]
    first, same, other = (program.inputs(workload, seed=s, device=CPU) for s in (5, 5, 6))
    assert torch.equal(first["x"], same["x"])
    assert not torch.equal(first["x"], other["x"])
    assert not torch.equal(first["x"], first["y"])


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16"), ("fp64", "float64"), ("tf32", "float32")]
)
def test_the_element_type_follows_the_precision_class(native: Load, precision: str, dtype: str) -> None:
    text = """
        @task(x=normal("n"), y=normal("n", dtype="float32"), workloads=[{"n": 4}], precision="fp32")
        def f(x, y):
            return x * 2
        """
    program = native(text, Precision(precision))
    assert [t.dtype for t in program.task.tensors] == [dtype, "float32", dtype]
    assert program.task.digest != native(text).task.digest


def test_the_wide_reference_stays_wide_inside(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 64}])
        def f(x):
            scale = torch.full((1,), 3.0)
            return x.float() / scale + torch.zeros(64, dtype=torch.float32)
        """)
    inputs = program.inputs(program.task.workloads[0], seed=0, device=CPU)
    (exact,) = program.run(program.widen(inputs))
    assert exact.dtype is torch.float64
    assert torch.equal(exact, inputs["x"].double() / 3.0)
    assert program.run(inputs)[0].dtype is torch.float32


def test_a_reference_that_writes_to_an_input_is_refused(native: Load) -> None:
    in_place = """
        @task(x=normal("n"), workloads=[{"n": 8}])
        def f(x):
            x.mul_(2)
            return x
        """
    with pytest.raises(TaskError, match=r"task 'f' writes to its input x, .* begin it with x = x.clone\(\), or"):
        native(in_place)
    normalised = """
        @task(x=normal("n, c"), mean=normal("c"), var=uniform("c"), w=normal("c"), workloads=[{"n": 8, "c": 4}])
        def f(x, mean, var, w):
            return torch.nn.functional.batch_norm(x, mean, var, w, training=TRAINING)
        """
    with pytest.raises(TaskError, match="task 'f' writes to its input mean, var, and"):
        native(normalised.replace("TRAINING", "True"))
    native(normalised.replace("TRAINING", "False"))
    program = native(in_place.replace("x.mul_(2)", "x = x.clone(); x.mul_(2)"))
    inputs = program.inputs(program.task.workloads[0], seed=0, device=CPU)
    assert torch.equal(program.run(inputs)[0], 2 * inputs["x"])


def test_bind_reads_contents_at_call_time_and_can_wrap(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 8}])
        def f(x):
            return x[::2].t() + 1
        """)
    inputs = program.inputs(program.task.workloads[0], seed=0, device=CPU)
    calls: list[object] = []

    def wrap(function: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object) -> object:
            calls.append(args)
            return function(*args)

        return counted

    call = program.bind(inputs, wrap)
    inputs["x"].zero_()
    assert torch.equal(call()[0], torch.ones(4))
    assert len(calls) == 1


def test_random_numbers_inside_become_inputs(native: Load) -> None:
    program = native("""
        @task(x=normal("n"), workloads=[{"n": 8}, {"n": 16}])
        def noisy(x):
            return x + torch.randn_like(x) + torch.rand(x.shape[0])
        """)
    assert [(t.name, t.dims) for t in program.task.inputs] == [("x", ("n",)), ("drawn0", ("n",)), ("drawn1", ("n",))]
    inputs = program.inputs(program.task.workloads[1], seed=0, device=CPU)
    (result,) = program.run(inputs)
    assert torch.equal(result, inputs["x"] + inputs["drawn0"] + inputs["drawn1"])
    assert 0 <= float(inputs["drawn1"].min()) <= float(inputs["drawn1"].max()) < 1


def test_code_that_looks_at_values_is_traced_with_data(native: Load) -> None:
    program = native("""
        @task(x=uniform("n", low=1, high=2), workloads=[{"n": 8}])
        def f(x):
            return x / x.max().item()
        """)
    assert program.task.outputs[0].dims == ("n",)
    fake = program.fake_inputs(program.task.workloads[0])
    with fake.mode:
        assert program.run(fake.tensors)[0].shape == (8,)


def test_fake_inputs_cost_no_memory(native: Load) -> None:
    program = native("""
        @task(x=normal("n, n"), workloads=[{"n": 1 << 20}])
        def f(x):
            return torch.softmax(x, -1) @ x
        """)
    fake = program.fake_inputs(program.task.workloads[0])
    with fake.mode:
        assert program.run(fake.tensors)[0].shape == (1 << 20, 1 << 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('@task(x=normal("r"), workloads=[{"n": 2}])\ndef f(x): return x', "uses axis 'r'; the workloads give n"),
        ('@task(x=normal("n"))\ndef f(x): return x', "needs workloads"),
        ('@task(x=normal("n"), workloads=[{"n": 2}])\ndef f(x, y): return x', "does not declare its parameter 'y'"),
        ('@task(x=normal("n"), z=scalar(1), workloads=[{"n": 2}])\ndef f(x): return x', "declares 'z'"),
        ('@task(x=normal("n"), workload=[{"n": 2}])\ndef f(x): return x', "did you mean 'workloads'?"),
        (
            '@task(x=normal("n"), workloads=[{"n": 2}], precision="fp8")\ndef f(x): return x',
            "precision 'fp8' is unknown",
        ),
        ('@task(x=normal("n"), workloads=[{"n": -2}])\ndef f(x): return x', "axis 'n' is -2"),
        ('@task(x=normal("n"), workloads=[{"n": 2}, {"m": 2}])\ndef f(x): return x', "must give the same axes"),
        ('@task(x=normal("n"), workloads=[{"n": 2}, {"n": 2}])\ndef f(x): return x', "two workloads called '2'"),
        ('@task(x=normal("n"), workloads=[{"n": 2}])\ndef f(x): return x @ x[:1]', "function 'f' raised RuntimeError"),
        ('@task(x=normal("n"), workloads=[{"n": 2}])\ndef f(x): return 3', "no tensor output"),
        ('@task(x=normal("n"), workloads=[{"n": 99}])\ndef f(x): return (x > 0).nonzero()', "depends on values"),
        ('@task(x=normal("n"), workloads=[{"n": 2}])\ndef f(x): return F.dropout(x)', "NameError"),
        ('@task(x=normal("n"), workloads=[{"n": 2}], returns="a, b")\ndef f(x): return x', "names 2 outputs"),
        ('@task(x=normal("x"), workloads=[{"x": 2}])\ndef f(x): return x', "uses 'x' for two"),
        ('@task(x=normal("n, int"), workloads=[{"n": 2}])\ndef f(x): return x', "'int' cannot be used in C code"),
        ('@task(x=uniform("n", low=2, high=1), workloads=[{"n": 2}])\ndef f(x): return x', "low < high"),
        ('@task(x=normal("n", dtype="int8"), workloads=[{"n": 2}])\ndef f(x): return x', "does not suit"),
        (
            '@task(x=integers("n", low=2, high="n"), workloads=[{"n": 2}])\ndef f(x): return x',
            "no value between 2 and 2",
        ),
        ("@task\ndef f(x): return x", "@task needs its declarations"),
        ("@task(x=3.5j)\ndef f(x): return x", "use normal, uniform"),
        ("def f(x): return x", "has no function under @task"),
    ],
)
def test_a_mistake_is_one_sentence(native: Load, text: str, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        native(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_tasks_in_a_file_are_picked_by_name(native: Load) -> None:
    text = """
        @task(x=normal("n"), workloads=[{"n": 2}])
        def one(x):
            return x

        @task(x=normal("n"), workloads=[{"n": 2}], name="second")
        def two(x):
            return x + 1
        """
    with pytest.raises(TaskError, match="several tasks \\(one, second\\)"):
        native(text)
    with pytest.raises(TaskError, match="has no task 'three'; it has one, second"):
        native(text, pick="three")
    assert native(text, pick="second").task.name == "second"
    assert native(text, pick="second").task.digest != native(text, pick="one").task.digest


def test_a_custom_input_of_the_wrong_shape_is_the_tasks_fault(native: Load) -> None:
    program = native("""
        @task(x=custom("n", lambda shape, generator, device: torch.zeros(3)), workloads=[{"n": 2}])
        def f(x):
            return x
        """)
    with pytest.raises(TaskError, match=r"shape \[2\], not \[3\]"):
        program.inputs(program.task.workloads[0], seed=0, device=CPU)


def test_an_unknown_variant_is_a_usage_error(native: Load) -> None:
    program = native('@task(x=normal("n"), workloads=[{"n": 2}])\ndef f(x): return x')
    with pytest.raises(UsageError, match="unknown input variant 'huge'; known: own"):
        program.inputs(program.task.workloads[0], variant="huge", seed=0, device=CPU)


def test_a_task_whose_shapes_do_not_fit_is_told_in_one_sentence(native: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", logged.append)
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(handler)
    try:
        with pytest.raises(
            TaskError, match="function 'f' raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"
        ):
            native("""
                @task(x=normal("n, m"), y=normal("n, k"), workloads=[{"n": 8, "m": 4, "k": 6}])
                def f(x, y):
                    return x @ y
                """)
    finally:
        log.removeHandler(handler)
    assert logged == []
