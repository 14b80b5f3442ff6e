"""Tasks in parts: how chains of operations are divided, what is not claimed, and what the kernels compute."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cuda_front_end import compile_errors
from tests.kernel_templates.bundle import problem_of
from warpsmith.backends.source import backend_named
from warpsmith.backends.tunables import tunables
from warpsmith.kernel_templates.in_parts import MOST_OPERATIONS, in_parts, obstacle
from warpsmith.kernel_templates.part_sources import CannotCombine, WrittenPart, combined
from warpsmith.kernel_templates.part_tasks import Chain
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.brief import Problem
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.task import Operation
from warpsmith.proposers.templates import TemplateProposer
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

HERE = Path(__file__).parent
NATIVE = """import math
import torch
import torch.nn.functional as F
from warpsmith import booleans, integers, normal, task
@task({tensors}, workloads={workloads}, precision={precision!r})
def mine({names}):
{body}
"""
MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
        self.eval()

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def native(folder: Path, tensors: str, sizes: str, result: str, precision: str = "fp32") -> tuple[Program, Problem]:
    """A task whose function returns this; lines before the result are its body."""
    *lines, last = [line.strip() for line in result.split("; ")]
    body = "\n".join(f"    {line}" for line in (*lines, f"return {last}"))
    names = ", ".join(part.partition("=")[0] for part in tensors.split("; "))
    workloads = sizes if sizes.startswith("[") else f"[{sizes}]"
    path = folder / "mine.py"
    path.write_text(
        NATIVE.format(
            tensors=tensors.replace("; ", ", "), workloads=workloads, precision=precision, names=names, body=body
        )
    )
    program = load_task(path)
    return program, problem_of(program, "cuda")


def module(folder: Path, layers: str, inputs: Mapping[str, str], body: str) -> Problem:
    """A task that is a module in evaluation mode."""
    drawn = ", ".join(f"torch.rand({shape})" for shape in inputs.values())
    lines = layers.replace("; ", "\n        "), body.replace("; ", "\n        ")
    path = folder / "module.py"
    path.write_text(MODULE.format(layers=lines[0], names=", ".join(inputs), body=lines[1], inputs=drawn))
    return problem_of(load_task(path), "cuda")


IMAGE = {"x": "2, 16, 28, 28"}
CONVOLUTION = "self.a = nn.Conv2d(16, 32, 3, padding=1)"
TASKS = {
    "convolution, batch norm, ReLU": (
        f"{CONVOLUTION}; self.b = nn.BatchNorm2d(32)",
        IMAGE,
        "return F.relu(self.b(self.a(x)))",
        ("2-d convolution",),
    ),
    "convolution, ReLU in place, pooling": (
        f"{CONVOLUTION}; self.b = nn.ReLU(inplace=True)",
        IMAGE,
        "return F.max_pool2d(self.b(self.a(x)), 2)",
        ("2-d convolution", "max pooling, 2-d"),
    ),
    "residual block": (
        "self.a = nn.Conv2d(16, 16, 3, padding=1, bias=False); self.b = nn.BatchNorm2d(16); "
        "self.c = nn.Conv2d(16, 16, 3, padding=1, bias=False); self.d = nn.BatchNorm2d(16); "
        "self.r = nn.ReLU(inplace=True)",
        IMAGE,
        "y = self.d(self.c(self.r(self.b(self.a(x))))); y += x; return self.r(y)",
        ("2-d convolution",),
    ),
    "convolution, group norm, SiLU": (
        f"{CONVOLUTION}; self.b = nn.GroupNorm(8, 32)",
        IMAGE,
        "return F.silu(self.b(self.a(x)))",
        ("2-d convolution", "group_norm_silu"),
    ),
    "transposed convolution, tanh": (
        "self.a = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)",
        IMAGE,
        "return F.max_pool2d(torch.tanh(self.a(x)), 3)",
        ("transposed 2-d convolution", "max pooling, 2-d"),
    ),
    "linear, group norm, hardtanh": (
        "self.a = nn.Linear(64, 128); self.b = nn.GroupNorm(8, 128)",
        {"x": "32, 64"},
        "return F.hardtanh(self.b(self.a(x)))",
        ("product with bias", "group normalisation"),
    ),
    "linear, GELU, layer norm": (
        "self.a = nn.Linear(64, 128); self.b = nn.LayerNorm(128)",
        {"x": "4, 8, 64"},
        "return self.b(F.gelu(self.a(x)))",
        ("product with bias", "rows: mean and variance"),
    ),
    "layer norm, linear": (
        "self.a = nn.Linear(64, 128); self.b = nn.LayerNorm(64)",
        {"x": "4, 8, 64"},
        "return self.a(self.b(x))",
        ("rows: mean and variance", "product with bias"),
    ),
    "attention and a residual": (
        "pass",
        dict.fromkeys("xqkv", "2, 3, 64, 32"),
        "return x + F.scaled_dot_product_attention(q, k, v)",
        ("attention",),
    ),
    "softmax of a scaled product": (
        "pass",
        {"x": "5, 6, 8", "y": "5, 8, 9"},
        "return torch.softmax(x @ y * 0.3, -1)",
        ("batched product", "rows: softmax"),
    ),
    "product, log-sum-exp, activations": (
        "self.a = nn.Linear(64, 128)",
        {"x": "32, 64"},
        "y = torch.logsumexp(self.a(x), 1, keepdim=True); return F.gelu(F.leaky_relu(y, 0.01))",
        ("product with bias", "rows: softmax"),
    ),
    "running sums of a product": (
        "self.a = nn.Linear(64, 128, bias=False)",
        {"x": "32, 64"},
        "return torch.cumsum(self.a(x), 1)",
        ("product", "cumsum"),
    ),
    "transformer block": (
        "self.n = nn.LayerNorm(64); self.q = nn.Linear(64, 64); self.k = nn.Linear(64, 64); "
        "self.v = nn.Linear(64, 64); self.o = nn.Linear(64, 64); self.m = nn.LayerNorm(64); "
        "self.f = nn.Linear(64, 256); self.g = nn.Linear(256, 64)",
        {"x": "2, 40, 64"},
        "h = self.n(x); q, k, v = (each(h).view(2, 40, 2, 32).transpose(1, 2) for each in (self.q, self.k, self.v)); "
        "y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 40, 64); x = x + self.o(y); "
        "return x + self.g(F.gelu(self.f(self.m(x))))",
        ("rows: mean and variance", "product with bias", "attention"),
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_users_task_is_divided(name: str, tmp_path: Path) -> None:
    layers, inputs, body, forms = TASKS[name]
    problem = module(tmp_path, layers, inputs, body)
    assert problem.outline is not None
    if form_kernel(problem.task, problem.contract, problem.outline) is not None:
        return  # a form takes the whole of it
    found = in_parts(problem)

    assert found is not None
    assert found.form.startswith("in parts: ")
    for form in forms:
        assert form in found.form
        assert re.search(rf"^//   \d+\. .*{re.escape(form)}.*: ", found.source, re.MULTILINE)
    assert TemplateProposer.supports(problem)
    assert found.source.count('extern "C"') == 2
    defined = re.findall(r"^#define (\w+)", found.source, re.MULTILINE)
    assert all(tunable.name in defined for tunable in tunables(found.source))


def test_a_transformer_block_copies_nothing_into_another_order(tmp_path: Path) -> None:
    layers, inputs, body, _ = TASKS["transformer block"]
    found = in_parts(module(tmp_path, layers, inputs, body))

    assert found is not None
    assert "copy" not in found.form
    # The projections to queries, keys and values are one function, which is called three times.
    lines = [line for line in found.source.splitlines() if line.startswith("//   ") and "_weight, " in line]
    second = next(line for line in lines if "k_weight" in line)
    assert "(the function of part 2)" in second
    assert found.source.count("part_2::launch(") >= 3


def test_parameters_in_a_table_are_passed_from_it(tmp_path: Path) -> None:
    layers = "self.a = nn.ModuleList(nn.Linear(16, 16) for _ in range(13))"
    body = "for each in self.a: x = torch.softmax(each(x), 1); return x"
    problem = module(tmp_path, layers, {"x": "8, 16"}, body.replace("1); ", "1)\n        "))
    assert problem.contract.table
    found = in_parts(problem)

    assert found is not None
    assert "static_cast<const float*>(state[0])" in found.source


X, W = 'x=normal("rows, cols")', 'w=normal("width, cols")'
SIZES = '{"rows": 12, "cols": 20, "width": 24}'


@pytest.mark.parametrize(
    ("tensors", "result", "said"),
    [
        (f"{X}; {W}", "torch.sort(F.linear(x, w), 1)[0]", "neither a form nor a template is for aten.sort"),
        (
            f"{X}; {W}",
            "torch.searchsorted(torch.sort(x.sum(1))[0], F.linear(x, w)).float()",
            "neither a form nor a template is for aten.sort, aten.searchsorted",
        ),
        (f"{X}; {W}", "y = F.linear(x, w); y[:, 0] = 1.0; torch.softmax(y, 1)", "may change a tensor"),
        (f"{X}; {W}", "y = F.linear(x, w); z = y.view(-1); y.relu_(); z.view(y.shape).softmax(1)", "may change"),
    ],
)  # fmt: skip
def test_what_is_not_claimed_is_said(tensors: str, result: str, said: str, tmp_path: Path) -> None:
    _, problem = native(tmp_path, tensors, SIZES, result)

    assert in_parts(problem) is None
    assert said in obstacle(problem)


def test_a_relu_in_place_whose_input_is_read_again_is_not_claimed(tmp_path: Path) -> None:
    _, problem = native(tmp_path, f"{X}; {W}", SIZES, "torch.softmax(F.relu(F.linear(x, w)), 1)")
    assert problem.outline is not None
    # As if ReLU had written y, of which a view was taken before.
    nodes = tuple(replace(node, op=node.op.replace("relu.", "relu_.")) for node in problem.outline.nodes)
    assert in_parts(replace(problem, outline=replace(problem.outline, nodes=nodes))) is not None
    made = next(node.results[0] for node in nodes if node.op == "aten.mm.default")
    view = Operation("aten.view.default", f'[{{"$": "{made.name}"}}, [240]]', "{}", (replace(made, name="%99"),))
    shared = replace(problem, outline=replace(problem.outline, nodes=(*nodes[:2], view, *nodes[2:])))

    assert in_parts(shared) is None


def test_a_chain_with_extents_that_are_not_known_is_not_claimed(tmp_path: Path) -> None:
    _, problem = native(tmp_path, f"{X}; {W}", SIZES, "torch.softmax(F.linear(x, w), 1)")
    assert in_parts(problem) is not None
    assert problem.outline is not None
    nodes = [
        replace(node, results=tuple(replace(each, dims=("rows", "?")) for each in node.results))
        if "mm" in node.op
        else node
        for node in problem.outline.nodes
    ]

    assert in_parts(replace(problem, outline=replace(problem.outline, nodes=tuple(nodes)))) is None


@pytest.mark.parametrize(
    ("tensors", "result"),
    [
        (X, "torch.softmax(F.gelu(x), 1)"),  # one form
        (X, "F.gelu(x) * 2.0 + x.tanh()"),  # one template
        (X, "x"),
        (f"{X}; {W}", "F.linear(x, w)"),
    ],
)
def test_one_kernel_is_not_divided(tensors: str, result: str, tmp_path: Path) -> None:
    assert in_parts(native(tmp_path, tensors, SIZES, result)[1]) is None


def test_on_other_devices_and_in_other_precision_classes_templates_write_the_parts(tmp_path: Path) -> None:
    _, problem = native(tmp_path, f"{X}; {W}", SIZES, "torch.softmax(F.linear(x, w), 1)")
    halves = 'x=normal("rows, cols", dtype="float16"); w=normal("width, cols", dtype="float16")'
    _, half = native(tmp_path, halves, SIZES, "torch.softmax(F.linear(x, w), 1)", "fp16")

    ours, old, small = (in_parts(each) for each in (problem, replace(problem, arch="sm_80"), half))

    assert ours
    assert "<warpsmith/" in ours.source
    for found in (old, small):
        assert found
        assert "<warpsmith/" not in found.source


def test_long_chains_are_divided_in_time_and_longer_ones_are_refused(tmp_path: Path) -> None:
    long = "self.a(x)"
    for _ in range(7):
        long = f"F.gelu(torch.tanh({long}) * 0.5 + 1.0)"
    problem = module(tmp_path, CONVOLUTION, IMAGE, f"return F.max_pool2d({long}, 2)")
    assert problem.outline is not None
    assert len(problem.outline.nodes) == 30
    began = time.process_time()
    assert in_parts(problem) is not None
    assert time.process_time() - began < 6.0  # about one second on a processor of its own

    many = "; ".join(["y = F.linear(x, w)", *["y = y.tanh()"] * MOST_OPERATIONS, "torch.softmax(y, 1)"])
    _, problem = native(tmp_path, f"{X}; {W}", SIZES, many)
    assert in_parts(problem) is None
    assert f"only chains of at most {MOST_OPERATIONS} are divided" in obstacle(problem)


# --- one source from several ---


def chain_of(folder: Path) -> tuple[Chain, list[WrittenPart]]:
    """Two parts: a product, and the rows of its result. Their sources are replaced by tests."""
    _, problem = native(folder, f"{X}; {W}", SIZES, "torch.softmax(F.linear(x, w), 1)")
    assert problem.outline is not None
    chain = Chain(problem, problem.outline)
    parts = [chain.part(0, 2), chain.part(2, 3)]
    assert parts[0] is not None
    assert parts[1] is not None
    return chain, [WrittenPart(part, "words", "") for part in parts if part is not None]


ENTRY = 'extern "C" int launch() { return THREADS; }\n'


def test_macros_of_the_same_name_become_macros_of_their_parts(tmp_path: Path) -> None:
    chain, parts = chain_of(tmp_path)
    sources = [f"// tune: THREADS = {n}, 64\n#ifndef THREADS\n#define THREADS {n}\n#endif\n{ENTRY}" for n in (1, 2)]

    found = combined(chain, [replace(part, source=source) for part, source in zip(parts, sources, strict=True)])

    assert [(each.name, each.values) for each in tunables(found)] == [
        ("THREADS_1", ("1", "64")),
        ("THREADS_2", ("2", "64")),
    ]
    assert re.findall(r"^#(?:define THREADS |undef ).*", found, re.MULTILINE) == [
        "#define THREADS THREADS_1",
        "#undef THREADS",
        "#define THREADS THREADS_2",
        "#undef THREADS",
    ]


COLUMNS = "#ifndef TUNE_STAGES\n#define TUNE_STAGES {}\n#endif\n#include <warpsmith/columns.cuh>\n"


@pytest.mark.parametrize(("one", "other", "agree"), [(12, 12, True), (8, 8, True), (12, 8, False)])
def test_parts_with_the_same_header_must_agree_on_what_it_reads(
    one: int, other: int, agree: bool, tmp_path: Path
) -> None:
    chain, parts = chain_of(tmp_path)
    given = [replace(p, source=COLUMNS.format(n) + ENTRY) for p, n in zip(parts, (one, other), strict=True)]

    if not agree:
        with pytest.raises(CannotCombine):
            combined(chain, given)
        return
    assert combined(chain, given).count("#include <warpsmith/columns.cuh>") == 1


def test_headers_with_different_defaults_for_a_macro_do_not_disturb_each_other(tmp_path: Path) -> None:
    chain, parts = chain_of(tmp_path)
    sources = [f"#include <warpsmith/{name}.cuh>\n{ENTRY}" for name in ("elementwise", "columns")]

    found = combined(chain, [replace(p, source=s) for p, s in zip(parts, sources, strict=True)])

    assert found.index("#undef TUNE_THREADS") < found.index("#include <warpsmith/columns.cuh>")


def test_what_cannot_stand_in_a_namespace_is_refused(tmp_path: Path) -> None:
    chain, parts = chain_of(tmp_path)
    odd = 'namespace warpsmith { struct Mine {}; }\nextern "C" int launch() { return 0; }\n'

    with pytest.raises(CannotCombine):
        combined(chain, [replace(part, source=odd) for part in parts])


# --- the compiler ---


def compiled(problem: Problem) -> None:
    found = in_parts(problem)
    assert found is not None
    candidate = Candidate((SourceFile("kernel.cu", found.source),), "cuda")
    made = backend_named("cuda").build(candidate, problem.contract, Target(DeviceKind.CUDA, "sm_90a"))
    assert isinstance(made, Artifact), made.reason


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name",
    ["convolution, ReLU in place, pooling", pytest.param("attention and a residual", marks=pytest.mark.slow)],
)
def test_the_source_compiles(name: str, tmp_path: Path) -> None:
    layers, inputs, body, _ = TASKS[name]
    problem = module(tmp_path, layers, inputs, body)
    found = in_parts(problem)
    assert found is not None
    assert not compile_errors(found.source, problem.contract, tmp_path)


@pytest.mark.nvcc
@pytest.mark.slow  # up to a minute each
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "linear, group norm, hardtanh",
        "transformer block",
        "softmax of a scaled product",
        "residual block",
        "running sums of a product",
    ],
)
def test_sources_with_large_headers_compile(name: str, tmp_path: Path) -> None:
    layers, inputs, body, _ = TASKS[name]
    compiled(module(tmp_path, layers, inputs, body))
