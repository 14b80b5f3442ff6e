"""Sanitizers on candidates that nothing else has looked at: real builds, real processes, and tools that do not work."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.processes import KilledProcess

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.worker_pool import (
    host_environ,
    make_scratch_folder,
    python_hosts_drop_user,
    readable_paths,
)
from warpsmith.hardware.device import Device, select_device
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import ADDRESS, DEVICE_TOOLS, UNDEFINED, CheckOutcome, CheckStatus
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task
from warpsmith.system.processes import run_watched
from warpsmith.tasks.load import load_task
from warpsmith.verification.device_sanitizers import PROGRAM, check_cuda
from warpsmith.verification.sanitizers import SanitizerContext, check_cpu, find_cuda_tool
from warpsmith.verification.standalone_run import InputFiles, StandaloneCandidate, StandaloneSettings, run_standalone

TaskFile = Callable[[str], Path]
PLANTED = Path(__file__).resolve().parent.parent / "kernels" / "verify"
COUNT = 1000


@pytest.fixture
def folder() -> Iterator[Path]:
    """As a verification has one: others may pass through it."""
    made = make_scratch_folder()
    yield made.path
    made.remove()


def make_context(folder: Path, cache: Path, device: Device, environ: dict[str, str] | None = None) -> SanitizerContext:
    settings = StandaloneSettings(
        device.kind, 0, 2, host_environ(2), readable_paths(device.kind), 1 << 30, 60.0, folder
    )
    return SanitizerContext(device, Paths(cache), Limits(), settings, os.environ if environ is None else environ)


@pytest.fixture
def context(folder: Path, cache_folder: Path) -> SanitizerContext:
    return make_context(folder, cache_folder, select_device("cpu"))


@pytest.fixture(scope="module")
def relu(task_file: TaskFile) -> Task:
    return load_task(task_file("relu")).task


def part_of(context: SanitizerContext, task: Task, candidate: Candidate) -> StandaloneCandidate:
    """The candidate with one small input set."""
    inputs = context.settings.folder / "samples" / "case0"
    inputs.mkdir(parents=True)
    (inputs / "x.bin").write_bytes(struct.pack(f"{COUNT}f", *(i - 500.0 for i in range(COUNT))))
    sample = InputFiles("case0", "small", {"n": COUNT}, {"x": 4 * COUNT}, {"out": 4 * COUNT})
    return StandaloneCandidate(
        Path(), context.backend(candidate.backend).contract(task), task, (sample,), inputs.parent
    )


def appraised(folder: Path) -> str:
    """What the judge would say of a ReLU."""
    got = struct.unpack(f"{COUNT}f", (folder / "case0" / "out.bin").read_bytes())
    return "" if list(got) == [max(i - 500.0, 0.0) for i in range(COUNT)] else "out differs."


def relu_with(extra: str) -> Candidate:
    text = (
        "static float kept[16];\n"
        'extern "C" int launch(const float* x, float* out, int64_t n, void*, void*) {\n'
        "  for (int64_t i = 0; i < n; ++i) out[i] = std::max(x[i], 0.0f);\n"
        f"  {extra}\n  return 0;\n}}\n"
    )
    return Candidate((SourceFile("made.cpp", text),), "cpu")


def checked(context: SanitizerContext, task: Task, candidate: Candidate) -> dict[str, CheckOutcome]:
    return {c.name: c for c in check_cpu(context, candidate, part_of(context, task, candidate), appraised)}


def test_an_honest_kernel_passes_both(context: SanitizerContext, relu: Task) -> None:
    found = checked(context, relu, relu_with(""))
    assert [found[name].outcome for name in (ADDRESS, UNDEFINED)] == [CheckStatus.PASSED] * 2, found
    assert ("workloads", "small") in found[ADDRESS].figures


@pytest.mark.parametrize(
    ("extra", "name", "says"),
    [
        ("if (x[n] > 1e30f) return 1;", ADDRESS, "past the end of a buffer of 4000 bytes (made.cpp:4 in launch)"),
        ("if (out[-1] > 1e30f) return 1;", ADDRESS, "4 bytes before a buffer"),
        ("out[n] = 1.0f;", ADDRESS, "write of 4 bytes"),
        ("if (kept[n / 50] > 1e30f) return 1;", UNDEFINED, "out of bounds for type 'float [16]'"),
        ("const float* k = kept; if (k[n / 50] > 1e30f) return 1;", UNDEFINED, "insufficient space"),
        ("if ((1 << (n / 25)) == 77) return 1;", UNDEFINED, "shift exponent 40"),
        ("if (std::vector<float>(8)[n / 100] > 1e30f) return 1;", ADDRESS, "assertion"),
    ],
)
def test_each_fault_is_found_and_its_line_named(
    extra: str, name: str, says: str, context: SanitizerContext, relu: Task
) -> None:
    found = checked(context, relu, relu_with(extra))
    assert found[name].outcome is CheckStatus.FAILED, found
    assert says in found[name].detail
    assert "made.cpp:4" in found[name].detail


def test_an_overflow_that_does_no_harm_is_found_too(context: SanitizerContext, relu: Task) -> None:
    found = checked(context, relu, read_candidate(PLANTED / "signed_overflow.cpp"))
    assert found[UNDEFINED].outcome is CheckStatus.FAILED
    assert "signed_overflow.cpp:7: signed integer overflow" in found[UNDEFINED].detail


def test_what_it_reports_itself_is_passed_on(context: SanitizerContext, relu: Task) -> None:
    found = checked(context, relu, relu_with("return 9;"))
    assert found[ADDRESS].outcome is CheckStatus.FAILED
    assert "returned 9" in found[ADDRESS].detail


def test_a_sanitized_build_that_computes_something_else_fails(context: SanitizerContext, relu: Task) -> None:
    # _GLIBCXX_ASSERTIONS tells the build as well, without the name of any sanitizer.
    found = checked(context, relu, relu_with("\n#ifdef _GLIBCXX_ASSERTIONS\n  out[0] = 5.0f;\n#endif\n"))
    assert found[ADDRESS].outcome is CheckStatus.FAILED
    assert "computes something else" in found[ADDRESS].detail


def test_a_source_that_names_sanitizers_fails_unseen(context: SanitizerContext, relu: Task) -> None:
    found = checked(context, relu, read_candidate(PLANTED / "hides_from_sanitizers.cpp"))
    assert {c.outcome for c in found.values()} == {CheckStatus.FAILED}
    assert "hides_from_sanitizers.cpp:3" in found[ADDRESS].detail


@pytest.mark.slow  # it waits for a limit
def test_an_endless_loop_is_ended_and_concludes_nothing(context: SanitizerContext, relu: Task, folder: Path) -> None:
    patient = replace(context, settings=replace(context.settings, limit_s=60.0))
    checked(patient, relu, relu_with(""))  # so that the proof of the tools is not what takes the time
    shutil.rmtree(folder / "samples")
    shutil.rmtree(folder / "sanitized")
    hasty = replace(context, settings=replace(context.settings, limit_s=4.0))
    found = checked(hasty, relu, relu_with("for (volatile int64_t i = 0; n > 0; ++i) {}"))
    assert {c.outcome for c in found.values()} == {CheckStatus.UNAVAILABLE}
    assert "did not finish" in found[ADDRESS].detail


def test_a_compiler_without_the_library_is_said(folder: Path, cache_folder: Path, relu: Task, tmp_path: Path) -> None:
    real = shutil.which("g++")
    assert real is not None
    poor = tmp_path / "g++"
    poor.write_text(f'#!/bin/sh\ncase "$1" in -print-file-name=*) echo libasan.so;; *) exec {real} "$@";; esac\n')
    poor.chmod(0o755)
    context = make_context(folder, cache_folder, select_device("cpu"), {"CXX": str(poor), "PATH": os.environ["PATH"]})
    found = checked(context, relu, relu_with(""))
    assert {c.outcome for c in found.values()} == {CheckStatus.UNAVAILABLE}
    assert "not installed" in found[ADDRESS].detail


def test_a_sanitizer_that_finds_nothing_planted_is_not_believed(
    folder: Path, tmp_path: Path, relu: Task, cache_folder: Path
) -> None:
    """The library answers and does nothing: without the planted fault this would look like a pass."""
    real = shutil.which("g++")
    assert real is not None
    empty = tmp_path / "libasan.so"
    subprocess.run([real, "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    plain = tmp_path / "g++"
    plain.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -print-file-name=*) echo {empty}; exit;; esac\n'
        'for word; do shift; case "$word" in -fsanitize=*|-fno-sanitize*) ;; *) set -- "$@" "$word";; esac; done\n'
        f'exec {real} "$@"\n'
    )
    plain.chmod(0o755)
    os.chmod(tmp_path, 0o755)
    context = make_context(
        folder, tmp_path / "cache", select_device("cpu"), {"CXX": str(plain), "PATH": os.environ["PATH"]}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(plain))  # the backend builds with it too
        found = checked(context, relu, relu_with("out[n] = 1.0f;"))
    assert {c.outcome for c in found.values()} == {CheckStatus.UNAVAILABLE}
    assert "planted" in found[ADDRESS].detail


# --- processes ---


def test_a_python_candidate_runs_alone_too(context: SanitizerContext, relu: Task) -> None:
    """On the CPU there is no tool for it; the process is the one that compute-sanitizer runs on a GPU."""
    text = (
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clamp_min(0)\n"
    )
    candidate = Candidate((SourceFile("made.py", text),), "torch_module")
    standalone = part_of(context, relu, candidate)
    built = (
        backend_named("torch_module")
        .configured(context.paths, context.limits)
        .build(candidate, standalone.contract, Target(DeviceKind.CPU, "native"))
    )
    assert isinstance(built, Artifact), built
    shaped = replace(relu, tensors=tuple(replace(t, dims=(COUNT,)) for t in relu.tensors))
    roomy = replace(context.settings, memory_bytes=8 << 30)
    end = run_standalone(
        roomy, replace(standalone, library=built.library, task=shaped, drop_user=python_hosts_drop_user()), "alone"
    )
    assert end.finished, end
    assert appraised(end.scratch) == ""
    assert end.status is not None
    assert "seccomp" in " ".join(end.status.layers)


def test_a_program_and_all_it_started_end_in_time(tmp_path: Path) -> None:
    marker = f"warpsmith-{os.getpid()}-{time.time_ns()}"
    command = [
        sys.executable,
        "-c",
        "import subprocess,sys;subprocess.run(['sleep','77'],env={'M':sys.argv[1]})",
        marker,
    ]
    ended = run_watched(command, folder=tmp_path, environ={"PATH": "/usr/bin:/bin"}, limit_s=1.0, log=tmp_path / "log")
    assert ended.timed_out
    assert not [p.pid for p in psutil.process_iter() if marker in _surroundings(p)]


def test_a_program_does_not_outlive_us(
    tmp_path: Path, marked_temp: Path, left_running: Callable[[Path], list[str]]
) -> None:
    script = (
        "import os\nfrom pathlib import Path\nfrom warpsmith.system.processes import run_watched\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "run_watched(['sleep', '77'], folder=Path('/'), environ=os.environ, limit_s=70.0, log=log)\n"
    )
    with KilledProcess([sys.executable, "-c", script]) as supervisor:
        deadline = time.monotonic() + 20.0
        while not psutil.Process(supervisor.pid).children(recursive=True) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert psutil.Process(supervisor.pid).children(recursive=True)
        time.sleep(0.2)
    assert left_running(marked_temp) == []


def _surroundings(process: psutil.Process) -> str:
    try:
        return " ".join([*process.cmdline(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return ""


# --- compute-sanitizer, played by a script: what we do with its answers ---


_PRETENDER = """#!{python}
import json, sys
from pathlib import Path
words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.0")
    sys.exit()
tool, log = words[words.index("--tool") + 1], words[words.index("--log-file") + 1]
plan = json.loads(Path(words[-1]).read_text())
fault = {{"memcheck": 1, "racecheck": 2, "initcheck": 3, "synccheck": 4}}[tool]
planted = ["number", fault] in plan["cases"][0]["arguments"]
answer = {answers}.get(tool, "clean")
if planted and answer != "blind":
    lines, status = ["Something planted", "ERROR SUMMARY: 1 error"], 77
elif answer == "broken":
    lines, status = ["Error: No attachable process found."], 0
elif answer == "fault":
    place = "    at f()+0x1 in made.cu:3"
    lines, status = ["Invalid __global__ read of size 4 bytes", place, "ERROR SUMMARY: 2 errors"], 77
else:
    lines, status = ["ERROR SUMMARY: 0 errors"], 0
Path(log).write_text("".join("========= " + line + "\\n" for line in ["COMPUTE-SANITIZER", *lines]))
told = {{"layers": ["seccomp"], "said": "", "done": True}}
(Path(plan["scratch"]) / "status.json").write_text(json.dumps(told))
sys.exit(status)
"""


@pytest.fixture
def pretender(folder: Path, cache_folder: Path, tmp_path: Path) -> Callable[[dict[str, str]], SanitizerContext]:
    device = Device(DeviceKind.CUDA, 0, "a GPU", "sm_90a", "a-gpu")
    if not backend_named("cuda").available().build:
        pytest.skip(backend_named("cuda").available().detail)

    def make(answers: dict[str, str]) -> SanitizerContext:
        program = tmp_path / "bin" / "compute-sanitizer"
        program.parent.mkdir()
        program.write_text(_PRETENDER.format(python=sys.executable, answers=repr(answers)))
        program.chmod(0o755)
        environ = {"CUDA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        made = make_context(folder, tmp_path / "cache", device, environ)
        return replace(made, paths=Paths(tmp_path / "cache"))

    return make


@pytest.mark.nvcc
@pytest.mark.slow  # it builds with nvcc
def test_the_answers_of_a_gpus_tools_are_told_apart(
    pretender: Callable[[dict[str, str]], SanitizerContext], relu: Task
) -> None:
    context = pretender({"memcheck": "fault", "racecheck": "broken", "initcheck": "blind"})
    candidate = read_candidate(PLANTED.parent.parent.parent / "examples" / "kernels" / "relu.cu")
    standalone = part_of(context, relu, candidate)
    built = context.backend(DeviceKind.CUDA).build(candidate, standalone.contract, Target(DeviceKind.CUDA, "sm_90a"))
    assert isinstance(built, Artifact), built
    asked: list[Path] = []

    def appraise(results: Path) -> str:
        asked.append(results)
        return ""

    found = {c.name: c for c in check_cuda(context, replace(standalone, library=built.library), appraise)}
    assert tuple(found) == DEVICE_TOOLS
    assert found["memcheck"].outcome is CheckStatus.FAILED
    assert "made.cu:3" in found["memcheck"].detail
    assert found["racecheck"].outcome is CheckStatus.UNAVAILABLE
    assert "no summary" in found["racecheck"].detail
    assert found["initcheck"].outcome is CheckStatus.UNAVAILABLE
    assert "planted" in found["initcheck"].detail
    assert found["synccheck"].outcome is CheckStatus.PASSED
    assert [f.parent.name for f in asked] == ["synccheck"]  # its results were judged
    kept = [path.name.split("-")[0] for path in (context.paths.cache / "instruments").glob("*.json")]
    assert sorted(kept) == ["memcheck", "racecheck", "synccheck"]  # proven ones need no second proof


def test_without_the_tools_nothing_is_verified(folder: Path, cache_folder: Path, relu: Task) -> None:
    context = make_context(
        folder, cache_folder, Device(DeviceKind.CUDA, 0, "a GPU", "sm_90a", "a-gpu"), {"PATH": "/nowhere"}
    )
    if find_cuda_tool(context.environ, PROGRAM) is not None:
        pytest.skip("this machine has compute-sanitizer where it is always looked for")
    candidate = Candidate((SourceFile("made.cu", ""),), "cuda")
    found = check_cuda(context, part_of(context, relu, candidate), lambda _: "")
    assert [c.outcome for c in found] == [CheckStatus.UNAVAILABLE] * len(DEVICE_TOOLS)
    assert "compute-sanitizer is not installed" in found[0].detail
