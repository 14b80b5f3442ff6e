"""`warpsmith doctor`, on this machine and on poorer ones."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from warpsmith.cli.doctor import OK, Check, diagnose
from warpsmith.system.plugins import plugins

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
PARTS = ("MAJOR", "MINOR", "PATCH")
SECRET = "sk-this-must-never-be-printed"


def doctor(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("CXX", "CUDA_HOME", "CUDA_PATH", "FORCE_COLOR")}
    changes = {"PYTHONPATH": SOURCE, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-m", "warpsmith", "doctor", *words],
        env=kept | changes | environ,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_list_as_json_knows_everything_and_tells_no_secret(tmp_path: Path) -> None:
    done = doctor("--json", OPENAI_API_KEY=SECRET, ANTHROPIC_API_KEY="", WARPSMITH_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ready"] is True
    assert "cpu" in document["backends"]
    states = {check["name"]: check["state"] for check in document["checks"]}
    for name in ("Python", "torch", "C++", "CPU", "cache", "OPENAI_API_KEY", "rlimits"):
        assert states[name] == "ok"
    assert states["ANTHROPIC_API_KEY"] == "absent"
    assert {"nvcc", "ncu", "compute-sanitizer", "perf counters", "GPU"} <= set(states)
    assert not (tmp_path / "cache").exists()  # it only looks


@pytest.fixture
def known_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch need not be imported by a process of its own: seconds."""
    monkeypatch.setattr("warpsmith.cli.doctor.check_torch", lambda: Check("torch", OK, "2.11.0"))


@pytest.mark.usefixtures("known_torch")
def test_every_variable_that_is_read_is_listed_without_its_value() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(SOURCE).rglob("*.py")]
    read = {name for text in sources for name in re.findall(r"\bWARPSMITH_[A-Z_]+", text)}
    # These are set, for commands that propose and for agents.
    read -= {"WARPSMITH_BRIEF", *(f"WARPSMITH_{name}" for name in ("FROM", "STEP", "STEP_SOCKET", "STEP_TOKEN"))}
    for provider in plugins("warpsmith.llm").values():
        read |= {provider.key_name, provider.url_name}
    groups = diagnose({"PATH": os.environ["PATH"], **dict.fromkeys(read, SECRET)}).groups
    listed = {check.name: check for _, checks in groups for check in checks}
    assert read <= set(listed)
    for name in read:
        assert (listed[name].state, listed[name].detail[:3]) == ("ok", "set")
        assert name == "WARPSMITH_CACHE" or SECRET not in str(listed[name])


def test_a_machine_without_torch_or_compiler_is_told_what_to_install(tmp_path: Path) -> None:
    broken = tmp_path / "modules"
    (broken / "torch").mkdir(parents=True)
    (broken / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.99: cannot open')\n")
    done = doctor(PYTHONPATH=f"{broken}{os.pathsep}{SOURCE}", PATH="/nonexistent", NO_COLOR="1", COLUMNS="80")
    assert done.returncode == 2
    assert "✗  torch               ImportError: libcudart.so.99: cannot open" in done.stdout
    assert "→ install g++" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr.startswith("error: no kernel can be judged here: install torch >= 2.6")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("known_torch")
def test_cutlass_is_optional_and_the_list_says_where_it_is(tmp_path: Path) -> None:
    def line(root: Path) -> tuple[str, str, str]:
        groups = dict(diagnose({"PATH": os.environ["PATH"], "CUTLASS_PATH": str(root)}).groups)
        (found,) = (check for check in groups["Compilers"] if check.name == "CUTLASS")
        return found.state, found.detail, found.advice

    state, detail, advice = line(tmp_path)
    assert state == "absent"
    assert detail.startswith(f"CUTLASS_PATH is set to {tmp_path}, which has no include/cutlass/version.h")
    assert "checkout" in advice
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    version = "".join(f"#define CUTLASS_{part} {number}\n" for part, number in zip(PARTS, (4, 2, 0), strict=True))
    (tmp_path / "include" / "cutlass" / "version.h").write_text(version)
    assert line(tmp_path) == ("ok", f"4.2.0, CUTLASS_PATH ({tmp_path}/include)", "")


@pytest.mark.slow  # a process of its own
def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    # A file in the way: root may write into any folder, but not into a file.
    (tmp_path / "file").touch(mode=stat.S_IRUSR)
    done = doctor("--json", WARPSMITH_CACHE=str(tmp_path / "file" / "cache"))
    check = next(c for c in json.loads(done.stdout)["checks"] if c["name"] == "cache")
    assert check["state"] == "missing"
    assert "WARPSMITH_CACHE" in check["advice"]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_torch_that_is_compiled_anew_at_every_start_is_said(keeps: bool, tmp_path: Path) -> None:
    fake = tmp_path / "modules" / "torch.py"
    fake.parent.mkdir()
    fake.write_text(
        "from types import SimpleNamespace\n__version__ = '2.11.0'\nversion = SimpleNamespace(cuda='')\n"
        "cuda = SimpleNamespace(is_available=lambda: False)\n"
    )
    environ = {} if keeps else {"PYTHONDONTWRITEBYTECODE": "1"}
    done = doctor(
        "--json", **{"PYTHONPATH": f"{fake.parent}{os.pathsep}{SOURCE}", "PYTHONDONTWRITEBYTECODE": ""} | environ
    )
    check = next(c for c in json.loads(done.stdout)["checks"] if c["name"] == "torch")
    assert check["state"] == "ok", check
    assert ("PYTHONPYCACHEPREFIX" in check["advice"]) is not keeps
