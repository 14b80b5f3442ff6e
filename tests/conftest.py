"""What several test folders share: a cache of their own, quick settings, one evaluator for the session."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import settings as hypothesis_settings

from tests import shared_folder
from tests.attacks.model import OUTCOME, summary_line
from tests.watched import pytest_runtest_logreport as pytest_runtest_logreport
from tests.watched import pytest_runtest_protocol as pytest_runtest_protocol
from tests.watched import pytest_testnodedown as pytest_testnodedown
from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.settings import Limits, Settings

# Tests fork processes of their own: torch must not have started threads in this one by then. And kernels are judged
# with one thread: with two on two processors that others use, every parallel region waits for the one that is away.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes are started, each with the same modules
# Prompts and verdicts of tests are the same whether CUTLASS is installed here or not; tests of it name their own.
os.environ["INSTALLED_CUTLASS_PATH"] = os.environ.get("CUTLASS_PATH", "")
os.environ["CUTLASS_PATH"] = "/nonexistent"

# The same examples every time: a test run says something about the change, not about luck. To search for new
# counterexamples, run with HYPOTHESIS_PROFILE=default.
hypothesis_settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis_settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

ROOT = Path(__file__).resolve().parent.parent

_LONGEST_FIRST = (
    "attacks/test_cpu_attacks",
    "evaluator/test_evaluator",
    "cli/test_cli_search",
    "evaluator/test_statuses",
    "attacks/test_python_attacks",
    "engine/test_ray",
    "cli/test_cli_bench",
    "search/test_methods_live",
    "search/test_models",
    "evaluator/test_python_candidates",
    "verification/test_verify",
    "kernel_templates/test_templates",
    "cli/test_cli_commands",
    "test_api",
    "evaluator/test_calibration",
    "server/test_live_page",
    "docs/test_docs",
    "honest/test_honest_kernels",
    "collection/test_held_convolution",
    "honest/test_unusual_kernels",
    "collection/test_register_product",
    "collection/test_pool_windows",
    "collection/test_attention_form",
    "collection/test_convolution_ways",
    "kernel_templates/test_templates_cluster",
    "collection/test_axis_scan",
    "evaluator/guards/test_imports",
    "tasks/test_suites",
    "cli/test_cli_doctor",
    "evaluator/test_sandbox",
    "test_watched",
    "runtime/test_load",
    "verification/test_sanitizers",
    "cli/test_cli_verify",
    "backends/test_build_cpu",
    "fuzz/test_strangers",
    "kernel_templates/test_templates_cuda",
    "profiling/test_profiling",
    "kernel_templates/test_in_parts_values",
    "llm/test_failures",
    "search/test_steps",
    "cli/test_cli_calibrate",
    "evaluator/test_tracing",
    "experiments/test_published",
    "report/test_browser",
    "search/test_kills",
    "search/test_tuning",
)
"""Files whose tests take longest: a worker that gets one of them last keeps everybody waiting."""


def pytest_configure(config: pytest.Config) -> None:
    """In a run of all tests, each test process collects other folders first: then each rewrites the assertions of some
    files, which takes as long as all imports together, and reads those of the rest from the cache."""
    shared_folder.make(config)
    worker = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    if [Path(argument) for argument in config.args] in ([Path("tests")], [ROOT / "tests"]):
        files = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py"))
        begin = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
        config.args[:] = [*files[begin:], *files[:begin]]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what all processes of the run shared."""
    shared_folder.remove(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nearly everything that is made until all tests are collected stays: the collector would look through all of it
    again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the others by name."""
    order = {name: place for place, name in enumerate(_LONGEST_FIRST)}

    @cache
    def place(file: Path) -> tuple[int, str]:
        path = file.relative_to(ROOT / "tests").with_suffix("").as_posix() if ROOT in file.parents else ""
        return order.get(path, len(order)), str(file)

    items.sort(key=lambda item: place(item.path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line on the attacks that were tried, wherever they ran."""
    reports = [r for group in terminalreporter.stats.values() for r in group if getattr(r, "when", "") == "call"]
    outcomes = [str(value) for report in reports for name, value in report.user_properties if name == OUTCOME]
    if outcomes:
        terminalreporter.write_line(summary_line(outcomes))


_MEASURE = """
import json, os, sys
from pathlib import Path
import torch
from warpsmith.hardware.device import select_device, cpu_threads
from warpsmith.hardware.peaks import load_or_measure
for said in ("1", ""):
    os.environ["OMP_NUM_THREADS"] = said
    torch.set_num_threads(cpu_threads())
    load_or_measure(Path(sys.argv[1]), select_device("cpu").key, torch.device("cpu"))
for path in (Path(sys.argv[1]) / "peaks").iterdir():
    path.write_text(json.dumps(json.loads(path.read_text()) | {"l2_bytes": 1 << 20, "spread": 0, "load": 0}))
"""


def _peaks() -> Path:
    """What the CPU can do, with one thread and with all, measured once for all workers of this run.

    It is said to have a small cache: pushing everything out of it between calls, which keeps timings honest and most
    tests waiting, then takes a tenth of the time.
    """
    folder = Path(tempfile.gettempdir()) / f"test-peaks-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "peaks").exists():
            subprocess.run([sys.executable, "-c", _MEASURE, str(folder)], check=True)
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "peaks"


_SHARED = ("builds", "calibration", "collection", "instruments", "native")
"""Parts of the cache that any number of processes may share and that say the same to all of them."""


@pytest.fixture(scope="session", autouse=True)
def cache_folder() -> Iterator[Path]:
    """Builds, peaks and verdicts of the tests: never the user's own."""
    folder = Path(tempfile.mkdtemp(prefix="test-cache-"))
    for name in _SHARED:
        place = shared_folder.shared_folder() / name
        place.mkdir(exist_ok=True)
        (folder / name).symlink_to(place)
    before = os.environ.get("WARPSMITH_CACHE")
    os.environ["WARPSMITH_CACHE"] = str(folder)
    os.environ["WARPSMITH_POOL"] = str(folder / "pool.jsonl")
    os.environ["WARPSMITH_CONFIG"] = str(folder / "config")
    shutil.copytree(_peaks(), folder / "peaks")
    yield folder
    if before is None:
        del os.environ["WARPSMITH_CACHE"]
    else:
        os.environ["WARPSMITH_CACHE"] = before
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def same_environment(cache_folder: Path) -> Iterator[None]:
    """What a file of tests changes in the environment does not reach the next one in the same process."""
    before = {name: value for name, value in os.environ.items() if name.startswith("WARPSMITH_")}
    yield
    after = {name: value for name, value in os.environ.items() if name.startswith("WARPSMITH_")}
    for name in after:
        del os.environ[name]
    os.environ.update(before)
    assert after == before, "a test left this in the environment"


@pytest.fixture(scope="session")
def quick_settings() -> Settings:
    """Everything is done, none of it for long."""
    limits = Limits(
        start_s=5.0,
        launch_s=2.0,
        total_s=60.0,
        memory_bytes=512 << 20,
        workspace_bytes=64 << 20,
        scratch_bytes=1 << 20,
    )
    fewest = 6  # with which there is an interval at all
    return Settings(seeds=1, min_samples=fewest, max_samples=12, target_width=0.2, timing_budget_s=0.05, limits=limits)


@pytest.fixture(scope="session")
def evaluator(quick_settings: Settings, cache_folder: Path) -> Iterator[Evaluator]:
    """One evaluator on the CPU: starting one costs seconds, judging with it does not."""
    with Evaluator("cpu", quick_settings) as shared:
        yield shared


@pytest.fixture(scope="session")
def with_settings(evaluator: Evaluator) -> Callable[[Settings], AbstractContextManager[Evaluator]]:
    """That evaluator with other settings for a while."""

    @contextmanager
    def changed(settings: Settings) -> Iterator[Evaluator]:
        usual = evaluator.settings
        evaluator.renew(settings)
        try:
            yield evaluator
        finally:
            evaluator.renew(usual)

    return changed


@pytest.fixture(scope="session")
def all_processors(cache_folder: Path) -> Callable[[Settings], AbstractContextManager[Evaluator]]:
    """Another one, which gives kernels all the threads that a user's would."""

    @contextmanager
    def made(settings: Settings) -> Iterator[Evaluator]:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("OMP_NUM_THREADS")
            with Evaluator("cpu", settings) as evaluator:
                yield evaluator

    return made


@pytest.fixture(scope="session")
def task_file() -> Callable[[str], Path]:
    """The path of a task of tests/kernels/tasks."""
    return lambda name: ROOT / "tests" / "kernels" / "tasks" / f"{name}.py"


@pytest.fixture(scope="session")
def kernel_path() -> Callable[[str], Path]:
    """A kernel by file name: one of tests/kernels, or an example."""
    folders = (ROOT / "tests/kernels/cpu", ROOT / "tests/kernels/cuda", ROOT / "examples/kernels")
    return lambda name: next(folder / name for folder in folders if (folder / name).is_file())


@pytest.fixture(scope="session")
def kernel(kernel_path: Callable[[str], Path]) -> Callable[[str], Candidate]:
    """The same, read."""
    return lambda name: read_candidate(kernel_path(name))


@contextmanager
def _marked_temp() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="test-temp-"))
    folder.chmod(0o711)  # candidates run as another user where we are root
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def marked_temp() -> Iterator[Path]:
    """A temporary folder of the test's own; whatever is started meanwhile carries its path as TMPDIR."""
    with _marked_temp() as folder:
        yield folder


@pytest.fixture(scope="module")
def marked_temp_of_module() -> Iterator[Path]:
    """The same for all tests of a module together."""
    with _marked_temp() as folder:
        yield folder


@pytest.fixture(scope="session")
def left_running() -> Callable[[Path], list[str]]:
    """Processes that carry a `marked_temp`, after they had five seconds to end."""

    def look(folder: Path) -> list[str]:
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue  # gone meanwhile, or somebody else's
        return found

    def look_patiently(folder: Path) -> list[str]:
        deadline = time.monotonic() + 5.0
        while (found := look(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    return look_patiently
