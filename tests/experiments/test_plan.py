"""What a bench is to do: which tasks a user means, one plan for one command, and whose kernels are whose."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.experiments.plan import (
    BenchPlan,
    CellKey,
    bench_lock,
    check_harmless,
    check_plan,
    check_tasks,
    keep_plan,
    parse_proposers,
    read_plan,
    slug,
    start_of,
)
from warpsmith.experiments.runner import choice_of, sharded
from warpsmith.experiments.selection import select
from warpsmith.methods.load import load
from warpsmith.model.errors import RunError, TaskError, UsageError, WarpsmithError
from warpsmith.model.settings import Settings
from warpsmith.run_log.events import Budget

TASK = """
import torch
from warpsmith import normal, task
from warpsmith.tasks.listing import listed

@listed(family="{family}", tags=["tiny"], small=[{{"n": 8}}])
@task(x=normal("n"), workloads=[{{"n": 64}}])
def {name}(x: torch.Tensor) -> torch.Tensor:
    return x + 1
"""


def planned(words: Sequence[str] = ("relu@small",), methods: Sequence[str] = ("evoengineer-free",)) -> BenchPlan:
    return BenchPlan(
        name="plan",
        created="2026-01-02T03:04:05+00:00",
        version="1",
        tasks=select(words),
        methods=tuple(map(load, methods)),
        proposers=("template",),
        repeats=2,
        seed=5,
        budget=Budget(trials=3),
        settings=Settings(),
        device="cpu",
        backend="cpu",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name, family in (("plus", "activation"), ("more", "other")):
        (tmp_path / "mine" / f"{name}.py").write_text(TASK.format(name=name, family=family))
    return tmp_path


# --- which tasks ---


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["mine"], ["more", "plus"]),
        (["mine@small"], ["more@small", "plus@small"]),
        (["mine/plus.py"], ["plus"]),
        (["mine/plus.py::plus@small"], ["plus@small"]),
        (["mine/p*"], ["plus"]),
        (["mine/p*.py", "mine"], ["plus", "more"]),
        (["softmax", "warpsmith-100/cumsum_*"], ["softmax", "cumsum_exclusive", "cumsum_masked", "cumsum_reverse"]),
    ],
)
def test_words_mean_tasks(folder: Path, words: list[str], names: list[str]) -> None:
    found = select(words)

    assert [task.name for task in found] == names
    assert all(task.path.is_file() for task in found)


def test_a_suite_is_selected_from_by_family_and_tag(folder: Path) -> None:
    assert len(select(["warpsmith-fused"])) == 12
    assert len(select(["warpsmith-100@small"], families=["pooling"])) == 6
    assert [task.name for task in select(["mine"], families=["other"], tags=["tiny"])] == ["more"]
    (relu,) = select(["relu@small"])
    assert relu.source.endswith("relu.py::relu@small")
    assert relu.spec == "warpsmith-100/relu@small"  # names no folder of this machine


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a", "a"], ["a", "a-2"]),
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["a", "a", "a-2"], ["a", "a-3", "a-2"]),  # what has a name of its own keeps it
        (["a-2", "a", "a", "a-2", "a"], ["a-2", "a", "a-3", "a-2-2", "a-4"]),
    ],
)
def test_tasks_of_one_name_are_told_apart(folder: Path, files: list[str], names: list[str]) -> None:
    words = []
    for number, name in enumerate(files):
        (folder / f"in{number}").mkdir()
        (folder / f"in{number}" / f"{name}.py").write_text(f"class Model: number = {number}\n")
        words.append(f"in{number}/{name}.py")

    assert [task.name for task in select(words)] == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the suites are"),
        (["no_such"], "is called 'no_such'"),
        (["mine/x*"], "no task of mine"),
        (["absent.py"], "there is no file absent.py"),
        (["mine/plus.py::minus"], "declares no task 'minus'"),
        (["relu@tiny"], "no size 'tiny'"),
    ],
)
def test_words_that_mean_nothing(folder: Path, words: list[str], said: str) -> None:
    with pytest.raises((UsageError, TaskError), match=said):
        select(words)
    with pytest.raises(WarpsmithError, match="known are"):
        select(["mine"], families=["none"])


# --- the plan ---


def test_cells_of_a_task_follow_each_other_and_no_method_is_a_repeat_ahead() -> None:
    plan = planned(["relu@small", "tanh@small"], ["evoengineer-free", "cupilot"])

    assert [(key.task, key.seed, key.method) for key in plan.cells[:5]] == [
        ("relu@small", 5, "evoengineer-free"),
        ("relu@small", 5, "cupilot"),
        ("relu@small", 6, "evoengineer-free"),
        ("relu@small", 6, "cupilot"),
        ("tanh@small", 5, "evoengineer-free"),
    ]
    assert len({key.folder for key in plan.cells}) == len(plan.cells) == 8


def test_the_same_plan_has_the_same_id_in_another_process(tmp_path: Path) -> None:
    plan = planned(methods=["cupilot"])
    keep_plan(plan, tmp_path / "bench")
    script = (
        "from pathlib import Path; from warpsmith.experiments.plan import read_plan; "
        f"print(read_plan(Path({str(tmp_path / 'bench')!r})).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "7"},  # sets come in another order
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == plan.id
    assert replace(plan, created="later", version="2").id == plan.id
    assert replace(plan, seed=6).id != plan.id


def test_a_folder_keeps_one_plan(tmp_path: Path) -> None:
    plan, folder = planned(), tmp_path / "bench"
    assert keep_plan(plan, folder) == plan
    assert keep_plan(replace(plan, created="tomorrow"), folder).created == plan.created
    with pytest.raises(UsageError, match="differs in repeats, seed"):
        keep_plan(replace(plan, repeats=9, seed=1), folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="no bench"):
        keep_plan(plan, tmp_path / "other")
    with pytest.raises(RunError, match="holds no bench"):
        read_plan(tmp_path / "nowhere")
    (folder / "plan.json").write_text("{}")
    with pytest.raises(RunError, match="cannot be read as a plan"):
        read_plan(folder)


def test_a_task_that_has_changed_stops_the_bench(folder: Path) -> None:
    plan = planned(["mine"])
    check_tasks(plan)
    (folder / "mine" / "plus.py").write_text("# another")
    with pytest.raises(RunError, match="has changed since"):
        check_tasks(plan)


def test_one_process_works_on_a_bench_at_a_time(tmp_path: Path) -> None:
    with bench_lock(tmp_path):
        with pytest.raises(RunError, match="another process"):
            with bench_lock(tmp_path):
                pass
    with bench_lock(tmp_path):
        pass


def test_what_cannot_be_planned() -> None:
    plan = planned()
    with pytest.raises(UsageError, match="named twice"):
        check_plan(replace(plan, methods=plan.methods * 2))
    with pytest.raises(UsageError, match="at least one proposer"):
        check_plan(replace(plan, proposers=()))
    with pytest.raises(UsageError, match="--repeats 0"):
        check_plan(replace(plan, repeats=0))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["template,openai:m"], ("template", "openai:m")),
        (["openai:a=2,openai:b=1", "template"], ("openai:a=2,openai:b=1", "template")),
        (["command:my-agent --a,b"], ("command:my-agent --a,b",)),
        (["agent:my-agent --a,b", "agent:openai:m"], ("agent:my-agent --a,b", "agent:openai:m")),
    ],
)
def test_proposers_are_told_apart(given: list[str], found: tuple[str, ...]) -> None:
    assert parse_proposers(given) == found


def test_folders_of_different_names_differ() -> None:
    names = ["openai:gpt-5", "openai/gpt-5", "openai_gpt-5", "..", ".", "a" * 80, "a" * 81, "template"]

    assert len({slug(name) for name in names}) == len(names)
    assert slug("template") == "template"
    assert all("/" not in slug(name) and slug(name).strip(".") for name in names)


def test_tasks_are_divided_among_devices_only_where_there_are_too_few() -> None:
    cells = [CellKey(task, method, "template", 0) for task in ("a", "b") for method in ("x", "y", "z")]

    whole = sharded(cells, 2)
    divided = sharded(cells, 4)

    assert [[key.task for key in shard] for shard in whole] == [["a"] * 3, ["b"] * 3]
    assert sorted(len(shard) for shard in divided) == [1, 1, 2, 2]
    assert sorted((key for shard in divided for key in shard), key=str) == sorted(cells, key=str)
    assert len(sharded(cells, 99)) == 6


def test_shards_of_few_cells_keep_the_order_of_tasks() -> None:
    cells = [CellKey(task, method, "template", 0) for task in ("a", "b") for method in ("v", "w", "x", "y", "z")]

    shards = sharded(cells, 3, most=2)

    assert [[key.task + key.method for key in shard] for shard in shards] == [
        *(["av", "ay"], ["aw", "az"], ["ax"]),
        *(["bv", "by"], ["bw", "bz"], ["bx"]),
    ]


def test_a_model_for_a_role_goes_only_to_methods_with_that_role() -> None:
    plan = planned(methods=["evoengineer-free", "cupilot"])
    plan = replace(plan, options=replace(plan.options, models=("translator=openai:other",)))

    assert {choice_of(plan, key).spec for key in plan.cells} == {"template"}


def test_starting_kernels_are_one_file_for_one_task_or_a_folder_with_one_each(tmp_path: Path) -> None:
    one, two = planned(), planned(("relu@small", "softmax@small"))
    names = [task.name for task in two.tasks]
    (tmp_path / f"{names[0]}.cpp").write_text("")

    assert [start_of(replace(two, start=given), names[0]) for given in ("", "auto")] == ["", "auto"]
    assert start_of(replace(two, start=str(tmp_path)), names[0]) == str(tmp_path / f"{names[0]}.cpp")
    assert start_of(replace(one, start="a.cpp"), one.tasks[0].name) == "a.cpp"
    with pytest.raises(UsageError, match=f"no kernel for the task {names[1]}; put {names[1]}.cpp"):
        start_of(replace(two, start=str(tmp_path)), names[1])
    with pytest.raises(UsageError, match="is one kernel for 2 tasks"):
        start_of(replace(two, start="a.cpp"), names[0])
    with pytest.raises(UsageError, match="starting kernels"):
        check_harmless(replace(one, start="a.cpp"), tmp_path)
    check_harmless(replace(one, start="auto"), tmp_path)
