"""The ways of a convolution: which are offered, that they compile, and that the library computes what they say."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.collection import convolution_texts, test_held_convolution
from tests.collection.test_cpu_forms import HEAD, convolution_tasks
from tests.collection.test_forms import _drawn, _line, described
from tests.cuda_front_end import compile_errors
from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.source import backend_named
from warpsmith.backends.tunables import tunables
from warpsmith.kernels.convolution_ways import consistent_columns, has_general_plan
from warpsmith.kernels.form_convolution import Convolution
from warpsmith.kernels.form_ways import FormWay
from warpsmith.kernels.forms import form_kernel, form_ways
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.model.strategy import Plan
from warpsmith.model.task import Task
from warpsmith.tasks.load import load_task

CASES = {  # axes and channels of the input, filters, the operation, sizes, the ways, the form's own first
    "forward": (
        "64, h, w",
        "64, 64, 3, 3",
        "F.conv2d(x, weight, padding=1)",
        (32, 56, 56),
        "shifted-taps held-sums implicit-gemm grid-stride",
    ),
    "few images": (
        "64, h, w",
        "64, 64, 3, 3",
        "F.conv2d(x, weight, padding=1)",
        (1, 56, 56),
        "implicit-gemm shifted-taps held-sums grid-stride",
    ),
    "pointwise": (
        "64, h, w",
        "128, 64, 1, 1",
        "F.conv2d(x, weight)",
        (16, 512, 512),
        "one-pass-convolution implicit-gemm held-sums shifted-taps grid-stride",
    ),
    "strided stem": (
        "3, h, w",
        "96, 3, 11, 11",
        "F.conv2d(x, weight, bias, stride=4, padding=2)",
        (64, 224, 224),
        "strides-as-channels shifted-taps held-sums implicit-gemm grid-stride",
    ),
    "dilated, odd sizes": (
        "33, h, w",
        "41, 33, 5, 3",
        "F.conv2d(x, weight, dilation=(2, 3))",
        (3, 61, 47),
        "implicit-gemm shifted-taps held-sums grid-stride",
    ),
    "groups": (
        "128, h, w",
        "128, 4, 3, 3",
        "F.conv2d(x, weight, padding=1, groups=32)",
        (32, 56, 56),
        "shifted-taps implicit-gemm grid-stride",
    ),
    "depthwise": (
        "64, h, w",
        "64, 1, 3, 3",
        "F.conv2d(x, weight, padding=1, groups=64)",
        (8, 112, 112),
        "direct-convolution halo-tiles terms-in-registers implicit-gemm shifted-taps grid-stride",
    ),
    "depthwise with a stride": (
        "64, h, w",
        "64, 1, 3, 3",
        "F.conv2d(x, weight, stride=2, padding=1, groups=64)",
        (8, 112, 112),
        "halo-tiles terms-in-registers implicit-gemm grid-stride shifted-taps",
    ),
    "one axis": (
        "32, n",
        "64, 32, 5",
        "F.conv1d(x, weight)",
        (16, 65536),
        "one-pass-convolution held-sums shifted-taps implicit-gemm grid-stride",
    ),
    "three axes, few channels": (
        "3, d, h, w",
        "64, 3, 3, 3, 1",
        "F.conv3d(x, weight)",
        (4, 64, 64, 16),
        "taps-as-channels implicit-gemm terms-in-registers held-sums shifted-taps grid-stride",
    ),
    "transposed": (
        "64, h, w",
        "64, 32, 4, 4",
        "F.conv_transpose2d(x, weight, stride=2, padding=1)",
        (16, 64, 64),
        "shifted-taps implicit-gemm held-sums grid-stride",
    ),
    "transposed, three axes": (
        "32, d, h, w",
        "32, 16, 3, 3, 3",
        "F.conv_transpose3d(x, weight, bias, stride=2, padding=1, output_padding=1)",
        (2, 9, 17, 11),
        "implicit-gemm held-sums shifted-taps grid-stride",
    ),
    "transposed, wide stride": (
        "8, n",
        "8, 4, 3",
        "F.conv_transpose1d(x, weight, stride=9)",
        (64, 4001),
        "implicit-gemm grid-stride",
    ),
    "few terms": (
        "1, h, w",
        "64, 1, 3, 3",
        "F.conv2d(x, weight)",
        (4, 572, 572),
        "terms-in-registers implicit-gemm held-sums shifted-taps grid-stride",
    ),
    "depthwise, three axes": (
        "16, d, h, w",
        "16, 1, 3, 3, 3",
        "F.conv3d(x, weight, groups=16)",
        (1, 9, 20, 20),
        "terms-in-registers implicit-gemm grid-stride shifted-taps",
    ),
}


def case_of(name: str, folder: Path) -> tuple[Task, Contract, Any]:
    extents, filters, result, sizes, _ = CASES[name]
    sides = [int(part) for part in filters.split(", ")]
    tensors = f'x=normal("b, {extents}"); weight=normal("{filters}")'
    tensors += f'; bias=normal("{sides["transpose" in result]}")' if "bias" in result else ""
    axes = ["b", *(part for part in extents.split(", ") if part.isalpha())]
    return described(folder, tensors, str(dict(zip(axes, sizes, strict=True))), result)


def test_the_form_writes_the_texts_that_were_recorded() -> None:
    recorded = json.loads(convolution_texts.FILE.read_text(encoding="utf-8"))
    found = convolution_texts.digests()

    changed = [name for name, digest in recorded.items() if found.get(name, digest) != digest]
    assert changed == [], "a changed text is a kernel that nobody has verified"
    assert len(found.keys() & recorded.keys()) >= 70  # tasks of the sweep may change, those of the suites may not


@pytest.mark.parametrize("name", CASES)
def test_all_that_the_library_has_for_a_convolution_is_offered(name: str, tmp_path: Path) -> None:
    described_case = case_of(name, tmp_path)
    ways = form_ways(*described_case)
    written = form_kernel(*described_case)

    assert " ".join(way.name for way in ways[:-1]) == CASES[name][-1]
    assert ways[-1].name == ""  # the plain kernel
    assert written is not None
    assert ways[0].source() == written.source
    times = [way.microseconds for way in ways[1:-1]]
    assert times == sorted(times, key=lambda each: each or 0.0)


@pytest.mark.parametrize("name", CASES)
def test_a_source_says_which_way_it_is_and_with_which_values(name: str, tmp_path: Path) -> None:
    ways = form_ways(*case_of(name, tmp_path))
    for way in ways:
        usual = {each.name: each.values[0] for each in way.parameters}
        assert [each.name for each in ways if each.settings_in(way.source()) is not None] == [way.name]
        assert way.settings_in(way.source()) == usual
        for parameter in way.parameters:
            for value in parameter.values:
                source = way.source({parameter.name: value})
                assert way.settings_in(source) == {**usual, parameter.name: value}
                assert (source == way.source()) == (value == parameter.values[0])


def test_a_tuned_source_stays_the_way_that_it_is(tmp_path: Path) -> None:
    way = form_ways(*case_of("few images", tmp_path))[0]
    usual = way.source()
    columns = next(each for each in tunables(usual) if each.name == "TUNE_COLUMNS").values

    tuned = usual.replace(f"TUNE_COLUMNS = {', '.join(columns)}", f"TUNE_COLUMNS = {', '.join(columns[::-1])}")

    assert way.settings_in(tuned) == {**(way.settings_in(usual) or {}), "columns": columns[-1]}
    assert way.settings_in(usual.replace("launch_gathered<", "launch_other<")) is None
    assert way.settings_in(usual.replace("TUNE_COLUMNS = ", "TUNE_COLUMNS = 7, ")) is None  # no value of the way


def test_where_the_form_has_no_choice_there_are_no_ways(tmp_path: Path) -> None:
    pair = 'x=normal("b, 64, h, w"); first=normal("64, 1, 3, 3"); second=normal("128, 64, 1, 1")'
    result = "F.conv2d(F.conv2d(x, first, padding=1, groups=64), second)"
    given = described(tmp_path, pair, '{"b": 2, "h": 20, "w": 30}', result)
    assert form_kernel(*given) is not None
    assert form_ways(*given) == ()
    assert form_ways(*case_of("forward", tmp_path), "sm_80") == ()
    assert form_ways(*described(tmp_path, 'x=normal("m, n")', '{"m": 3, "n": 5}', "x.cumsum(1)")) == ()


# --- the library ---

PLANS = """
#include <warpsmith/convolution.cuh>
#include <cstdio>
using namespace warpsmith::conv;
int main() {
  int a[26];
  for (;;) {
    for (int i = 0; i < 26; ++i)
      if (scanf("%d", a + i) != 1) return 0;
    const Form f = make_form(a[0], a[1], a[2], a[3], {a[4], a[5], a[6]}, {a[7], a[8], a[9]}, {a[10], a[11], a[12]},
                             {a[13], a[14], a[15]}, {a[16], a[17], a[18]}, a[19], {a[20], a[21], a[22]});
    const Plan p = best_plan(f, a[24], a[25]);
    printf("%d\\n", !f.out_volume() || (p.ok && p.columns == a[24] && p.product.ostep[2] == a[23]) );
  }
}
"""


@pytest.mark.nvcc
def test_tiles_that_are_offered_are_those_of_a_plan_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "plans.cu").write_text(PLANS)
    flags = ["-std=c++17", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{LIBRARY}"]
    subprocess.run(["nvcc", *flags, "plans.cu", "-o", "plans"], cwd=tmp_path, check=True, capture_output=True)
    rng = random.Random(11)
    drawn = [each for each in (_drawn(rng) for _ in range(600)) if has_general_plan(each)]
    lines = [
        _asked(each, columns, rows) for each in drawn for columns in consistent_columns(each) for rows in (2, 3, 4)
    ]
    assert len(drawn) > 200

    done = subprocess.run([tmp_path / "plans"], input="\n".join(lines), capture_output=True, text=True, check=True)

    wrong = [line for line, same in zip(lines, done.stdout.split(), strict=True) if same != "1"]
    assert wrong == []


def _asked(found: Convolution, columns: int, rows: int) -> str:
    numbers = _line(found).split()
    return " ".join([*numbers[:23], str(found.stride[-1] if found.transposed else 1), str(columns), str(rows)])


_QUICK = (("forward", "held-sums"), ("depthwise", "halo-tiles"))


@pytest.mark.nvcc
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_the_ways_compile(name: str, part: str, tmp_path: Path) -> None:
    task, contract, recorded = case_of(name, tmp_path)
    for way in form_ways(task, contract, recorded):
        if part == "all" or (name, way.name) in _QUICK:
            unusual = {each.name: each.values[-1] for each in way.parameters}
            for source in {way.source(unusual), way.source() if part == "all" else way.source(unusual)}:
                if part == "quick":
                    assert not compile_errors(source, contract, tmp_path), way.name
                    continue
                candidate = Candidate((SourceFile("kernel.cu", source),), "cuda")
                made = backend_named("cuda").build(candidate, contract, Target(DeviceKind.CUDA, "sm_90a"))
                assert isinstance(made, Artifact), f"{way.name}: {made.reason}"


HELD = {  # filters, the operation, sizes, and what the source must have: long sums, which the form leaves to `product`
    "64 columns": ((64, 64, 3, 3), "F.conv2d(x, weight, padding=1)", (1, 9, 26), "kColumns = 64"),
    "32 columns": ((32, 64, 3, 3), "F.conv2d(x, weight)", (1, 9, 26), "kColumns = 32"),
    "phases": ((64, 32, 5, 4), "F.conv_transpose2d(x, weight, stride=2, padding=1)", (1, 7, 9), "kColumns = 64"),
}


@pytest.mark.parametrize(
    "name", ["64 columns", *(pytest.param(each, marks=pytest.mark.slow) for each in list(HELD)[1:])]
)
def test_long_sums_held_in_registers_have_the_accuracy_of_float32(name: str, tmp_path: Path) -> None:
    filters, result, sizes, written = HELD[name]
    channels = filters["transpose" not in result]
    tensors = f'x=normal("b, {channels}, h, w"); weight=normal("{", ".join(map(str, filters))}")'
    task, contract, recorded = described(tmp_path, tensors, str(dict(zip("bhw", sizes, strict=True))), result)
    (way,) = (each for each in form_ways(task, contract, recorded) if each.name == "held-sums")
    source = way.source()
    assert written in source
    assert "kFold = 27" in source
    library = test_held_convolution.built(source, tmp_path)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((sizes[0], channels, *sizes[1:]), generator=generator)
    weight = torch.randn(filters, generator=generator) * 0.05
    wanted = test_held_convolution.convolved(result, x, weight, None)
    extents = dict(zip("bhw", sizes, strict=True)) | {f"out_dim{n}": wanted.shape[n] for n in (2, 3)}

    found, flags = test_held_convolution.launched(
        library, (x, weight, None), wanted.shape, [extents[a.name] for a in contract.size_arguments]
    )

    assert ((found.double() - wanted).norm() / wanted.norm()).item() < test_held_convolution.MOST_ERROR
    assert flags == test_held_convolution.SEEN


# --- on the CPU ---


def test_windows_laid_out_as_a_matrix_give_the_convolutions_of_pytorch(tmp_path: Path) -> None:
    tasks = [text for text in convolution_tasks() if "mixture" not in text]
    file = tmp_path / "tasks.py"
    file.write_text("\n\n".join([HEAD, *tasks]))
    cases: list[Case] = []
    for number in range(len(tasks)):
        program = load_task(f"{file}::mine{number}")
        problem = problem_of(program, "cpu")
        assert problem.outline is not None
        ways = form_ways(program.task, problem.contract, problem.outline)
        cases += [Case(program, problem, Plan(), way.source()) for way in ways if way.name == "im2col"]
    assert len(cases) >= 10

    errors = errors_of(cases, tmp_path)

    assert {cases[n].program.task.name: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}


def test_windows_go_through_several_images_and_long_sums(tmp_path: Path) -> None:
    tasks = (
        'x=normal("b, 200, h, w"), weight=normal("300, 200, 3, 3")',
        'x=normal("b, 40, h, w"), weight=normal("40, 2, 2, 2"), bias=normal("40")',
    )
    results = ("F.conv2d(x, weight, padding=1)", "F.conv2d(x, weight, bias, 2, groups=20)")
    text = [HEAD]
    for number, (tensors, result) in enumerate(zip(tasks, results, strict=True)):
        names = "x, weight" + (", bias" if "bias" in tensors else "")
        sizes = [{"b": 37, "h": 3, "w": 5}, {"b": 3, "h": 20, "w": 30}]
        head = f"@task({tensors}, workloads={sizes!r}, precision='fp32')"
        text.append(f"{head}\ndef mine{number}({names}):\n    return {result}\n")
    file = tmp_path / "tasks.py"
    file.write_text("\n\n".join(text))
    cases = [_windows(file, number) for number in range(len(tasks))]

    errors = errors_of(cases, tmp_path)

    assert [each for each in errors if not max(each) < 2 * MOST_ERROR] == []  # of 1800 terms


def _windows(file: Path, number: int) -> Case:
    program = load_task(f"{file}::mine{number}")
    problem = problem_of(program, "cpu")
    assert problem.outline is not None
    ways: tuple[FormWay, ...] = form_ways(program.task, problem.contract, problem.outline)
    (source,) = (way.source() for way in ways if way.name == "im2col")
    return Case(program, problem, Plan(), source)
