"""The suites: 112 tasks that load, give contracts, have the shapes they claim and are fit to judge by."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from warpsmith.backends.source import backend_named
from warpsmith.cli.checks import check_task_file
from warpsmith.cli.suite import suite_list
from warpsmith.evaluator.judge.numerics import held_out_inputs
from warpsmith.evaluator.judge.numerics.calibration import Calibrator
from warpsmith.evaluator.judge.numerics.reference import Reference
from warpsmith.hardware.work import count_work
from warpsmith.model.certificate import Calibration
from warpsmith.model.errors import TaskError
from warpsmith.model.task import Precision, TensorSpec, Workload
from warpsmith.search import open_run
from warpsmith.search.options import RunOptions
from warpsmith.tasks import suites
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program
from warpsmith.tasks.suites import SuiteTask

Load = Callable[..., Program]
CPU = torch.device("cpu")
ENTRIES = suites.select_tasks()
FAMILIES = {
    "matmul": 18,
    "activation": 15,
    "normalisation": 8,
    "pooling": 6,
    "reduction": 6,
    "convolution": 35,
    "scan": 5,
    "loss": 6,
    "attention": 1,
}
with Path(__file__).with_name("level1_shapes.tsv").open(encoding="utf-8") as _table:
    LEVEL1 = list(csv.DictReader(_table, delimiter="\t"))

every_task = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title)


@cache
def loaded(title: str) -> Program:
    return load_task(suites.resolve_task(title))


def written(spec: TensorSpec, workload: Workload) -> str:
    return f"{spec.dtype}[{'x'.join(str(extent) for extent in spec.shape(workload.sizes))}]"


def test_there_are_a_hundred_operators_and_twelve_chains() -> None:
    assert Counter(entry.suite for entry in ENTRIES) == {"warpsmith-100": 100, "warpsmith-fused": 12}
    assert Counter(entry.family for entry in suites.suite_tasks("warpsmith-100")) == FAMILIES
    assert len({entry.name for entry in ENTRIES}) == 112


@every_task
def test_what_is_read_without_executing_is_what_loads(entry: SuiteTask) -> None:
    task = loaded(entry.title).task

    own = {axis: size for axis, size in task.workloads[0].sizes.items() if axis in entry.workloads[0].sizes}
    assert suites.resolve_task(entry.title) == entry.spec()
    assert (task.name, task.precision) == (entry.name, entry.precisions[0])
    assert [w.name for w in task.workloads] == [w.name for w in entry.workloads]
    assert [w.name for w in task.held_out] == [w.name for w in entry.held_out]
    assert own == entry.workloads[0].sizes
    assert entry.family
    assert entry.small
    assert entry.description
    assert len(entry.workloads) >= (3 if entry.family == "fused" else 1)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_task_has_a_contract(backend: str) -> None:
    for entry in ENTRIES:
        contract = backend_named(backend).contract(loaded(entry.title).task)

        assert "launch(" in contract.text
        assert "@listed" not in contract.text, "a proposer is not to see the held-out shapes"


@pytest.mark.parametrize("row", LEVEL1, ids=lambda row: str(row["name"]))
def test_the_shapes_are_those_of_the_published_problem(row: dict[str, str]) -> None:
    task = loaded(f"warpsmith-100/{row['name']}").task
    (full,) = task.workloads
    (output,) = task.outputs
    (entry,) = (each for each in ENTRIES if each.name == row["name"])

    assert " ".join(written(spec, full) for spec in task.inputs) == row["inputs"]
    assert written(output, full) == row["output"]
    assert f"level1-{row['number']}" in entry.tags


def test_the_table_of_published_shapes_covers_the_suite() -> None:
    assert {row["name"] for row in LEVEL1} == {entry.name for entry in suites.suite_tasks("warpsmith-100")}
    assert [int(row["number"]) for row in LEVEL1] == list(range(1, 101))


def calibrated(program: Program) -> Calibration:
    terms = {}
    for workload in program.task.workloads:
        fake = program.fake_inputs(workload)
        with fake.mode:
            terms[workload.name] = count_work(program.run, fake.tensors).reduction
    with torch.no_grad():
        return Calibrator(program, Reference(program, CPU, terms, 3.0), CPU).run()


@every_task
def test_small_workloads_are_fit_to_judge_by(entry: SuiteTask) -> None:
    found = calibrated(load_task(entry.spec("small")))

    assert found.passed, found.reason
    assert not any(impostor.passes for impostor in found.impostors)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Precision.TF32, Precision.BF16])
def test_small_workloads_are_fit_in_their_other_precision_classes(precision: Precision) -> None:
    members = [entry for entry in ENTRIES if precision in entry.precisions]
    refused = {
        entry.title: found.reason
        for entry in members
        if not (found := calibrated(load_task(entry.spec("small"), precision))).passed
    }

    assert members
    assert refused == {}


# --- sizes ---


def test_the_small_size_is_a_task_of_its_own() -> None:
    full, small = (loaded(f"warpsmith-100/softmax{size}").task for size in ("@full", "@small"))

    assert full.digest == loaded("warpsmith-100/softmax").task.digest
    assert small.digest != full.digest
    assert small.name == full.name == "softmax"
    assert [w.sizes for w in small.workloads] == [{"rows": 64, "cols": 1000}]
    assert small.held_out == full.held_out


def test_an_axis_that_a_held_out_shape_changes_is_no_constant(native: Load) -> None:
    text = """
    from warpsmith import listed

    @listed(family="sum", held_out=[{"rows": 3, "cols": 8}])
    @task(x=normal("rows, cols"), workloads=[{"rows": 4, "cols": 8}])
    def total(x):
        return x.sum(dim=1)
    """
    program = native(text)

    assert program.task.fixed_axes == {"cols": 8}
    assert "@listed" not in program.task.source
    assert "workloads" in program.task.source


def test_verification_tries_the_held_out_shapes_first() -> None:
    spec = suites.resolve_task("warpsmith-100/relu@small")

    extended = held_out_inputs.add_held_out_workloads(load_task(spec), CPU, Path(spec.partition("::")[0]))

    names = [workload.name for workload in extended.workloads]
    assert names[:3] == ["small", "held out: 61x4099", "held out: 3x20000"]
    assert len(names) > 3


@pytest.mark.parametrize(
    ("listing", "complaint"),
    [
        ('family=""', "needs a family"),
        ('family="sum", tags="rows"', "list of words"),
        ('family="sum", precisions=["fp16"]', "has precision fp32"),
        ('family="sum", precisions=["fp31"]', "'fp31' is unknown"),
        ('family="sum", small=[{"rows": 4}]', "@listed gives the axes rows, but the task has n"),
        ('family="sum", small=[{"n": 0}]', "at least 1"),
    ],
)
def test_a_wrong_listing_is_refused(native: Load, listing: str, complaint: str) -> None:
    text = f"""
    from warpsmith import listed

    @listed({listing})
    @task(x=normal("n"), workloads=[{{"n": 4}}])
    def total(x):
        return x.sum()
    """
    with pytest.raises(TaskError, match=complaint):
        native(text)


def test_a_task_without_a_small_workload_says_so(native: Load) -> None:
    text = """
    @task(x=normal("n"), workloads=[{"n": 4}])
    def total(x):
        return x.sum()
    """
    with pytest.raises(TaskError, match="has no small workload"):
        native(text, pick="total@small")
    with pytest.raises(TaskError, match="has no task 'totl@small'; it has total"):
        native(text, pick="totl@small")


# --- names ---


@pytest.mark.parametrize(
    "spec", ["mine.py", "some/folder/mine.py::relu", "mine", "folder/mine", "./warpsmith-100/x.py"]
)
def test_what_names_no_suite_comes_back_as_it_is(spec: str) -> None:
    assert suites.resolve_task(spec) == spec


def test_the_bare_name_of_a_task_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for bare, title in (("relu", "warpsmith-100/relu"), ("swiglu@small", "warpsmith-fused/swiglu@small")):
        assert suites.resolve_task(bare) == suites.resolve_task(title)
    (tmp_path / "relu").write_text("")
    assert suites.resolve_task("relu") == "relu"  # a file of the user's own comes first


def test_a_syntax_error_is_told_before_a_device_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\nx = (\n")
    monkeypatch.setattr(open_run, "choose", lambda *_: pytest.fail("a device was looked for"))

    for check in (check_task_file, lambda task: open_run.prepare(task, RunOptions())):
        with pytest.raises(TaskError, match=r"broken\.py:2: this is not valid Python: '\(' was never closed"):
            check(str(broken))


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("warpsmith-100/rleu", r"warpsmith-100 has no task 'rleu'; near it are .*relu.* shows all 100\."),
        ("warpsmith-100/", r"has no task ''; `warpsmith suite list warpsmith-100` shows all 100\."),
        ("warpsmith-100/../listing", r"has no task '../listing'"),
        ("warpsmith-fused/relu", r"has no task 'relu'; it has adam_step, attention_block, .*top_k_softmax\."),
        ("warpsmith-100/relu@tiny", r"relu has no size 'tiny'; write @full or @small\."),
        ("warpsmith100/relu", r"no suite 'warpsmith100'; the suites are warpsmith-100, warpsmith-fused\."),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(spec: str, complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint):
        suites.resolve_task(spec)


def test_selection_by_name_family_and_tags() -> None:
    both = suites.select_tasks(["warpsmith-100"], families=["scan", "loss"])
    dilated = suites.select_tasks(tags=["transposed", "dilated"])

    assert Counter(entry.family for entry in both) == {"scan": 5, "loss": 6}
    assert {entry.family for entry in dilated} == {"convolution"}
    assert 0 < len(dilated) < len(suites.select_tasks(tags=["dilated"]))
    assert [entry.title for entry in suites.select_tasks(names=["swiglu", "relu"])] == [
        "warpsmith-100/relu",
        "warpsmith-fused/swiglu",
    ]
    assert suites.select_tasks(families=["scan"], tags=["dilated"]) == ()


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"families": ["scans"]}, "the family 'scans'; known are activation, .*scan"),
        ({"tags": ["dilatd"]}, "the tag 'dilatd'; among the known ones are .*dilated"),
        ({"names": ["rleu"]}, "the task 'rleu'; among the known ones are .*relu"),
        (
            {"suites": ["nowhere"]},
            "no suite 'nowhere'; the suites are warpsmith-100, warpsmith-fused, kernelbench:PATH",
        ),
    ],
)
def test_a_wrong_selection_is_answered_with_the_right_ones(chosen: dict[str, list[str]], complaint: str) -> None:
    with pytest.raises(TaskError, match=complaint):
        suites.select_tasks(
            chosen.get("suites", ()), **{key: words for key, words in chosen.items() if key != "suites"}
        )


# --- other people's folders ---

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name in ("19_ReLU", "2_Standard_matrix_multiplication_"):
        (level / f"{name}.py").write_text(PROBLEM)
    (level / "notes.py").write_text("")
    return f"kernelbench:{level}"


def test_a_kernelbench_level_is_a_suite(checkout: str) -> None:
    first, second = suites.suite_tasks(checkout)

    assert (first.name, second.name) == ("2_Standard_matrix_multiplication_", "19_ReLU")
    assert suites.resolve_task(second.title) == suites.resolve_task(f"{checkout}/19") == second.spec()
    assert load_task(suites.resolve_task(f"{checkout}/19")).task.kind == "kernelbench"
    assert [entry.name for entry in suites.select_tasks([checkout, "warpsmith-100"], names=["19_ReLU", "relu"])] == [
        "19_ReLU",
        "relu",
    ]


def test_what_is_no_kernelbench_problem_is_said(checkout: str, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="has no problem '3'; give a file's name or one of its 2 numbers, 2 to 19"):
        suites.resolve_task(f"{checkout}/3")
    with pytest.raises(TaskError, match="is a whole suite"):
        suites.resolve_task(checkout)
    with pytest.raises(TaskError, match="there is no folder"):
        suites.suite_tasks(f"kernelbench:{tmp_path}/level9")
    with pytest.raises(TaskError, match="holds no KernelBench problem"):
        suites.suite_tasks(f"kernelbench:{tmp_path}")
    with pytest.raises(TaskError, match="has no small workload"):
        suites.suite_tasks(checkout)[0].spec("small")


def test_a_folder_of_task_files_is_a_suite_too(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "from warpsmith import normal, task\n"
        "SIZES = [{'n': 4}]\n"
        "@task(x=normal('n'), workloads=SIZES, precision='bf16')\n"
        "def first(x):\n    return x + 1\n"
        "@task(x=normal('n'), workloads=[{'n': 5}], name='other')\n"
        "def second(x):\n    return x + 2\n"
    )

    first, other = suites.suite_tasks(str(tmp_path))

    assert (first.name, first.precisions, first.workloads) == ("first", (Precision.BF16,), ())
    assert (other.name, other.workloads) == ("other", (Workload("5", (("n", 5),)),))
    assert load_task(other.spec()).task.name == "other"


# --- the command ---


def test_the_list_shows_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite_list() == 0

    shown = capsys.readouterr().out
    assert "112 tasks in all" in shown
    assert "Optimise one: warpsmith optimize warpsmith-100/argmax, or warpsmith-100/argmax@small on a CPU" in shown
    words = set(shown.split())
    assert {entry.name for entry in ENTRIES} <= words
    assert {"4096×393216", "convolution", "fp32"} <= words


def test_the_list_for_programs_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    suite_list(["warpsmith-100"], family=["scan"], tag=["masked"], json=True)

    (document,) = json.loads(capsys.readouterr().out)["tasks"]
    assert document["task"] == "warpsmith-100/cumsum_masked"
    assert document["workloads"] == {"full": {"rows": 32768, "cols": 32768}}
    assert document["small"] == {"small": {"rows": 50, "cols": 999}}
    assert document["precisions"] == ["fp32"]
    suite_list(json=True)
    assert len(json.loads(capsys.readouterr().out)["tasks"]) == len(ENTRIES)


def test_a_selection_that_leaves_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    suite_list(family=["scan"], tag=["dilated"])

    assert capsys.readouterr().out == "No task has all of that.\n"
