from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.backends import library
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.evaluator.supervisor.result_cache import ResultCache, ResultKey
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Resources, Status, WorkloadResult
from warpsmith.model.settings import Limits, Settings
from warpsmith.tasks.load import load_task

EXAMPLE = Path(__file__).resolve().parents[2] / "src/warpsmith/examples/softmax.py"
KEY = ResultKey("task-digest", "0123456789ab", "g++ 12.2.0", "cpu-key", "2.13.0", Settings())
ENVIRONMENT = Environment("a CPU", "cpu", "g++ 12", "2.13", sandbox=("namespaces", "seccomp"), threads=2, harness="0")
WORKLOAD = WorkloadResult(
    workload="small",
    axes=(("rows", 2), ("cols", 8)),
    latency_ms=0.1,
    timing="batched",
    baselines=(Baseline("eager", 0.2, 2.0, Interval(1.9, 2.1), 12),),
    error=1e-7,
    error_limit=3e-7,
    floor_ms=0.05,
    bytes=128,
    flops=64,
    checks=5,
    reference="fp64",
)
VALID = Evaluation(
    "softmax",
    "0123456789ab",
    Status.OK,
    "",
    ENVIRONMENT,
    "fp32",
    (WORKLOAD,),
    (Resources("launch", registers=32),),
    ("a note",),
    seconds=1.5,
)
FAILED = Evaluation("softmax", "0123456789ab", Status.WRONG, "half of it is wrong.", ENVIRONMENT, "fp32")


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "not" / "there" / "yet")


@pytest.mark.parametrize("verdict", [VALID, FAILED], ids=["ok", "wrong"])
def test_a_verdict_comes_back_as_it_was_and_says_that_it_is_old(cache: ResultCache, verdict: Evaluation) -> None:
    cache.put(KEY, verdict)
    found = cache.get(KEY)

    assert found == verdict
    assert found is not None
    assert found.cached
    assert not verdict.cached
    assert found.seconds == verdict.seconds


def test_what_was_never_judged_is_not_there(cache: ResultCache) -> None:
    assert cache.get(KEY) is None


def test_our_own_fault_is_never_kept(cache: ResultCache, tmp_path: Path) -> None:
    cache.put(KEY, replace(FAILED, status=Status.NOT_JUDGED))

    assert cache.get(KEY) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "other",
    [
        replace(KEY, task="another"),
        replace(KEY, candidate="ba9876543210"),
        replace(KEY, device="cuda-key"),
        replace(KEY, torch="2.14.0"),
        replace(KEY, settings=Settings(seeds=3)),
        replace(KEY, settings=Settings(baselines=("eager", "compile"))),
        replace(KEY, settings=Settings(limits=Limits(launch_s=1.0))),
    ],
    ids=["task", "candidate", "device", "torch", "seeds", "baselines", "limits"],
)
def test_all_that_a_verdict_depends_on_is_in_the_key(cache: ResultCache, other: ResultKey) -> None:
    cache.put(KEY, VALID)

    assert other.name != KEY.name
    assert cache.get(other) is None


def test_another_version_of_the_harness_judges_again(cache: ResultCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, VALID)
    monkeypatch.setattr("warpsmith.evaluator.supervisor.result_cache.__version__", "99.0")

    assert cache.get(KEY) is None


def test_the_key_does_not_confuse_its_parts() -> None:
    assert replace(KEY, task="ab", candidate="c").name != replace(KEY, task="a", candidate="bc").name


def test_the_last_verdict_counts(cache: ResultCache, tmp_path: Path) -> None:
    cache.put(KEY, FAILED)
    cache.put(KEY, VALID)

    assert cache.get(KEY) == VALID
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1  # nothing half-written beside it


def test_two_caches_of_one_folder_are_one(tmp_path: Path) -> None:
    ResultCache(tmp_path).put(KEY, VALID)

    assert ResultCache(tmp_path).get(KEY) == VALID


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff" + text,
        lambda text: b"[]",
        lambda text: text.replace(b'"ok"', b'"splendid"'),
        lambda text: text.replace(b'"ok"', b'"wrong"'),  # a combination that cannot be
        lambda text: text.replace(b'"low":1.9', b'"low":9.9'),
    ],
    ids=["empty", "half", "binary", "list", "status", "impossible", "interval"],
)
def test_a_damaged_file_is_no_verdict(tmp_path: Path, damage: object) -> None:
    cache = ResultCache(tmp_path)
    cache.put(KEY, VALID)
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert callable(damage)
    damaged = damage(file.read_bytes())
    assert damaged != file.read_bytes()
    file.write_bytes(damaged)

    assert cache.get(KEY) is None
    cache.put(KEY, VALID)
    assert cache.get(KEY) == VALID


numbers = st.floats(1e-11, 1e11)


@settings(deadline=None, max_examples=50)
@given(latency_ms=numbers, speedup=numbers, error=st.floats(0, 1e9), reason=st.text(min_size=1))
def test_no_digit_and_no_letter_is_lost(
    tmp_path_factory: pytest.TempPathFactory, latency_ms: float, speedup: float, error: float, reason: str
) -> None:
    cache = ResultCache(tmp_path_factory.getbasetemp() / "digits")
    baseline = Baseline("eager", latency_ms * speedup, speedup, Interval(speedup / 2, speedup * 2), 10)
    measured = replace(VALID, workloads=(replace(WORKLOAD, latency_ms=latency_ms, error=error, baselines=(baseline,)),))
    for verdict in (measured, replace(FAILED, reason=reason)):
        cache.put(KEY, verdict)
        assert cache.get(KEY) == verdict


def test_a_changed_header_of_the_library_is_judged_again(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Candidate((SourceFile("kernel.cpp", "#include <warpsmith/cpu/pool.h>\n"),), "cpu")
    judge: Any = SimpleNamespace(task=load_task(EXAMPLE).task, facts=SimpleNamespace(torch="2.13"))
    before = evaluator._job(judge, 0, kernel).key
    files = dict(library._library_files(library.LIBRARY))

    for name, same in (("warpsmith/cpu/scan.h", True), ("warpsmith/cpu/pool.h", False)):
        changed = {**files, name: files[name] + "\n"}
        monkeypatch.setattr(library, "_library_files", lambda _folder, changed=changed: changed)
        assert (evaluator._job(judge, 0, kernel).key == before) is same
