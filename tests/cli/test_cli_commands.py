"""The command as a user runs it: real processes, real compilers; exit status, standard output, messages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from tests.cli.here import run_here
from tests.processes import KilledProcess
from tests.server.fake import FakeEngine

from warpsmith.backends.source import read_candidate
from warpsmith.cli.main import app
from warpsmith.model.settings import Settings

TASK = '''
import torch
from warpsmith import normal, task

@task(x=normal("rows, cols"), workloads=[{"rows": 64, "cols": 512}, {"rows": 16, "cols": 1000}])
def double(x: torch.Tensor) -> torch.Tensor:
    """Twice as much."""
    print("printed by the task file")
    return x * 2
'''
SIGNATURE = "int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*)"
RIGHT = SIGNATURE + " { for (int64_t i = 0; i < rows * cols; ++i) out[i] = 2 * x[i]; return 0; }\n"
WRONG = RIGHT.replace("2 * x", "3 * x")
BROKEN = RIGHT.replace("2 * x[i]", "2 * y[i]")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Desk:
    """A folder with a task and kernels, and a cache of its own."""

    folder: Path
    environ: dict[str, str]

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        return KilledProcess(
            [sys.executable, "-m", "warpsmith", *words],
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **environ: str) -> Outcome:
        with self.start(*words, **environ) as process:
            out, err = process.communicate(timeout=1200)
        return Outcome(process.returncode, out, err)

    def run_here(self, *words: str, **environ: str) -> Outcome:
        """The same in this process."""
        return Outcome(*run_here(self.folder, self.environ | environ, *words))

    def wrong(self, *words: str, **environ: str) -> str:
        """The one line a mistake gives."""
        return _mistake(self.run(*words, **environ))

    def wrong_here(self, *words: str, **environ: str) -> str:
        """The same in this process."""
        return _mistake(self.run_here(*words, **environ))


def _mistake(outcome: Outcome) -> str:
    assert outcome.status == 2, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    return outcome.err.strip()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(cache_folder / "peaks", folder / "cache" / "peaks")
    for name, text in {
        "double.py": TASK,
        "right.cpp": RIGHT,
        "wrong.cpp": WRONG,
        "broken.cpp": BROKEN,
    }.items():
        (folder / name).write_text(text)
    (folder / "kernel.cu").write_text(RIGHT)
    (folder / "notes.txt").write_text("not a kernel\n")
    (folder / "no_task.py").write_text("print('hello')\n")
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CXX")}
    source = str(Path(__file__).resolve().parents[2] / "src")
    # pytest's own folders are closed to the user that candidates run as.
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o711)
        changes = {"WARPSMITH_CACHE": str(folder / "cache"), "PYTHONPATH": source, "TMPDIR": scratch}
        yield Desk(folder, kept | changes | {"CUDA_VISIBLE_DEVICES": ""})
        assert list(Path(scratch).glob("warpsmith*")) == []  # nothing is left behind


# --- without a worker ---


def test_importing_the_package_and_the_command_line_loads_nothing_heavy(desk: Desk) -> None:
    heavy = "torch", "pydantic", "rich", "numpy"
    for module, names in (
        ("warpsmith", (*heavy, "typer")),
        ("warpsmith.cli.main", ("torch", "pydantic", "numpy")),
    ):
        code = f"import sys, {module}; print([n for n in {names!r} if n in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], env=desk.environ, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"


def test_help_and_version(desk: Desk) -> None:
    helped = desk.run("--help")
    assert helped.status == 0
    assert all(name in helped.out for name in ("evaluate", "contract", "doctor"))
    assert max(map(len, helped.out.splitlines())) <= 80
    options = desk.run("evaluate", "--help").out
    for name in (
        "--device",
        "--json",
        "--baseline",
        "--allow",
        "--precision",
        "--seeds",
        "--fresh",
        "--timeout",
        "--time-budget",
    ):
        assert name in options
    assert re.fullmatch(r"warpsmith \d+\.\d+\.\d+\n", desk.run("--version").out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["evaluate", "none.py", "right.cpp"], "error: there is no task file none.py; TASK is a Python file"),
        (["evaluate", "softmax", "none.cpp"], "error: none.cpp does not exist"),
        (
            ["evaluate", "softmx", "right.cpp"],
            "error: there is no task file softmx; did you mean warpsmith-100/softmax?",
        ),
        (["evaluate", "doubel.py", "right.cpp"], "error: there is no task file doubel.py; did you mean double.py?"),
        (["pool", "search"], "error: pool search needs a TASK"),
        (["evaluate", ".", "right.cpp"], "error: . is a folder; name a task file in it."),
        (
            ["evaluate", "right.cpp", "double.py"],
            "error: right.cpp is a kernel, not a task: the task file comes first",
        ),
        (["evaluate", "double.py", "none.cpp"], "error: none.cpp does not exist"),
        (
            ["evaluate", "double.py", "notes.txt"],
            "error: no backend takes 'notes.txt': its name must end in one of",
        ),
        (
            ["evaluate", "double.py", "right.cpp", "kernel.cu"],
            "error: these files run on different devices: right.cpp",
        ),
        (
            ["evaluate", "--device", "cuda", "double.py", "right.cpp"],
            "error: right.cpp runs on cpu, not on cuda",
        ),
        (["evaluate", "--device", "tpu", "double.py", "right.cpp"], "error: unknown device 'tpu'"),
        (
            ["evaluate", "--baseline", "eager,magic", "double.py", "right.cpp"],
            "error: unknown baseline 'magic'; known",
        ),
        (["evaluate", "--allow", "cublas,-l:x", "double.py", "right.cpp"], "error: --allow '-l:x' is no library;"),
        (["contract", "--header", "--json", "double.py"], "error: --header and --json exclude each other"),
    ],
)
def test_a_mistake_gives_one_clear_line_before_anything_starts(desk: Desk, words: list[str], expected: str) -> None:
    untouched = desk.folder / "untouched"
    line = desk.wrong_here(*words, WARPSMITH_CACHE=str(untouched))
    assert line.startswith(expected)
    assert "\n" not in line
    assert not untouched.exists()


def test_a_process_says_the_same(desk: Desk) -> None:
    untouched = desk.folder / "untouched"
    line = desk.wrong("evaluate", "double.py", "kernel.cu", WARPSMITH_CACHE=str(untouched))
    assert line.startswith("error: kernel.cu needs an NVIDIA GPU and none is visible here")
    assert "\n" not in line
    assert not untouched.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["verify", "kernel.cu"],
            "error: missing argument 'FILE' of `warpsmith verify TASK FILE`; see `warpsmith verify --help`.",
        ),
        (
            ["evaluate", "--colour", "a", "b"],
            "error: no such option: --colour; see `warpsmith evaluate --help`.",
        ),
        (
            ["optimise"],
            "error: no such command 'optimise'; did you mean 'optimize'? See `warpsmith --help`.",
        ),
        (["evaluate", "double.py"], "error: evaluate needs at least one kernel FILE after the task, or --calibrate"),
    ],
)
def test_an_unknown_or_missing_word_is_one_line(desk: Desk, words: list[str], said: str) -> None:
    line = desk.wrong_here(*words)
    assert line.startswith(said)
    assert "\n" not in line


def test_an_option_that_two_commands_take_means_the_same_in_both() -> None:
    command = typer.main.get_command(app)
    bench = {p.name: p.help for p in command.commands["bench"].commands["run"].params}  # type: ignore[attr-defined]
    optimize = {p.name: p.help for p in command.commands["optimize"].params}  # type: ignore[attr-defined]
    shared = (bench.keys() & optimize.keys()) - {"seed", "out", "start"}  # these are about all tasks of a bench
    assert len(shared) > 15
    assert {name: bench[name] for name in shared} == {name: optimize[name] for name in shared}


def test_no_compiler_is_said_before_a_worker_starts(desk: Desk) -> None:
    line = desk.wrong("evaluate", "double.py", "right.cpp", PATH="/nonexistent")
    assert line.startswith("error: right.cpp cannot be built: no C++ compiler: install g++")


def test_a_cache_folder_that_cannot_be_made_is_no_internal_error(desk: Desk) -> None:
    line = desk.wrong("evaluate", "double.py", "right.cpp", WARPSMITH_CACHE=str(desk.folder / "notes.txt" / "cache"))
    assert line.startswith("error: the cache folder")
    assert line.endswith("set WARPSMITH_CACHE.")


def test_an_interrupt_while_modules_are_loaded_is_one_word(desk: Desk) -> None:
    """The import of typer is stood in for by one that is interrupted."""
    code = (
        "import sys, importlib.abc\n"
        "class Interrupted(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from warpsmith.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "doctor"], env=desk.environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted.\n")


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_of_ours_is_one_line_and_a_traceback_on_request(desk: Desk, debug: str) -> None:
    code = "import warpsmith.cli.doctor as d; d.diagnose = None; from warpsmith.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor"],
        env=desk.environ | {"WARPSMITH_DEBUG": debug},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("internal error: TypeError: 'NoneType' object is not callable.")
    assert ("Traceback" in done.stderr) == bool(debug)
    assert ("WARPSMITH_DEBUG=1" in last) == (not debug)


# --- contract ---


def test_contracts_of_many_files_survive_a_bad_one(desk: Desk) -> None:
    outcome = desk.run_here("contract", "--json", "--backend", "all", "double.py", "no_task.py", "double.py::double")
    assert outcome.status == 2
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(d["task"], d["backend"]) for d in lines] == [
        ("double", backend) for backend in ("cpu", "cuda", "torch_module", "triton")
    ] * 2
    assert lines[0]["declaration"].startswith('extern "C" int launch(const float* x, float* out, int64_t rows')
    assert [a["name"] for a in lines[0]["arguments"]] == ["x", "out", "rows", "cols", "workspace", "stream"]
    assert lines[0]["workloads"][0]["axes"] == {"rows": 64, "cols": 512}
    assert lines[0]["declaration"].removeprefix('extern "C" ') in lines[0]["header"]
    assert lines[0]["text"].startswith("# double in C++17 with OpenMP")
    assert outcome.err.count("error: no_task.py is not a task") == 1


def test_a_contract_as_a_header_in_another_precision(desk: Desk) -> None:
    header = desk.run_here("contract", "--backend", "cuda", "--header", "--precision", "fp16", "double.py")
    assert header.status == 0
    assert header.out.startswith("// Contract of task double")
    assert "const __half* x" in header.out


# --- evaluate ---


@pytest.mark.slow  # several evaluations
def test_files_are_judged_once_and_reported_in_the_order_given(desk: Desk) -> None:
    files = ["wrong.cpp", "right.cpp", "broken.cpp", "./right.cpp"]
    outcome = desk.run("evaluate", "--json", "--fresh", "double.py", *files)
    assert outcome.status == 1, outcome
    documents = [json.loads(line) for line in outcome.out.splitlines()]
    assert [d["file"] for d in documents] == files
    expected = ["wrong", "ok", "build_error", "ok"]
    assert [d["status"] for d in documents] == expected, [d["reason"] for d in documents]
    assert documents[1]["candidate"] == documents[3]["candidate"]
    assert documents[1]["seconds"] == documents[3]["seconds"]
    right = documents[1]
    assert right["device"] == "cpu"
    assert right["latency_ms"] > 0
    low, high = right["speedup_interval"]["eager"]
    assert low <= right["speedup"]["eager"] <= high
    assert right["error"] <= right["error_limit"]
    assert len(right["workloads"]) == 2
    assert "was not declared" in documents[2]["reason"]


@pytest.fixture
def called(desk: Desk) -> tuple[str, ...]:
    """The words of a command with a call of its own for one of the files."""
    functions = "import torch  # speed 2\n\ndef {name}(x{more}):\n    return x * {factor}\n"
    (desk.folder / "plain.py").write_text(functions.format(name="plain", more="", factor=2))
    (desk.folder / "scaled.py").write_text(functions.format(name="scaled", more=", factor", factor="factor"))
    (desk.folder / "calls.csv").write_text('file,entry\nscaled.py,"scaled(x, 2.0)"\n')
    quick = ("--time-budget", "0.1", "--seeds", "1", "--allow", "torch")
    return "evaluate", "double.py", *quick, "--json", "--entries", "calls.csv", "--entry", "plain", "plain.py"


def test_each_file_can_have_a_call_of_its_own(
    desk: Desk, called: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(Settings())
    monkeypatch.setattr("warpsmith.cli.evaluate.open_engine", lambda *_, **__: engine)
    outcome = desk.run_here(*called, "scaled.py")
    assert [json.loads(line)["status"] for line in outcome.out.splitlines()] == ["ok", "ok"], outcome.err
    files = {"plain.py": "plain", "scaled.py": "scaled(x, 2.0)"}
    assert set(engine.judged) == {read_candidate(desk.folder / name, entry=call).id for name, call in files.items()}
    said = desk.wrong_here(*called, "right.cpp")
    assert said.startswith("error: calls.csv:2: 'scaled.py' is none of the files to judge")


@pytest.mark.slow  # tests/evaluator/test_python_candidates.py has the calls
def test_each_file_is_called_as_its_line_says(desk: Desk, called: tuple[str, ...]) -> None:
    outcome = desk.run(*called, "scaled.py")
    documents = [json.loads(line) for line in outcome.out.splitlines()]
    assert [d["status"] for d in documents] == ["ok", "ok"], [outcome.err, *(d["reason"] for d in documents)]


@pytest.mark.slow  # tests/evaluator/test_evaluator.py has the cache, tests/cli/test_cli_output.py the card
def test_one_file_is_one_object_and_then_a_card_from_the_cache(desk: Desk) -> None:
    words = ["evaluate", "double.py", "right.cpp", "--time-budget", "0.1", "--seeds", "1"]
    first = desk.run(*words, "--json")
    assert first.status == 0, json.loads(first.out)["reason"]
    assert json.loads(first.out)["cached"] is False
    again = desk.run(*words, NO_COLOR="1")
    assert again.status == 0
    assert "✓ ok  right.cpp  double, fp32, cpu" in again.out
    assert re.search(r"\dx.* (than|as|from) PyTorch eager  \[", again.out)
    assert "from the cache (--fresh judges it again)" in again.out
    assert max(map(len, again.out.splitlines())) <= 80


def test_the_pool_is_searched_for_a_task_that_is_too_large_to_be_judged_here(desk: Desk) -> None:
    outcome = desk.run_here("pool", "search", "conv2d", "--backend", "cuda", "--json")

    assert outcome.status == 0, outcome.err
    (first, *_) = json.loads(outcome.out)["records"]
    assert first["task"].startswith("conv2d")
    assert first["speedup"]["eager"] > 1


def test_a_file_that_is_no_task_is_one_line(desk: Desk) -> None:
    line = desk.wrong("evaluate", "--json", "no_task.py", "right.cpp")
    assert "is not a task: it has neither a function under warpsmith's @task nor class Model" in line
    assert line.startswith("error: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_an_interruption_ends_everything_at_once(desk: Desk, number: signal.Signals, status: int) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; children inherit that
        signal.signal(signal.SIGINT, signal.default_int_handler)
    (desk.folder / "hangs.cpp").write_text(SIGNATURE + " { for (volatile int i = 0;; i = 0) {} }\n")
    words = ["evaluate", "--fresh", "--timeout", "600", "double.py", "hangs.cpp"]
    with desk.start(*words) as process:
        family = _wait_for_family(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == status, out + err
    assert out == ""
    assert "Traceback" not in err
    if number is signal.SIGINT:
        assert err.strip().endswith("interrupted.")
    deadline = time.monotonic() + 10
    while (alive := [pid for pid in family if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []


def _wait_for_family(root: int) -> list[int]:
    """All descendants, once a worker of a worker runs."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        descendants = _descendants(root)
        if len(descendants) >= 4:  # two parents, a judge and a host
            return descendants
        time.sleep(0.05)
    raise AssertionError("no worker was started within two minutes")


def _descendants(pid: int) -> list[int]:
    try:
        tasks = [t.read_text().split() for t in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []  # it ended meanwhile
    children = [int(child) for group in tasks for child in group]
    return children + [each for child in children for each in _descendants(child)]
