"""What is released: the files of the repository agree, and the wheel holds everything that the package reads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import warpsmith
from tests.docs.pages import fences

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "warpsmith"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from the sdist and nothing else."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    subprocess.run([*build, "wheel"], cwd=source, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (made,) = built.glob("*.whl")
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


def test_the_version_is_the_same_everywhere(built: Path, wheel: Path) -> None:
    version = warpsmith.__version__
    assert wheel.name.startswith(f"warpsmith-{version}-")
    assert (built / f"warpsmith-{version}.tar.gz").is_file()
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", cited, re.MULTILINE) == [version]
    changes = re.findall(r"^## (.+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes[0] == (version, *re.findall(r"^date-released: (.+)$", cited, re.MULTILINE))


def test_the_forge_runs_what_a_checkout_must_pass() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.+)", workflow) == [".ci/run", "make docs"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


EXTRAS = {
    "": "warpsmith",
    "llm": "anthropic, openai",
    "mcp": "mcp, warpsmith.agents.mcp_server",
    "ray": "ray, warpsmith.engine.ray_site",
    "serve": "fastapi, uvicorn, prometheus_client, warpsmith.server.app",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "report": "matplotlib",
    "kernelbench": "einops",
    "notebook": "ipykernel, nbclient, pandas",
    "docs": "material, mkdocstrings",
    "nvcc": "warpsmith",  # the compiler is looked for below
    "dev": "hypothesis, mypy, pytest, xdist, hatchling",
}
"""What can be imported with each extra."""
_FIND_NVCC = """
from pathlib import Path
from warpsmith.backends.toolchain import find_nvcc
found = find_nvcc({"PATH": "/usr/bin:/bin"}, toolkit=Path("/nowhere"))
print(found.name, found.command[0])
"""


def test_every_extra_is_installed_by_a_test() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert EXTRAS.keys() | {"torch"} == project["optional-dependencies"].keys() | {""}


class Installation:
    """An environment of its own with the wheel, and an empty folder to work in."""

    def __init__(self, folder: Path, wheel: Path, extra: str, *before: str) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / "bin"
        self.environ = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(folder),
            "WARPSMITH_CACHE": str(folder / "cache"),
        }
        pip = [str(self.bin / "python"), "-m", "pip", "install", "--quiet"]
        for named in (*before, f"{wheel}[{extra}]" if extra else str(wheel)):
            subprocess.run([*pip, named], check=True, capture_output=True)  # with the settings of pip that are here

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / words[0]), *words[1:]]
        return subprocess.run(command, env=self.environ, cwd=self.folder, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", EXTRAS)
def test_a_wheel_in_an_environment_of_its_own_works(wheel: Path, extra: str, tmp_path: Path) -> None:
    """Installed by pip with its dependencies, beside no torch: what needs none works, the rest says what is missing."""
    installed = Installation(tmp_path, wheel, extra)
    assert installed("python", "-c", f"import {EXTRAS[extra]}").returncode == 0
    assert installed("warpsmith", "--version").stdout.strip() == f"warpsmith {warpsmith.__version__}"
    assert "softmax" in installed("warpsmith", "suite", "list").stdout
    if extra == "nvcc":
        found = installed("python", "-c", _FIND_NVCC).stdout
        assert re.match(r"nvcc 13\.0\S* .*/site-packages/nvidia/", found), found
    for words in (("kernels", "list"), ("contract", "softmax"), ("optimize", "softmax"), ("demo",)):
        refused = installed("warpsmith", *words)
        assert refused.returncode == 2, words
        *_, last = refused.stderr.splitlines()
        assert re.match(r"error: PyTorch is not installed.*; install torch >= 2.6", last), refused.stderr
        assert refused.stderr.count("error") == 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_examples_of_the_readme_work_beside_a_torch(wheel: Path, tmp_path: Path) -> None:
    """The torch that is there stays: the extra only asks for one. Then a task, a run, and the kernel in a program."""
    installed = Installation(tmp_path, wheel, "torch", f"torch=={torch.__version__.partition('+')[0]}")
    there = installed("python", "-c", "import torch; print(torch.__version__)").stdout.strip()
    assert there == torch.__version__
    blocks = [fence.text for fence in fences(ROOT / "README.md") if fence.language == "python"]
    (task,) = (text for text in blocks if "@task" in text)
    (load,) = (text for text in blocks if "load(" in text)
    (installed.folder / "rms_norm.py").write_text(task, encoding="utf-8")
    short = ("--trials", "2", "--no-tune", "--no-profile", "--device", "cpu", "--run", "runs/rms_norm")
    run = installed("warpsmith", "optimize", "rms_norm.py", *short)
    assert run.returncode == 0, run.stderr
    used = installed("python", "-c", f"{load}\nprint(op.stats().kernel_calls)")
    assert used.stdout.splitlines()[-1] == "1", used.stderr
