from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.judge.records import dump_task, parse_task
from warpsmith.model.errors import TaskError
from warpsmith.tasks.load import load_task

CPU = torch.device("cpu")
GOOD = """
from warpsmith import normal, task
@task(x=normal("n"), workloads=[{"n": 4}])
def f(x):
    return x + 1
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "file.py"
    path.write_text(text)
    return path


def refused(path: Path | str) -> str:
    with pytest.raises(TaskError) as caught:
        load_task(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_not_a_task_gets_one_sentence(tmp_path: Path) -> None:
    assert "there is no file" in refused(tmp_path / "absent.py")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\x00")
    assert "not a text file" in refused(tmp_path / "binary")
    (tmp_path / "null").write_bytes(b"a = 1\x00")
    assert "not a text file" in refused(tmp_path / "null")
    assert "is not a task" in refused(write(tmp_path, "print('hello')"))
    assert "is not a task" in refused(write(tmp_path, ""))


def test_errors_name_the_line(tmp_path: Path) -> None:
    assert "file.py:2: this is not valid Python" in refused(write(tmp_path, "import warpsmith\ndef f(:\n"))
    assert "file.py:3: executing it raised ValueError: no" in refused(
        write(tmp_path, "import warpsmith\n\nraise ValueError('no\\nmore')")
    )
    assert "file.py:2: it imports 'not_there', which is not installed; install 'not_there'" in refused(
        write(tmp_path, "import warpsmith\nimport not_there.deep")
    )
    assert "must not exit" in refused(write(tmp_path, "import warpsmith\nraise SystemExit(3)"))
    assert "file.py:3: element type" in refused(
        write(tmp_path, "from warpsmith import normal, task\n\nx = normal('n', dtype='int8')")
    )


def test_a_stranger_is_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    refused(write(tmp_path, f"open({str(marker)!r}, 'w')"))
    assert not marker.exists()


def test_an_interrupt_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_task(write(tmp_path, "import warpsmith\nraise KeyboardInterrupt"))


def test_loading_leaves_one_private_module_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"""
import inspect
from dataclasses import dataclass
@dataclass
class Part:
    size: int
{GOOD}
print("hello")
SOURCE = inspect.getsource(Part)
"""
    path = write(tmp_path, text)
    load_task(write(tmp_path, GOOD))
    before = set(sys.modules)
    load_task(write(tmp_path, text))
    (added,) = set(sys.modules) - before
    assert added.startswith("_warpsmith_task_")
    assert "size: int" in sys.modules[added].SOURCE
    assert capsys.readouterr().out == ""
    refused(write(tmp_path, text + "\n1 / 0"))
    assert set(sys.modules) - before == {added}
    assert path.exists()


def test_identity_is_content_not_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, two = load_task(write(tmp_path, GOOD)), load_task(write(tmp_path / "a", GOOD))
    other = load_task(write(tmp_path, GOOD + "# changed"))
    assert one.task.digest == two.task.digest != other.task.digest


@pytest.mark.parametrize("value", ["1", "1.0", "True", "float('inf')", "1e-5", "-3"])
def test_a_task_survives_json(tmp_path: Path, value: str) -> None:
    text = (
        GOOD.replace("import normal", "import scalar, normal")
        .replace("(x)", "(x, k)")
        .replace("workloads", f"k=scalar({value}), workloads")
    )
    task = load_task(write(tmp_path, text)).task
    again = parse_task(dump_task(task))
    assert again == task
    assert type(again.scalars[0].value) is type(task.scalars[0].value)


def test_json_that_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="not a task in JSON"):
        parse_task(b'{"name": 3}')


names = st.sampled_from(["rows", "cols", "depth", "3", "1"])
shapes = st.lists(names, max_size=3).map(", ".join)
extents = st.integers(1, 9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_declared_shapes_are_the_shapes_of_the_run(tmp_path: Path, data: st.DataObject) -> None:
    first, second = data.draw(shapes), data.draw(shapes)
    body = data.draw(
        st.sampled_from(
            ["x * 2", "x.sum()", "(x, y)", "x.reshape(-1)", "torch.stack([x, x])", "(y > 0, x.reshape(-1).cumsum(0))"]
        )
    )
    kinds = ["normal('%s')", "uniform('%s', low=1, high=3)", "integers('%s', high=5)", "booleans('%s')"]
    kind = data.draw(st.sampled_from(kinds[:1] if "cumsum" in body else kinds))
    loads = [{a: data.draw(extents) for a in ("rows", "cols", "depth")} | {"name": str(i)} for i in range(2)]
    program = load_task(
        write(
            tmp_path,
            f"""
import torch
from warpsmith import booleans, integers, normal, task, uniform
@task(x={kind % first}, y=normal('{second}'), workloads={loads})
def f(x, y):
    return {body}
""",
        )
    )
    for workload in program.task.workloads:
        inputs = program.inputs(workload, seed=data.draw(st.integers(0, 2**64)), device=CPU)
        results = program.run(inputs)
        for spec, tensor in (
            *((spec, inputs[spec.name]) for spec in program.task.inputs),
            *zip(program.task.outputs, results, strict=True),
        ):
            assert tuple(tensor.shape) == spec.shape(workload.sizes)
            assert str(tensor.dtype) == f"torch.{spec.dtype}"


words = st.sampled_from(
    [
        *("from warpsmith import task, normal\n", "import warpsmith\n", "@task(", "x=normal('n')", ")", "\n", ", "),
        *("workloads=[{'n': 2}]", "def f(x):", " return x", "class Model:", "def get_inputs(): ", "raise SystemExit"),
        *("(", "'", "\t", "\0", "é"),
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=80), st.lists(words, max_size=14).map("".join)))
def test_garbage_gives_a_task_or_a_task_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "garbage.py"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(TaskError):
        assert load_task(path).task.outputs
