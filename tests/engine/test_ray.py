"""The engine `ray`, on a cluster of three nodes on this machine, with the CPU backend."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.processes import KilledProcess
from typer.testing import CliRunner

import warpsmith as ws
from warpsmith.cli.main import app
from warpsmith.engine import ray_site
from warpsmith.engine.engine import open_engine
from warpsmith.engine.ray_node import NodeReport
from warpsmith.engine.ray_site import RaySpec
from warpsmith.experiments.results import RESULTS, read_results
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import ADDRESS, EVALUATION, SEEDS
from warpsmith.model.errors import RunError, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.run_log.events import TrialJudged
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.verification.verify import Verifier

ray = pytest.importorskip("ray", reason="the tests of the cluster need `pip install .[ray]`")
CORES = os.cpu_count() or 1
SPEC = f"ray?cores={CORES}"  # the whole machine for an evaluator; each node counts one core more, for builds
OPTIONS = ws.RunOptions(proposer="template", device="cpu", timing_budget_s=0.02, tune=False, stop_at=0, remember=False)
EXPECTED = {  # a third crash
    "right.cpp": Status.OK,
    "wrong.cpp": Status.WRONG,
    "does_not_compile.cpp": Status.BUILD_ERROR,
    "segfaults.cpp": Status.CRASHED,
    "half_written.cpp": Status.UNWRITTEN,
    "stack_overflow.cpp": Status.CRASHED,
}


@pytest.fixture(scope="module")
def cluster(cache_folder: Path) -> Iterator[Any]:
    """Three nodes."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    size: dict[str, Any] = {"num_cpus": CORES + 1, "object_store_memory": 80 << 20}
    started = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    for _ in range(2):
        started.add_node(wait=False, **size)
    started.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = started.address
    yield started
    ray_site.forget_sites()
    ray.shutdown()
    started.shutdown()  # type: ignore[no-untyped-call]
    del os.environ["RAY_ADDRESS"]


@pytest.fixture(scope="module")
def engine(cluster: Any, quick_settings: Settings) -> Iterator[ray_site.RayEngine]:
    with open_engine(SPEC, "cpu", quick_settings, name="tests") as opened:
        assert isinstance(opened, ray_site.RayEngine)
        yield opened


def variants(kernel: Callable[[str], Candidate], count: int) -> list[tuple[Candidate, Status]]:
    """Candidates that differ in a comment, with what a judge says of them."""
    found = []
    for number in range(count):
        name, status = list(EXPECTED.items())[number % len(EXPECTED)]
        base = kernel(name)
        text = f"{base.main.text}\n// variant {number}\n"
        found.append((replace(base, files=(SourceFile(name, text),)), status))
    return found


# --- names and nodes ---


def test_options_of_the_engine_stand_behind_a_question_mark() -> None:
    spec = RaySpec.parse("ray://head:10001?kind=H200&cores=8&sandbox=any")
    assert spec == RaySpec("ray://head:10001", "H200", 8, any_sandbox=True)
    assert RaySpec.parse("ray") == RaySpec()
    for wrong in ("ray?cores=x", "ray?sandbox=none", "ray?colour=red"):
        with pytest.raises(UsageError, match="behind the \\? stand kind=NAME"):
            RaySpec.parse(wrong)


def test_without_ray_one_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ToolMissing, match=r"pip install 'warpsmith\[ray\]'"):
        ray_site.import_ray()


def test_nodes_of_another_version_are_refused_in_one_sentence(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = ray_site.site(SPEC)
    assert len([node for node in site.nodes() if not node.refused]) == 3
    monkeypatch.setattr(ray_site, "__version__", "99.0")
    with pytest.raises(UsageError, match=r"has Warpsmith .*, this machine has 99.0; install the same version"):
        site.select("cpu")
    monkeypatch.undo()
    monkeypatch.setattr(ray_site, "source_digest", lambda: "other")
    with pytest.raises(UsageError, match="with other files"):
        site.select("cpu")


def test_a_node_without_layers_of_the_sandbox_is_refused_unless_told_otherwise(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ray_site.site(SPEC)
    known = {name: replace(report, lacking=("landlock",)) for name, report in site._reports.items()}  # type: ignore[type-var]
    monkeypatch.setattr(site, "_reports", known)
    with pytest.raises(UsageError, match="its sandbox lacks landlock"):
        site.select("cpu")
    monkeypatch.setattr(site, "_spec", RaySpec(cores=CORES, any_sandbox=True))
    assert site.select("cpu").kind == "cpu"


def test_a_mixed_cluster_is_partitioned(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = ray_site.site(SPEC)
    names = [node.id for node in site.nodes()]
    odd = site._reports[names[0]]
    assert isinstance(odd, NodeReport)
    other = replace(odd.cpu, name="Other CPU", hardware="cpu|Other CPU|64 cores|f")
    monkeypatch.setattr(site, "_reports", {**site._reports, names[0]: replace(odd, cpu=other)})
    chosen = site.select("cpu")
    assert chosen.name != "Other CPU"  # two nodes against one
    assert {plan.node for plan in site._plans(chosen).values() if plan.actors} == set(names[1:])
    assert "left aside: 1 x Other CPU" in site.mixture(chosen)
    monkeypatch.setattr(site, "_spec", RaySpec(cores=CORES, kind="other"))
    assert site.select("auto").name == "Other CPU"


# --- drivers of their own: before the engine below holds the devices ---


def small_task(folder: Path, name: str) -> Path:
    """A task that is judged in a moment."""
    path = folder / f"{name}.py"
    path.write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        "@task(x=normal('rows, cols'), workloads=[{'rows': 32, 'cols': 64}], precision='fp32')\n"
        f"def {name}(x):\n    return torch.{name}(x)\n"
    )
    return path


def judged(folder: Path) -> int:
    """Evaluations in the logs of a bench."""
    count = 0
    for log in folder.glob(f"cells/*/*/{LOG_FILE}"):
        with suppress(RunError), RunLog.read(log.parent) as opened:
            count += sum(isinstance(entry.event, TrialJudged) for entry in opened.entries())
    return count


def evaluator_processes() -> set[int]:
    """The actors of all drivers."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any("EvaluatorActor" in word for word in process.cmdline()):
                found.add(process.pid)
    return found


def rows(folder: Path) -> list[tuple[object, ...]]:
    """The cells of a bench, without times."""
    bench = read_results(folder / RESULTS)
    return [
        (c.task, c.method, c.seed, c.status, c.reason, c.trials, c.valid, c.compiled, c.tokens, bool(c.best))
        for c in bench.cells
    ]


@pytest.mark.slow
def test_a_bench_whose_driver_is_killed_is_resumed_and_ends_like_the_local_engine(cluster: Any, tmp_path: Path) -> None:
    words = ["bench", "run", str(small_task(tmp_path, "relu")), str(small_task(tmp_path, "sigmoid"))]
    words += ["--trials", "2", "--time-budget", "0.02"]
    words += ["--methods", "funsearch", "--proposers", "template", "--devices", "cpu", "--stop-at", "0"]
    words += ["--no-verify", "--no-tune", "--no-profile", "--parallel", "1"]
    before = evaluator_processes()
    with (tmp_path / "said").open("w") as said:
        command = [sys.executable, "-m", "warpsmith", *words, "--engine", SPEC, "--out", str(tmp_path / "ray")]
        driver = KilledProcess(command, stdout=said, stderr=said)
    until = time.monotonic() + 120
    with driver:
        while not judged(tmp_path / "ray") and driver.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
    kept = judged(tmp_path / "ray")
    assert kept, (tmp_path / "said").read_text()
    while evaluator_processes() - before and time.monotonic() < until:
        time.sleep(0.2)
    assert not evaluator_processes() - before  # they ended with their driver

    done = CliRunner().invoke(app, ["bench", "resume", str(tmp_path / "ray"), "--engine", SPEC])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, [*words, "--out", str(tmp_path / "local")]).exit_code == 0

    assert judged(tmp_path / "ray") >= kept
    assert rows(tmp_path / "ray") == rows(tmp_path / "local")


# --- verdicts ---


def check(found: dict[int, Evaluation], expected: list[tuple[Candidate, Status]]) -> None:
    assert {index: each.status for index, each in found.items()} == {
        index: status for index, (_, status) in enumerate(expected)
    }
    for index, (candidate, _) in enumerate(expected):
        assert found[index].candidate == candidate.id
        assert ", CPUs " in found[index].environment.node


@pytest.mark.slow
def test_a_dozen_candidates_of_which_a_third_crash_while_a_node_is_killed(
    engine: ray_site.RayEngine, cluster: Any, task_file: Callable[[str], Path], kernel: Callable[[str], Candidate]
) -> None:
    expected = variants(kernel, 12)
    victim = next(node for node in cluster.worker_nodes)
    found: dict[int, Evaluation] = {}
    for index, evaluation in engine.evaluate(task_file("softmax"), [each for each, _ in expected], fresh=True):
        found[index] = evaluation
        if len(found) == 2:
            cluster.remove_node(victim, allow_graceful=False)
    check(found, expected)
    cluster.add_node(wait=False, num_cpus=CORES + 1, object_store_memory=80 << 20)


def test_an_error_of_the_task_is_raised_as_on_this_machine(engine: ray_site.RayEngine, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\nfrom warpsmith import task\n")
    with pytest.raises(TaskError, match="no function under @task"):
        engine.describe(tmp_path / "broken.py")


def own_task(tmp_path: Path) -> Path:
    """A task that imports a module from its folder."""
    (tmp_path / "helper.py").write_text("ROWS = 32\n")
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom warpsmith import normal, task\nfrom helper import ROWS\n\n\n"
        "@task(x=normal('rows, cols'), workloads=[{'rows': ROWS, 'cols': 64}], precision='fp32')\n"
        "def softmax(x):\n    return torch.softmax(x, dim=-1)\n"
    )
    return tmp_path / "mine.py"


def test_a_task_comes_with_the_modules_beside_it(engine: ray_site.RayEngine, tmp_path: Path) -> None:
    assert engine.describe(own_task(tmp_path)).workloads[0].axes == (("rows", 32), ("cols", 64))


@pytest.mark.slow
def test_a_verification_runs_on_the_node(
    engine: ray_site.RayEngine, tmp_path: Path, kernel: Callable[[str], Candidate]
) -> None:
    certificate = Verifier(engine, tolerance=100.0).verify(own_task(tmp_path), kernel("right.cpp"))
    assert certificate.correct, certificate.reason
    assert {check.name for check in certificate.checks} > {EVALUATION, SEEDS, ADDRESS}


def test_optimize_ends_like_the_local_engine(engine: ray_site.RayEngine, tmp_path: Path) -> None:
    options = replace(OPTIONS, parallel=1, trials=2, method="funsearch")
    task = small_task(tmp_path, "relu")
    here = ws.optimize(task, folder=tmp_path / "local", options=options)
    there = ws.optimize(task, folder=tmp_path / "ray", options=replace(options, engine=SPEC))
    assert len(there.trials) == len(here.trials) == 2
    assert there.stopped_because == here.stopped_because == "trials"
    assert [each.status for each in there.trials] == [each.status for each in here.trials]
    assert there.trials[0].source == here.trials[0].source  # later ones follow from measured times
    assert there.best.evaluation.environment.node
    assert f'engine = "{SPEC}"' in (tmp_path / "ray" / "config.toml").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_candidates_of_which_a_third_crash(
    engine: ray_site.RayEngine, cluster: Any, task_file: Callable[[str], Path], kernel: Callable[[str], Candidate]
) -> None:
    expected = variants(kernel, 200)
    found: dict[int, Evaluation] = {}
    for index, evaluation in engine.evaluate(task_file("softmax"), [each for each, _ in expected], fresh=True):
        found[index] = evaluation
        if len(found) == 100:
            cluster.remove_node(next(node for node in cluster.worker_nodes), allow_graceful=False)
    check(found, expected)
    assert len({each.environment.node for each in found.values()}) >= 2
