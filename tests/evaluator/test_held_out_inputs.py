"""What winners are tried on: sizes and values nobody has seen, and only such as the task's own reference takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from warpsmith.evaluator.judge.numerics import held_out_inputs
from warpsmith.evaluator.judge.numerics.reference import Reference
from warpsmith.model.task import Task
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

CPU = torch.device("cpu")
TaskFile = Callable[[str], Path]


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], tuple[Program, Task]]:
    def load(body: str) -> tuple[Program, Task]:
        path = tmp_path / "made.py"
        path.write_text("import torch\nfrom warpsmith import integers, normal, task\n\n\n" + body)
        program = load_task(path)
        return program, held_out_inputs.add_held_out_workloads(program, CPU, path)

    return load


def new_sizes(program: Program, task: Task) -> list[dict[str, int]]:
    return [w.sizes for w in task.workloads[len(program.task.workloads) :]]


def test_shapes_vary_where_the_workloads_do_and_nowhere_else(task_file: TaskFile) -> None:
    path = task_file("softmax")
    program = load_task(path)
    task = held_out_inputs.add_held_out_workloads(program, CPU, path)
    found = new_sizes(program, task)
    assert 4 <= len(found) <= held_out_inputs.MOST_SHAPES
    declared = [w.sizes for w in program.task.workloads]
    assert not [sizes for sizes in found if sizes in declared]
    assert any(sizes["cols"] % 8 for sizes in found)
    assert any(sizes["cols"] > 1000 for sizes in found)
    assert {"rows": 512, "cols": 1} in found
    assert {"rows": 61, "cols": 997} in found  # primes, together
    assert len({w.name for w in task.workloads}) == len(task.workloads)


def test_a_constant_of_the_contract_stays(loaded: Callable[[str], tuple[Program, Task]]) -> None:
    program, task = loaded(
        '@task(x=normal("rows, width"), workloads=[{"rows": 8, "width": 32}, {"rows": 40, "width": 32}])\n'
        "def f(x):\n    return x.exp()\n"
    )
    found = new_sizes(program, task)
    assert found
    assert {sizes["width"] for sizes in found} == {32}


def test_sizes_the_reference_refuses_are_left_out(loaded: Callable[[str], tuple[Program, Task]]) -> None:
    program, task = loaded(
        '@task(x=normal("n"), workloads=[{"n": 64}, {"n": 256}])\n'
        "def f(x):\n"
        "    if x.shape[0] % 2:\n        raise ValueError('even, please')\n"
        "    return x * 2\n"
    )
    assert [sizes["n"] for sizes in new_sizes(program, task)] == [62]


def test_derived_axes_follow(loaded: Callable[[str], tuple[Program, Task]]) -> None:
    program, task = loaded(
        '@task(x=normal("n"), workloads=[{"n": 64}, {"n": 256}])\ndef f(x):\n    return torch.cat([x, x])\n'
    )
    for workload in task.workloads:
        out = program.run(program.inputs(workload, seed=1, device=CPU))[0]
        assert tuple(out.shape) == task.outputs[0].shape(workload.sizes)


def test_no_shape_is_much_larger_than_the_declared_ones(loaded: Callable[[str], tuple[Program, Task]]) -> None:
    program, task = loaded(
        '@task(x=normal("rows, cols"), workloads=[{"rows": 2, "cols": 60_000}, {"rows": 1000, "cols": 100}])\n'
        "def f(x):\n    return x.exp()\n"
    )
    found = new_sizes(program, task)
    assert any(sizes["cols"] > 20_000 for sizes in found)
    assert any(sizes["rows"] > 400 for sizes in found)
    assert max(sizes["rows"] * sizes["cols"] for sizes in found) <= 180_000


@pytest.mark.parametrize("name", ["relu", "kernelbench_linear"])
def test_without_a_varying_axis_there_are_no_other_shapes(name: str, task_file: TaskFile) -> None:
    program = load_task(task_file(name))
    assert held_out_inputs.add_held_out_workloads(program, CPU, task_file(name)) == program.task


PRODUCT = """import torch
from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{sizes}])
def f(a, b):
    return a @ b
"""


def lighter(folder: Path, sizes: str) -> list[dict[str, int]]:
    path = folder / "product.py"
    path.write_text(PRODUCT.replace("{sizes}", sizes))
    return [w.sizes for w in held_out_inputs._lighter(load_task(path), CPU, path)]


def test_what_is_heavy_under_a_sanitizer_has_a_lighter_sibling(tmp_path: Path) -> None:
    full, other = '{"m": 2048, "k": 8192, "n": 4096}', '{"m": 33_000, "k": 65_000, "n": 2_570}'
    found, odd = lighter(tmp_path, f"{full}, {other}")
    assert 2 * found["m"] * found["k"] * found["n"] <= held_out_inputs._LIGHT_FLOPS
    assert all(size % 128 == 0 for size in found.values()), found
    assert all(size % 2 and 0 < found[axis] - size < 10 for axis, size in odd.items()), odd


def test_sizes_that_are_constants_are_not_halved(tmp_path: Path) -> None:
    assert lighter(tmp_path, '{"m": 2048, "k": 8192, "n": 4096}') == []
    found, odd = lighter(tmp_path, '{"m": 2048, "k": 1024, "n": 4096}, {"m": 4096, "k": 1024, "n": 4096}')
    assert found == {"m": 256, "k": 1024, "n": 4096}
    assert odd == {"m": 251, "k": 1024, "n": 4096}


def test_sizes_that_are_no_multiples_are_halved_too_and_odd_ones_stay_odd(tmp_path: Path) -> None:
    found, _ = lighter(tmp_path, '{"m": 8205, "k": 2949, "n": 5921}, {"m": 9000, "k": 9001, "n": 9002}')
    assert 2 * found["m"] * found["k"] * found["n"] <= held_out_inputs._LIGHT_FLOPS
    assert all(size % 2 for size in found.values()), found


def test_what_cannot_be_made_light_stays_as_it_is(tmp_path: Path) -> None:
    assert lighter(tmp_path, '{"m": 2, "k": 65536, "n": 65536}, {"m": 3, "k": 65536, "n": 65536}') == []


def test_sanitizers_get_the_lighter_ones(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    sizes = '{"rows": 4096, "cols": 4096}, {"rows": 64, "cols": 300_000}'
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        f'@task(x=normal("rows, cols"), workloads=[{sizes}])\ndef f(x):\n    return x * 2\n'
    )
    program = load_task(path)
    given = held_out_inputs._smallest(program.task, held_out_inputs.add_held_out_workloads(program, CPU, path))
    few = ["smaller: rows=256 cols=4096", "smaller: rows=251 cols=4093"]
    assert [w.name for w in given] == [*few, "smaller: rows=251 cols=251"]


ROWS = """import torch
from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    weight=normal("cols"),
    workloads=[{"rows": 4096, "cols": 393_216}, {"rows": 4100, "cols": 400_000}],
)
def f(x, weight):
    return torch.softmax(x, 1) * weight
"""


def test_a_few_rows_of_full_length_stay_and_many_short_ones_come_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.py"
    path.write_text(ROWS)
    program = load_task(path)
    found, odd, many = (w.sizes for w in held_out_inputs._lighter(program, CPU, path))
    assert found == {"rows": 4, "cols": 393_216 // 2}  # with fewer rows the weights are large, and have none
    assert odd == {"rows": 3, "cols": 196_597}
    assert many == {"rows": 251, "cols": 191}  # more rows than a device has multiprocessors


def test_what_comes_first_in_one_operand_only_is_no_row(tmp_path: Path) -> None:
    found, _ = lighter(tmp_path, '{"m": 4096, "k": 4096, "n": 4096}, {"m": 4097, "k": 4098, "n": 4099}')
    assert found == {"m": 512, "k": 1024, "n": 1024}


def test_sizes_the_reference_refuses_are_no_lighter_ones(tmp_path: Path) -> None:
    path = tmp_path / "picky.py"
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        '@task(a=normal("m, 2048"), workloads=[{"m": 2048}, {"m": 4096}])\ndef f(a):\n'
        "    if a.shape[0] % 1024:\n        raise ValueError('1024, please')\n    return a @ a[:2048]\n"
    )
    program = load_task(path)
    task = held_out_inputs.add_held_out_workloads(program, CPU, path)
    assert [w.sizes["m"] for w in task.workloads] == [2048, 4096]
    assert [w.sizes["m"] for w in held_out_inputs._smallest(program.task, task)] == [2048]


def test_what_is_light_stays_as_it_is(tmp_path: Path) -> None:
    assert lighter(tmp_path, '{"m": 64, "k": 64, "n": 64}, {"m": 65, "k": 66, "n": 67}') == []


def test_sizes_that_follow_from_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        '@task(x=normal("n"), workloads=[{"n": 1 << 26}, {"n": 1 << 27}])\ndef f(x):\n    return torch.cat([x, x])\n'
    )
    found, _ = held_out_inputs._lighter(load_task(path), CPU, path)
    assert found.sizes["n"] == 1 << 19
    assert found.name == f"{held_out_inputs.LIGHTER}n={1 << 19}"


# --- samples for processes without a judge ---


@pytest.fixture
def samples(task_file: TaskFile, tmp_path: Path) -> tuple[held_out_inputs.WrittenInputs, Program, Path]:
    path = task_file("mean_and_peak")
    program = load_task(path)
    reference = Reference(program, CPU, {w.name: 300 for w in program.task.workloads}, 3.0)
    return held_out_inputs.WrittenInputs(program, program.task, reference, tmp_path), program, tmp_path


def results(program: Program, folder: Path, target: Path) -> None:
    """What the reference gives on the inputs in the files."""
    x = torch.frombuffer(bytearray((folder / "case0" / "x.bin").read_bytes()), dtype=torch.float32).view(200, 300)
    (target / "case0").mkdir(parents=True, exist_ok=True)
    for spec, tensor in zip(program.task.outputs, program.run({"x": x}), strict=True):
        (target / "case0" / f"{spec.name}.bin").write_bytes(tensor.numpy().tobytes())


def test_right_results_are_found_right(
    samples: tuple[held_out_inputs.WrittenInputs, Program, Path], tmp_path: Path
) -> None:
    kept, program, folder = samples
    (described,) = json.loads((folder / held_out_inputs.CASES).read_text())
    assert described["inputs"] == {"x": 240_000}
    assert described["outputs"] == {"mean": 800, "peak": 800}
    results(program, folder, tmp_path / "out")
    assert kept.check_results(tmp_path / "out") == ""


def test_wrong_missing_and_strange_results_are_not(
    samples: tuple[held_out_inputs.WrittenInputs, Program, Path], tmp_path: Path
) -> None:
    kept, program, folder = samples
    results(program, folder, tmp_path / "out")
    peak = tmp_path / "out" / "case0" / "peak.bin"
    right = peak.read_bytes()
    peak.write_bytes(bytes(4) + right[4:])
    assert "peak differs" in kept.check_results(tmp_path / "out")
    peak.write_bytes(right[:-4])
    assert "796 bytes instead of 800" in kept.check_results(tmp_path / "out")
    peak.unlink()
    assert "peak" in kept.check_results(tmp_path / "out")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(right)
    peak.symlink_to(elsewhere)  # a candidate must not make the judge read other files
    assert "peak" in kept.check_results(tmp_path / "out")
