from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.task import Precision, TensorRole, Workload
from warpsmith.tasks.program import Program

Load = Callable[..., Program]
CPU = torch.device("cpu")
DEFAULT = Workload("default")


def check_runs(program: Program) -> tuple[dict[str, torch.Tensor], tuple[torch.Tensor, ...]]:
    """Inputs and outputs are exactly what the task says, and running leaves the inputs alone."""
    inputs = program.inputs(DEFAULT, seed=1, device=CPU)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    outputs = program.run(inputs)
    for spec, tensor in (
        *((spec, inputs[spec.name]) for spec in program.task.inputs),
        *zip(program.task.outputs, outputs, strict=True),
    ):
        assert (tuple(tensor.shape), str(tensor.dtype)) == (spec.dims, f"torch.{spec.dtype}"), spec
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
    for name, tensor in inputs.items():
        assert torch.equal(tensor, before[name]), name
    again = program.bind(inputs)
    for first, second, third in zip(outputs, again(), again(), strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first, third)
    return inputs, outputs


def test_parameters_buffers_and_plain_tensors_become_state(kernelbench: Load) -> None:
    program = kernelbench("""
        class Scale:
            def __init__(self):
                self.factor = torch.full((1,), 2.0)

        class Model(nn.Module):
            "A model."
            def __init__(self, n):
                super(Model, self).__init__()
                self.fc = nn.Linear(n, n)
                self.tied = self.fc
                self.register_buffer("offset", torch.ones(n))
                self.h0 = torch.randn(n)
                self.several = (torch.zeros(n), [torch.ones(n)])
                self.scale = Scale()
                self.unregistered = [nn.Linear(n, n, bias=False)]
            def forward(self, x):
                y = self.fc(x) + self.tied(x) + self.offset + self.h0 + self.several[0] + self.several[1][0]
                return self.unregistered[0](y) * self.scale.factor

        def get_inputs():
            return [torch.rand(3, 4)]

        def get_init_inputs():
            return [4]
        """)
    state = {t.name: t.origin for t in program.task.inputs if t.role is TensorRole.STATE}
    assert state == {
        "offset": "",
        "h0": "",
        "several_0": "several.0",
        "several_1_0": "several.1.0",
        "scale_factor": "scale.factor",
        "unregistered_0_weight": "unregistered.0.weight",
        "fc_weight": "fc.weight",
        "fc_bias": "fc.bias",
    }
    inputs, (output,) = check_runs(program)
    linear = inputs["x"] @ inputs["fc_weight"].t() + inputs["fc_bias"]
    expected = (linear * 2 + 1 + inputs["h0"] + 1) @ inputs["unregistered_0_weight"].t() * 2
    assert torch.allclose(output, expected, atol=1e-5)
    assert program.task.name == "7_Problem"
    assert program.task.description == "A model."


def test_state_is_read_from_the_inputs_not_from_the_module(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(4))
            def forward(self, x):
                return x * self.w

        def get_inputs():
            return [torch.ones(4)]

        def get_init_inputs():
            return []
        """)
    one, two = (program.inputs(DEFAULT, seed=s, device=CPU) for s in (1, 2))
    assert not torch.equal(one["w"], two["w"])
    first, second = program.bind(one), program.bind(two)
    assert torch.equal(first()[0], one["w"])
    assert torch.equal(second()[0], two["w"])
    assert torch.equal(first()[0], one["w"])
    one["w"].fill_(7)
    assert torch.equal(first()[0], torch.full((4,), 7.0))
    assert torch.equal(
        program.inputs(DEFAULT, seed=1, device=CPU)["w"], program.inputs(DEFAULT, seed=1, device=CPU)["w"]
    )
    assert not torch.equal(program.inputs(DEFAULT, seed=1, device=CPU)["w"], one["w"])


def test_numbers_none_and_nested_inputs(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def forward(self, x, mask, k, alpha, flag, pair, mode):
                assert mask is None and mode == "sum" and flag is True
                return x * k * alpha + pair[0] + pair[1]["b"]

        def get_inputs():
            return [torch.rand(3), None, 2, 0.5, True, (torch.rand(3), {"b": torch.rand(3)}), "sum"]

        def get_init_inputs():
            return []
        """)
    assert [(s.name, s.kind.value, s.value) for s in program.task.scalars] == [
        ("k", "int64_t", 2),
        ("alpha", "double", 0.5),
        ("flag", "bool", True),
    ]
    assert [t.name for t in program.task.inputs] == ["x", "pair_0", "pair_1_b"]
    inputs, (output,) = check_runs(program)
    assert torch.allclose(output, inputs["x"] + inputs["pair_0"] + inputs["pair_1_b"])


@pytest.mark.parametrize("init", ["[3, 4]", "{'a': 3, 'b': 4}", "[[3], {'b': 4}]"])
def test_forms_of_init_inputs(kernelbench: Load, init: str) -> None:
    program = kernelbench(f"""
        class Model(nn.Module):
            def __init__(self, a, b):
                super().__init__()
                self.fc = nn.Linear(a, b)
            def forward(self, x):
                return self.fc(x)

        def get_inputs():
            return [torch.rand(2, 3)]

        def get_init_inputs():
            return {init}
        """)
    assert program.task.outputs[0].dims == (2, 4)


def test_several_outputs_integers_and_scalars(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.pool = nn.MaxPool1d(2, return_indices=True)
            @torch.no_grad()
            def forward(self, x, target):
                y, index = self.pool(x)
                return {"y": y, "more": [index, None, x > 0.5], "loss": F.cross_entropy(x[:, 0], target)}

        def get_inputs():
            return [torch.rand(4, 2, 8), torch.randint(0, 8, (4,))]

        def get_init_inputs():
            return []
        """)
    assert [(t.name, t.dtype, t.dims) for t in program.task.outputs] == [
        ("y", "float32", (4, 2, 4)),
        ("more_0", "int64", (4, 2, 4)),
        ("more_2", "bool", (4, 2, 8)),
        ("loss", "float32", ()),
    ]
    check_runs(program)


def test_random_numbers_drawn_in_forward_are_passed_in(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True)
            def forward(self, x):
                h0 = torch.randn(4, x.size(0), 5)
                c0 = torch.randn(4, x.size(0), 5, device=x.device)
                out, (h, c) = self.lstm(x, (h0, c0))
                noise = torch.empty(2).uniform_(3, 4)
                return out, h, c, noise

        def get_inputs():
            return [torch.rand(2, 6, 3)]

        def get_init_inputs():
            return []
        """)
    assert [(t.name, t.dims) for t in program.task.inputs][:4] == [
        ("x", (2, 6, 3)),
        ("drawn0", (4, 2, 5)),
        ("drawn1", (4, 2, 5)),
        ("drawn2", (2,)),
    ]
    assert any("drawn0, drawn1, drawn2" in note for note in program.task.notes)
    inputs, outputs = check_runs(program)
    assert torch.equal(outputs[3], inputs["drawn2"])
    assert float(inputs["drawn2"].min()) >= 3
    (exact, *_) = program.run(program.widen(inputs))
    assert exact.dtype is torch.float64
    assert torch.allclose(exact.float(), outputs[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("layer", ["nn.GRU(3, 4, 2)", "nn.RNN(3, 4)", "nn.LSTM(3, 5, 2, proj_size=4)"])
def test_rnn_layers(kernelbench: Load, layer: str) -> None:
    program = kernelbench(f"""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = {layer}
            def forward(self, x):
                return self.rnn(x)

        def get_inputs():
            return [torch.rand(7, 2, 3)]

        def get_init_inputs():
            return []
        """)
    check_runs(program)


def test_operations_of_an_lstm_are_counted_as_if_stepped_through(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 5, 2, bidirectional=True)
            def forward(self, x):
                return self.rnn(x)[0]

        def get_inputs():
            return [torch.rand(7, 2, 3)]

        def get_init_inputs():
            return []
        """)
    fake = program.fake_inputs(DEFAULT)
    with FlopCounterMode(display=False) as outside, fake.mode:
        program.run(fake.tensors)
    with fake.mode, FlopCounterMode(display=False) as inside:
        program.run(fake.tensors)
    per_step = 2 * 2 * (3 * 20 + 5 * 20) + 2 * 2 * (10 * 20 + 5 * 20)  # two directions, two layers
    assert outside.get_total_flops() == inside.get_total_flops() == 2 * 7 * per_step


def test_dropout_is_off_and_batch_statistics_stay_on(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.drop = nn.Dropout(0.5)
                self.norm = nn.BatchNorm1d(4)
            def forward(self, x):
                return self.norm(F.dropout(self.drop(x), 0.3, training=self.training))

        def get_inputs():
            return [torch.rand(16, 4) + 5]

        def get_init_inputs():
            return []
        """)
    assert any("Dropout" in note for note in program.task.notes)
    _, (output,) = check_runs(program)
    assert torch.allclose(output.mean(0), torch.zeros(4), atol=1e-4)


def test_nothing_leaks_from_one_run_to_the_next(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(3))
                self.register_buffer("mean", torch.zeros(3))
                self.hidden = torch.zeros(3)
                self.calls = 0
                self.act = nn.ReLU(inplace=True)
            def forward(self, x):
                self.calls += 1
                self.total += 1
                self.hidden = self.hidden + x[0]
                y = F.batch_norm(x, self.mean, torch.ones(3), training=True)
                return self.act(x) + self.total + self.hidden + self.calls + y + self.mean

        def get_inputs():
            return [torch.randn(5, 3)]

        def get_init_inputs():
            return []
        """)
    check_runs(program)
    assert any("writes to x" in note for note in program.task.notes)


def test_a_reference_that_stays_random_is_refused(kernelbench: Load) -> None:
    with pytest.raises(TaskError, match="random"):
        kernelbench("""
            class Model(nn.Module):
                def forward(self, x):
                    return F.gumbel_softmax(x)

            def get_inputs():
                return [torch.rand(4, 4)]
            """)


def test_cuda_in_the_file_means_the_device_of_the_run(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def forward(self, x):
                return x + torch.ones(4, device="cuda", dtype=x.dtype) + torch.ones(4, dtype=x.dtype).cuda()

        def get_inputs():
            return [torch.rand(4, device="cuda", dtype=torch.float16)]

        def get_init_inputs():
            return []
        """)
    assert program.task.precision is Precision.FP16
    check_runs(program)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [(None, "float32"), (Precision.TF32, "float32"), (Precision.FP16, "float16"), (Precision.BF16, "bfloat16")],
)
def test_precision_override_casts_floating_tensors(kernelbench: Load, precision: Precision | None, dtype: str) -> None:
    program = kernelbench(
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 4)
            def forward(self, x, index):
                return self.fc(x)[index] + torch.randn(2, 4)

        def get_inputs():
            return [torch.rand(3, 4), torch.tensor([0, 2])]

        def get_init_inputs():
            return []
        """,
        precision,
    )
    assert program.task.precision is (precision or Precision.FP32)
    assert {t.name: t.dtype for t in program.task.tensors} == {
        **dict.fromkeys(("x", "drawn0", "fc_weight", "fc_bias", "out"), dtype),
        "index": "int64",
    }
    check_runs(program)


def test_layouts_and_odd_constructors(kernelbench: Load) -> None:
    program = kernelbench("""
        SIZE = 6
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                rates = [x.item() for x in torch.linspace(0, 0.5, 3)]
                self.rates = rates
                self.w = nn.Parameter(torch.Tensor(SIZE, SIZE).fill_(rates[-1]))
                mask = torch.zeros(SIZE, SIZE)
                mask[0, 1:] = -100.0
                self.register_buffer("mask", mask)
                assert bool((mask == 0).any())
            def forward(self, x, low):
                return ((x + self.mask) @ self.w).t()

        def get_inputs():
            return [torch.rand(SIZE, SIZE).t(), torch.tril(torch.rand(SIZE, SIZE))]

        def get_init_inputs():
            return []
        """)
    assert any("x came in another memory layout" in note for note in program.task.notes)
    inputs, (output,) = check_runs(program)
    assert torch.allclose(output, ((inputs["x"] + inputs["mask"]) @ inputs["w"]).t(), atol=1e-4)
    assert float(inputs["w"][0, 0]) == 0.5


def test_code_that_reads_values_falls_back_to_real_tensors(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.rand(3))
            def forward(self, x):
                return x * float(self.w.sum()) if x.sum().item() > -1 else x

        def get_inputs():
            return [torch.rand(3)]

        def get_init_inputs():
            return []
        """)
    inputs, (output,) = check_runs(program)
    assert torch.allclose(output, inputs["x"] * inputs["w"].sum())


def test_a_huge_problem_is_described_without_its_memory(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(1 << 17, 1 << 17)
                self.norm = nn.LayerNorm(1 << 17)
            def forward(self, x):
                return torch.softmax(F.gelu(self.norm(self.fc(x))), dim=-1)

        def get_inputs():
            return [torch.rand(1 << 17, 1 << 17)]

        def get_init_inputs():
            return []
        """)
    assert program.task.outputs[0].nbytes({}) == 1 << 36


def test_typical_networks(kernelbench: Load) -> None:
    program = kernelbench("""
        class Block(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(inplace=True),
                                          nn.GroupNorm(2, c), nn.Hardswish())
            def forward(self, x):
                return torch.cat([x, self.body(x)], 1)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block(4), Block(8)])
                self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
                self.attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
                self.pool = nn.AdaptiveAvgPool2d((1, 1))
                self.pos = nn.Parameter(torch.zeros(1, 64, 8))
            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                x = F.max_pool2d(self.up(x), 2)
                n, c, h, w = x.shape
                tokens = self.attention(x.flatten(2).transpose(1, 2) + self.pos)
                x = tokens.transpose(1, 2).contiguous().view(n, c, h, w)
                return torch.flatten(self.pool(x), 1), torch.logsumexp(x, dim=(2, 3)), x.cumsum(1)

        def get_inputs():
            return [torch.rand(2, 4, 8, 8)]

        def get_init_inputs():
            return []
        """)
    inputs, outputs = check_runs(program)
    exact = program.run(program.widen(inputs))
    for got, true in zip(outputs, exact, strict=True):
        assert true.dtype is torch.float64
        assert torch.allclose(got.double(), true, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Model(nn.Module): pass", "no get_inputs"),
        ("class ModelNew(nn.Module): pass", "candidate"),
        ("class Model: pass\ndef get_inputs(): return []", "not a torch.nn.Module"),
        ("class Model(nn.Module):\n  def forward(self): return None\ndef get_inputs(): return []", "no tensor output"),
        (
            "class Model(nn.Module):\n  def forward(self, x): return x.foo\ndef get_inputs(): return [torch.ones(2)]",
            "foo",
        ),
        (
            "class Model(nn.Module):\n  def forward(self, x): return x\ndef get_inputs(): return 1 / 0",
            "ZeroDivisionError",
        ),
    ],
)
def test_a_mistake_is_one_sentence(kernelbench: Load, text: str, message: str) -> None:
    with pytest.raises(TaskError) as caught:
        kernelbench(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sizes_of_a_kernelbench_file_are_fixed(kernelbench: Load) -> None:
    program = kernelbench("""
        class Model(nn.Module):
            def forward(self, x):
                return torch.relu(x)

        def get_inputs():
            return [torch.rand(2)]
        """)
    with pytest.raises(UsageError, match="cannot be changed"):
        program.workload("small", {"n": 1})
    assert program.workload("again", {}) == Workload("again")
