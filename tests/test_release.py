"""What is released: the files of the repository agree, and the wheel holds everything that the package reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import warpsmith

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "warpsmith"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("warpsmith/")}
    assert names == ours
    assert {".py", ".cu", ".cuh", ".j2", ".json"} <= {Path(name).suffix for name in names}


def test_the_version_is_the_same_everywhere(wheel: Path) -> None:
    assert wheel.name.startswith(f"warpsmith-{warpsmith.__version__}-")
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == warpsmith.__version__


def test_the_forge_runs_what_a_checkout_must_pass() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run", "make docs"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", "llm", "report"])
def test_a_wheel_in_an_environment_of_its_own_works(wheel: Path, extra: str, tmp_path: Path) -> None:
    """Installed by pip with its dependencies, beside no torch: what needs none works, the rest says what is missing."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    named = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([python, "-m", "pip", "install", "--quiet", named], check=True, capture_output=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WARPSMITH_CACHE": str(tmp_path / "cache")}

    def warpsmith_command(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python.with_name("warpsmith")), *words]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True)

    assert warpsmith_command("--version").stdout.strip() == f"warpsmith {warpsmith.__version__}"
    assert "softmax" in warpsmith_command("suite", "list").stdout
    for words in (("kernels", "list"), ("contract", "softmax"), ("optimize", "softmax"), ("demo",)):
        refused = warpsmith_command(*words)
        assert refused.returncode == 2, words
        *_, last = refused.stderr.splitlines()
        assert re.match(r"error: PyTorch is not installed.*; install torch >= 2.6", last), refused.stderr
        assert refused.stderr.count("error") == 1
