from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cuda_front_end import compile_errors

from warpsmith.backends.c_contract import declaration_of
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.triton import TritonBackend
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import ArgumentKind, Contract
from warpsmith.model.task import (
    DTYPE_BYTES,
    Precision,
    ScalarKind,
    ScalarSpec,
    Task,
    TaskKind,
    TensorRole,
    TensorSpec,
    Workload,
)

GOLDEN = Path(__file__).with_name("golden")
INPUT, STATE, OUTPUT = TensorRole.INPUT, TensorRole.STATE, TensorRole.OUTPUT


def cpu_candidate(text: str) -> Candidate:
    return Candidate((SourceFile("candidate.cpp", text),), "cpu")


def cuda_candidate(text: str) -> Candidate:
    return Candidate((SourceFile("candidate.cu", text),), "cuda")


def task_of(*tensors: TensorSpec, scalars: tuple[ScalarSpec, ...] = (), axes: tuple[str, ...] = ()) -> Task:
    workload = Workload("only", tuple((axis, 8 + i) for i, axis in enumerate(axes)))
    source = "class Model: ...\n"
    return Task("by/hand", source, TaskKind.KERNELBENCH, tensors, scalars, (workload,), Precision.FP32, "digest")


def definition(contract: Contract, body: str) -> str:
    return declaration_of(contract).rstrip(";") + " {\n" + body + "\n  return 0;\n}\n"


def many_parameters(count: int) -> Task:
    state = tuple(
        TensorSpec(f"layer{i}_weight", "float32", (64, 3, 7, 7), STATE, f"layer{i}.weight") for i in range(count)
    )
    out = TensorSpec("out", "float32", (), OUTPUT)
    return task_of(TensorSpec("x", "float32", (16, 3), INPUT), *state, out)


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_text_of_softmax_is_as_reviewed(softmax: Task, name: str) -> None:
    """To accept a change: run with UPDATE_GOLDEN=1 and read the diff."""
    backend = CpuBackend() if name == "cpu" else CudaBackend()
    text = backend.contract(softmax).text
    golden = GOLDEN / f"softmax-{name}.md"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_arguments_come_as_inputs_state_outputs_scalars_axes(cpu: CpuBackend) -> None:
    task = task_of(
        TensorSpec("weight", "float32", ("n",), STATE),
        TensorSpec("x", "float32", ("n",), INPUT),
        TensorSpec("mask", "bool", ("n",), INPUT),
        TensorSpec("out", "int64", ("n",), OUTPUT),
        scalars=(ScalarSpec("eps", ScalarKind.FLOAT, 1e-5),),
        axes=("n",),
    )
    contract = cpu.contract(task)
    assert declaration_of(contract) == (
        'extern "C" int launch(const float* x, const bool* mask, const float* weight, int64_t* out, '
        "double eps, int64_t n, void* workspace, void* stream);"
    )
    assert [a.name for a in contract.size_arguments] == ["eps", "n"]
    assert "int64_t workspace_bytes(double eps, int64_t n);" in contract.header


def test_names_that_c_cannot_take_are_changed_and_still_compile(cpu: CpuBackend) -> None:
    task = task_of(
        TensorSpec("new", "float32", ("k",), INPUT),
        TensorSpec("k", "float32", ("k",), INPUT),
        TensorSpec("stream", "float32", ("k",), INPUT),
        TensorSpec("größe", "float32", ("k",), OUTPUT),
        axes=("k",),
    )
    contract = cpu.contract(task)
    assert [a.name for a in contract.arguments] == [
        *("new_", "k", "stream_", "gru00f6u00dfe".replace("u00", "u"), "k_size", "workspace", "stream")
    ]
    built = cpu.build(cpu_candidate(definition(contract, "")), contract, Target(DeviceKind.CPU))
    assert isinstance(built, Artifact), built


def test_constants_are_usable_at_compile_time_and_do_not_clash(cpu: CpuBackend) -> None:
    scalars = (
        ScalarSpec("eps", ScalarKind.FLOAT, 1e-5),
        ScalarSpec("limit", ScalarKind.FLOAT, float("-inf")),
        ScalarSpec("least", ScalarKind.INT, -(2**63)),
        ScalarSpec("causal", ScalarKind.BOOL, True),
    )
    task = task_of(
        TensorSpec("x", "float32", ("rows", 32), INPUT),
        TensorSpec("out", "float32", ("rows", 32), OUTPUT),
        scalars=scalars,
        axes=("rows",),
    )
    contract = cpu.contract(task)
    checks = """
#define ROWS 5
constexpr int eps = 3;
static_assert(task::rows == 8 && task::x_dim1 == 32 && task::x_numel == 256);
static_assert(task::eps == 1e-5 && task::limit < -1e308 && task::causal && task::least < 0);
"""
    built = cpu.build(cpu_candidate(checks + definition(contract, "")), contract, Target(DeviceKind.CPU))
    assert isinstance(built, Artifact), built
    wrong = checks.replace("x_numel == 256", "x_numel == 255")
    assert not isinstance(
        cpu.build(cpu_candidate(wrong + definition(contract, "")), contract, Target(DeviceKind.CPU)), Artifact
    )


def test_an_axis_that_varies_is_no_constant(softmax: Task, cpu: CpuBackend) -> None:
    header = cpu.contract(softmax).header
    assert "int64_t cols = 1024;" in header
    assert "int64_t rows =" not in header


def test_few_state_tensors_are_named_many_come_as_a_table(cpu: CpuBackend) -> None:
    named = cpu.contract(many_parameters(24))
    assert named.table == ()
    assert sum(a.kind is ArgumentKind.INPUT for a in named.arguments) == 25
    tabled = cpu.contract(many_parameters(200))
    assert [a.kind.value for a in tabled.arguments] == ["input", "table", "output", "workspace", "stream"]
    assert len(tabled.table) == 200
    assert tabled.table[7] == "layer7_weight"
    assert "STATE_LAYER7_WEIGHT = 7,  // float32 [64, 3, 7, 7] (layer7.weight)" in tabled.text


USES_TABLE = """
  static_assert(STATE_LAYER199_WEIGHT == 199);
  const float* weight = static_cast<const float*>(state[STATE_LAYER199_WEIGHT]);
  if (weight == nullptr) return 1;"""


def test_a_table_of_state_compiles_on_the_cpu(cpu: CpuBackend) -> None:
    contract = cpu.contract(many_parameters(200))
    built = cpu.build(cpu_candidate(definition(contract, USES_TABLE)), contract, Target(DeviceKind.CPU))
    assert isinstance(built, Artifact), built


@pytest.mark.nvcc
def test_a_table_of_state_compiles_for_cuda(cuda: CudaBackend, tmp_path: Path) -> None:
    contract = cuda.contract(many_parameters(200))
    assert "HOST memory" in contract.text
    assert not compile_errors(definition(contract, USES_TABLE), contract, tmp_path)


def every_type() -> Task:
    inputs = tuple(TensorSpec(f"in_{d}", d, ("n",), INPUT) for d in DTYPE_BYTES)
    outputs = tuple(TensorSpec(f"out_{d}", d, ("n",), OUTPUT) for d in DTYPE_BYTES)
    return task_of(*inputs, *outputs, axes=("n",))


def copies_every_type() -> str:
    sizes = "".join(f"  static_assert(sizeof(*in_{d}) == {size});\n" for d, size in DTYPE_BYTES.items())
    return sizes + "".join(f"  std::memcpy(out_{d}, in_{d}, n * sizeof(*in_{d}));\n" for d in DTYPE_BYTES)


def test_every_element_type_has_its_size_on_the_cpu(cpu: CpuBackend) -> None:
    contract = cpu.contract(every_type())
    built = cpu.build(cpu_candidate(definition(contract, copies_every_type())), contract, Target(DeviceKind.CPU))
    assert isinstance(built, Artifact), built
    assert built.warnings == ""


@pytest.mark.nvcc
def test_every_element_type_has_its_size_on_cuda(cuda: CudaBackend, tmp_path: Path) -> None:
    contract = cuda.contract(every_type())
    source = definition(contract, copies_every_type())
    assert not compile_errors(source, contract, tmp_path)
    assert "static assertion failed" in compile_errors(source.replace("== 8", "== 7"), contract, tmp_path)


def test_costly_headers_are_only_in_contracts_that_need_them() -> None:
    half = task_of(TensorSpec("x", "float16", (4,), INPUT), TensorSpec("out", "float16", (4,), OUTPUT))
    single = task_of(TensorSpec("x", "float32", (4,), INPUT), TensorSpec("out", "float32", (4,), OUTPUT))
    assert "#include <cuda_fp16.h>" in CudaBackend().contract(half).header
    assert "cuda_fp16" not in CudaBackend().contract(single).header


@pytest.mark.parametrize(
    ("precision", "phrase"),
    [
        (Precision.FP32, "TF32, fp16 and bf16 arithmetic alone are too coarse"),
        (Precision.TF32, "round their inputs to TF32"),
        (Precision.BF16, "Accumulate sums and products in float32"),
    ],
)
def test_text_says_what_the_precision_class_permits(softmax: Task, precision: Precision, phrase: str) -> None:
    assert phrase in CudaBackend().contract(replace(softmax, precision=precision)).text


def test_text_names_the_libraries_a_task_allows(softmax: Task) -> None:
    assert "Library kernels may not be called" in CudaBackend().contract(softmax).text
    allowed = CudaBackend().contract(replace(softmax, allow=("cublas",)))
    assert "Libraries you may call: cublas." in allowed.text


def test_an_axis_is_said_to_be_fixed_only_where_it_is() -> None:
    tensors = (TensorSpec("x", "float32", ("rows", "cols", "depth"), INPUT), TensorSpec("out", "float32", (), OUTPUT))
    workloads = tuple(Workload(f"w{n}", (("rows", n), ("cols", 64), ("depth", 8))) for n in (16, 32))
    elsewhere = (Workload("elsewhere", (("rows", 16), ("cols", 61), ("depth", 8))),)
    task = Task("t", "", TaskKind.NATIVE, tensors, (), workloads, Precision.FP32, "digest", held_out=elsewhere)
    for backend in (CpuBackend(), TritonBackend()):
        axes = {a.name: a.meaning for a in backend.contract(task).arguments if a.kind is ArgumentKind.AXIS}
        # Nobody may rely on cols: a winner is tried with others. Which ones is not said.
        assert axes == {
            "rows": "16, 32 here; others must work",
            "cols": "64 here; others must work",
            "depth": "always 8",
        }
        assert "on all of these sizes; other values of rows, cols must work as well:" in backend.contract(task).text


EVERY_KIND = """
def everything(x, w):
    x = torch.nn.functional.max_pool1d(torch.nn.functional.conv1d(x, w), 2)
    return torch.nn.functional.elu(torch.softmax(x @ x.mT, -1).topk(3).values.cumsum(-1)).mean()
"""


def test_the_contracts_name_every_header_of_the_device_library(softmax: Task) -> None:
    text = CudaBackend().contract(replace(softmax, source=EVERY_KIND)).text
    headers = sorted(path.name for path in (LIBRARY / "warpsmith").glob("*.cuh"))

    assert headers
    assert [name for name in headers if f"`#include <warpsmith/{name}>`" not in text] == []
    assert "warpsmith/" not in CpuBackend().contract(softmax).text


@pytest.mark.parametrize(
    ("body", "there", "missing"),
    [
        ("torch.softmax(x, -1)", "rows lagged whole packs", "matmul attention_heads scan pool convolution"),
        ("x.relu()", "packs elementwise", "rows expm1 matmul scan pool convolution channel_norm"),
        ("x @ x.T", "matmul small_product wgmma", "rows scan pool convolution"),
        ("torch.nn.functional.conv2d(x, w)", "convolution depthwise_any matmul", "rows scan pool"),
        ("torch.softmax(q @ k.mT, -1) @ v", "attention_heads matmul rows", "scan convolution"),
        ("torch.nn.LayerNorm(8)(x).cumsum(0)", "channel_norm rows scan", "matmul convolution"),
    ],
)
def test_a_contract_names_the_headers_for_tasks_like_its_own(
    softmax: Task, body: str, there: str, missing: str
) -> None:
    source = f"@task(x=normal('rows, cols', mean=0.5, std=2))\ndef operator(x):\n    return {body}\n"
    text = CudaBackend().contract(replace(softmax, source=source)).text

    assert [name for name in there.split() if f"<warpsmith/{name}.cuh>" not in text] == []
    assert [name for name in missing.split() if f"<warpsmith/{name}.cuh>" in text] == []


def test_an_axis_named_like_a_counter_is_pointed_out() -> None:
    product = task_of(
        TensorSpec("a", "float32", ("m", "k"), INPUT),
        TensorSpec("b", "float32", ("k", "n"), INPUT),
        TensorSpec("out", "float32", ("m", "n"), OUTPUT),
        axes=("m", "k", "n"),
    )
    told = [line for line in CpuBackend().contract(product).text.splitlines() if "give loops" in line]

    assert told == ["- `k` is a parameter: give loops another variable."]


def test_float32_products_from_parts_are_explained_where_there_are_products(softmax: Task) -> None:
    product = replace(softmax, source="def product(a, b):\n    return a @ b\n")
    told = [CudaBackend().contract(task).text for task in (product, softmax)]

    assert ["Tensor cores truncate when they accumulate" in text for text in told] == [True, False]
    assert "too coarse and fail" in told[0]
    dot = [TritonBackend().contract(task).text for task in (product, softmax)]
    assert ["`tl.dot` rounds float32 factors to TF32" in text for text in dot] == [True, False]
    coarse = replace(product, precision=Precision.TF32)
    assert "truncate" not in CudaBackend().contract(coarse).text + CpuBackend().contract(product).text


def test_a_task_of_one_size_asks_for_no_other() -> None:
    tensors = (TensorSpec("x", "float32", ("rows",), INPUT), TensorSpec("out", "float32", (), OUTPUT))
    workloads = (Workload("w", (("rows", 4),)),)
    task = Task("t", "", TaskKind.NATIVE, tensors, (), workloads, Precision.FP32, "digest")
    for backend in (CpuBackend(), TritonBackend()):
        text = backend.contract(task).text
        assert "Your program is checked and timed at this size only:\n- w: rows = 4" in text
        assert "others must work" not in text
    elsewhere = (Workload("elsewhere", (("rows", 5),)),)
    assert "others must work" in CpuBackend().contract(replace(task, held_out=elsewhere)).text
