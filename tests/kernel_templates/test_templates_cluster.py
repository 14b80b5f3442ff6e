"""CUDA rows that clusters share: right for all lengths and types, one meeting for each reduction, none leaves early."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kernel_templates.bundle import MOST_ERROR, Case, case_of, errors_of, load_case
from warpsmith import kernel_templates as templates
from warpsmith.backends.cuda import CudaBackend
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.strategy import Plan
from warpsmith.strategies.catalogue import strategies

X = 'x=normal("rows, cols")'
TASKS = {
    "softmax": (X, "torch.softmax(x * 4, -1)"),
    "log_softmax": (X, "torch.log_softmax(x, -1)"),
    "both": ('x=normal("rows, cols"), y=normal("rows, cols")', "torch.softmax(x + y, -1)"),
    "norm": ('x=normal("rows, cols"), w=normal("cols", mean=1)', "torch.nn.functional.layer_norm(x, w.shape, w)"),
    "peak": (X, "x.max(dim=-1)"),  # values and places
    "moments": ('x=normal("rows, cols", mean=1)', "x.mean(-1), x.var(-1)"),
}
ODD = {"rows": 1, "cols": 33_001}  # one element at a time, and no block has as many as the next
PACKS = {"rows": 2, "cols": 33_004}  # 8251 packs of four
SHORT = {"rows": 3, "cols": 5}  # blocks without any element
MANY = {"rows": 21, "cols": 260}
HALF_ODD = {"rows": 2, "cols": 51_203}
HALF_PACKS = {"rows": 2, "cols": 51_208}
DOUBLE = {"rows": 2, "cols": 13_008}
KEPT = "row-in-shared + vector-loads + warp-shuffle-reduction"
ONLINE = f"{KEPT} + online-softmax"


@dataclass(frozen=True)
class Trial:
    """One kernel: what it computes, with how many blocks, what else is in the plan, and for which sizes."""

    name: str
    blocks: int
    others: str
    sizes: tuple[dict[str, int], ...] = (ODD, PACKS, SHORT)
    precision: str = "fp32"

    @property
    def plan(self) -> Plan:
        """The plan of the text."""
        read = Plan.read(" + ".join(filter(None, [f"cluster-shared-memory(blocks={self.blocks})", self.others])))
        assert read is not None
        return read


TRIALS = (
    Trial("softmax", 8, ONLINE, (ODD, PACKS, SHORT, MANY)),
    Trial("softmax", 8, f"{ONLINE} + unroll(factor=8) + block-size(threads=512) + fast-intrinsics"),
    Trial("softmax", 2, f"{ONLINE} + unroll(factor=2)"),
    Trial("softmax", 4, "online-softmax + unroll", (ODD, PACKS, MANY)),
    Trial("softmax", 8, "row-in-shared + vector-loads", (ODD, PACKS, SHORT, MANY)),
    Trial("softmax", 8, ""),
    Trial("softmax", 8, ONLINE, (HALF_ODD, HALF_PACKS), "fp16"),
    Trial("softmax", 4, "row-in-shared + online-softmax + vector-loads(width=8)", (HALF_ODD, HALF_PACKS), "bf16"),
    Trial("softmax", 8, "row-in-shared + online-softmax + vector-loads(width=8) + unroll(factor=8)", (DOUBLE,), "fp64"),
    Trial("log_softmax", 8, f"{ONLINE} + unroll"),
    Trial("both", 8, f"{ONLINE} + unroll(factor=8)"),
    Trial("norm", 8, f"{KEPT} + unroll", (ODD, PACKS, SHORT, MANY)),
    Trial("norm", 2, "vector-loads", (ODD, PACKS)),
    Trial("norm", 4, KEPT, (HALF_ODD, HALF_PACKS), "bf16"),
    Trial("peak", 8, f"{KEPT} + unroll"),
    Trial("peak", 4, ""),
    Trial("moments", 8, KEPT, (ODD, PACKS, MANY)),
    Trial("moments", 2, "unroll"),
)


def cases_of(folder: Path, trials: tuple[Trial, ...]) -> list[Case]:
    """The kernels of some trials."""
    text = "import torch\nfrom warpsmith import normal, task\n"
    for number, trial in enumerate(trials):
        inputs, result = TASKS[trial.name]
        names = ", ".join(part.split("=")[0].strip() for part in inputs.split("), "))
        text += f"\n\n@task({inputs}, workloads={list(trial.sizes)!r}, precision={trial.precision!r})\n"
        text += f"def trial{number}({names}):\n    return {result}\n"
    path = folder / "rows.py"
    path.write_text(text)
    return [case_of(*load_case(path, f"trial{n}", "cuda"), trial.plan) for n, trial in enumerate(trials)]


def passes(source: str) -> list[str]:
    """The kernel's text, once for each place where a row may wait between passes."""
    kernel = source[source.index("__global__") : source.index('extern "C" int launch')]
    return kernel.split("} else {\n    ")


@pytest.mark.slow
def test_kernels_are_right_on_an_emulated_device(tmp_path: Path) -> None:
    found = errors_of(cases_of(tmp_path, TRIALS), tmp_path)

    assert [(t, e) for t, e in zip(TRIALS, found, strict=True) if max(e) > MOST_ERROR] == []


def test_nobody_leaves_while_others_read_and_no_slot_is_written_twice(tmp_path: Path) -> None:
    """The same kernels without what sees to that are wrong: the emulator would show it."""
    softmax, norm = cases_of(tmp_path, (Trial("softmax", 8, ONLINE, (PACKS,)), Trial("norm", 2, KEPT, (PACKS,))))
    end = re.compile(r"^.*barrier_(arrive|wait)\(\);.*\n", re.MULTILINE)
    waits = re.compile(r"^.*barrier_wait\(\);.*\n", re.MULTILINE)
    broken = [
        replace(softmax, source=end.sub("", softmax.source)),
        replace(norm, source=end.sub("", norm.source)),
        replace(norm, source=waits.sub("", norm.source)),
        replace(norm, source=norm.source.replace("across_cluster<1>", "across_cluster<0>")),
    ]

    found = errors_of([softmax, norm, *broken], tmp_path)

    assert max(found[0] + found[1]) <= MOST_ERROR
    assert [e for e in found[2:] if max(e) <= MOST_ERROR] == []


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.name}-{trial.blocks}-{trial.precision}")
def test_blocks_meet_once_for_each_reduction_and_once_around_the_stores(trial: Trial, tmp_path: Path) -> None:
    (case,) = cases_of(tmp_path, (trial,))
    source = case.source
    assert source.count("cluster.sync();") == 1  # in the function that all reductions call
    assert len(passes(source)) == 1 + ("extern __shared__" in source)
    for text in passes(source):
        slots = re.findall(r"across_cluster<(\d+)>\(", text)
        assert slots == [str(n) for n in range(len(slots))]  # each its own
        assert len(slots) == {"peak": 3}.get(trial.name, 2)
        before, arrive, rest = text.partition("cooperative_groups::this_cluster().barrier_arrive();")
        between, wait, after = rest.partition("cooperative_groups::this_cluster().barrier_wait();")
        assert arrive
        assert wait
        stores = re.compile(r"store_pack<W>\(|^ *if \(lane_ == 0 && rank_ == 0\)", re.MULTILINE)
        assert "across_cluster" not in rest
        assert stores.search(between)
        assert not stores.search(before + after)
        assert "return" not in text  # no thread misses the last meeting


def test_a_plan_that_loads_early_can_be_read_back(tmp_path: Path) -> None:
    plain, unrolled, streamed = cases_of(
        tmp_path,
        (
            Trial("softmax", 8, ONLINE),
            Trial("softmax", 8, f"{ONLINE} + unroll(factor=2)"),
            Trial("softmax", 8, "online-softmax + vector-loads + unroll(factor=2)"),
        ),
    )
    for case in (plain, unrolled, streamed):
        found = templates.plan_in_source(case.problem, case.source)
        assert found is not None
        assert found.names == case.plan.names
    assert "ROOM = 192 / int(sizeof(Pack<float, W>));" in plain.source
    assert "EARLY = ROOM < 1 ? 1 : ROOM < 4 ? ROOM : 4;" in plain.source
    assert "EARLY = ROOM < 1 ? 1 : ROOM < UNROLL ? ROOM : UNROLL;" in unrolled.source
    assert "EARLY" not in streamed.source  # two blocks of 1024 threads fit on a multiprocessor: registers count


@pytest.mark.parametrize(
    ("cols", "precision", "values"),
    [
        (393_216, "fp32", ("4", "2", "8", "12")),  # twelve packs for each of 1024 threads of eight blocks
        (262_144, "fp32", ("4", "2", "8")),
        (524_288, "fp32", ("4", "2", "8")),  # more than a thread has registers for
        (4_096, "fp32", ("4", "2", "8")),
    ],
)
def test_a_thread_may_load_its_whole_part_of_a_row_at_once(
    cols: int, precision: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    (case,) = cases_of(tmp_path, (Trial("softmax", 8, "", ({"rows": 4096, "cols": cols},), precision),))
    (unroll,) = [s for s in templates.abilities(case.problem) if s.name == "unroll"]
    assert unroll.parameters[0].values == values
    assert set(values) <= set(strategies()["unroll"].parameters[0].values)


@pytest.mark.nvcc
@pytest.mark.parametrize(("factor", "most"), [(4, 40), (12, 64)])
@pytest.mark.slow
def test_packs_that_are_loaded_early_stay_in_registers(
    factor: int, most: int, tmp_path: Path, cache_folder: Path
) -> None:
    backend = CudaBackend()
    if not backend.available().build:
        pytest.skip(backend.available().detail)
    others = f"{ONLINE} + block-size(threads=1024) + fast-intrinsics + unroll(factor={factor})"
    (case,) = cases_of(tmp_path, (Trial("softmax", 8, others, ({"rows": 4096, "cols": 393_216},)),))
    files = (SourceFile("kernel.cu", case.source),)

    built = backend.build(Candidate(files, "cuda"), case.problem.contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(built, Artifact), built.reason
    assert len(built.resources) == 4  # kept or not, in packs of four or one element at a time
    assert {each.spill_bytes for each in built.resources} == {0}
    assert max(each.registers for each in built.resources) <= most
