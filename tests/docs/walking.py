"""Does what a page says, in a folder of its own with what the page takes for granted. Commands are real processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, Part, fences, parts
from tests.docs.table import ONE, TABLE, Compiled, Excepted, Execute, Run
from tests.scripted import Body, say
from tests.scripted import Step as Answer

_LIMIT_S = 280
_KERNEL = ROOT / "examples/kernels/softmax.cpp"
_SMALLER = {  # task files that pages show, at sizes that cost little
    "softmax.py": ('[{"rows": 1024, "cols": 1024}, {"rows": 64, "cols": 16000}]', '[{"rows": 64, "cols": 512}]'),
    "rms_norm.py": (
        '[{"rows": 512, "cols": 1024}, {"rows": 1000, "cols": 768}]',
        '[{"rows": 64, "cols": 512}]',
    ),
}
_MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Walk:
    """A page being followed."""

    page: Path
    folder: Path
    servers: Mapping[str, str]  # addresses by the names that commands of the table have for them
    environ: Mapping[str, str]

    def prepare(self) -> None:
        """What a reader has by then: files that the page shows, and what it says is there."""
        self._write("softmax.py", ROOT / "docs/tasks.md")
        for fence in fences(self.page):
            if fence.file:
                self._write(fence.file, self.page)
        prepare = _PREPARED.get(self.page.name)
        if prepare:
            prepare(self)

    def follow(self, *, quick: bool) -> None:
        """All steps in order; only the quick ones where that is asked."""
        for part, step in zip(parts(self.page), TABLE[name_of(self.page)], strict=True):
            match step:
                case Run() if step.quick or not quick:
                    more = step.more.format(**self.servers)
                    self._hold(part, step, self.run(f"{step.text} {more}", step.status))
                case Execute() if not quick:
                    program = "\n".join((step.before, part.program, step.after))
                    (self.folder / "block.py").write_text(program, encoding="utf-8")
                    self._hold(part, step, self.run("python block.py"))
                case Run() | Execute() | Excepted() | Compiled():
                    continue

    def run(self, command: str, status: int = 0) -> str:
        """Run a command; what it printed. `status` -1: 0 or 1."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
        )
        expected = (0, 1) if status == -1 else (status,)
        assert done.returncode in expected, f"{command}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _hold(self, part: Part, step: Run | Execute, printed: str) -> None:
        assert re.search(step.says, printed), f"{part.where}\nshould say {step.says!r}, and says:\n{printed}"

    def _write(self, name: str, page: Path) -> None:
        """A file that a page shows."""
        (text,) = [fence.text for fence in fences(page) if fence.file == name]
        shown, smaller = _SMALLER.get(name, ("", ""))
        assert shown in text, f"{page.name} shows another {name} than this test makes smaller"
        (self.folder / name).write_text(text.replace(shown, smaller) if shown else text, encoding="utf-8")

    def first_run(self) -> None:
        """The run of the quick start."""
        self._write("rms_norm.py", ROOT / "docs/quickstart.md")
        self.run(f"warpsmith optimize rms_norm.py --run runs/first {ONE}")


def name_of(page: Path) -> str:
    """As the table has it."""
    return page.relative_to(ROOT).as_posix()


def environment(cache: Path, servers: Mapping[str, str]) -> dict[str, str]:
    """A user's environment: this Python first, no keys but made-up ones, and only where there are servers."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    kept["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    kept |= {"WARPSMITH_CACHE": str(cache), "WARPSMITH_POOL": str(cache / "pool-of-docs.jsonl"), "COLUMNS": "120"}
    for provider, url in servers.items():
        kept |= {f"{provider.upper()}_BASE_URL": url, f"{provider.upper()}_API_KEY": "made-up-for-this-test"}
    return kept


def model(_number: int, body: Body) -> Answer:
    """A model that always answers with the same kernel, or with a strategy where it is asked for one."""
    return say(
        f"strategy: one row per thread\nthought: rows are independent\ncode:\n```cpp\n{_KERNEL.read_text()}```\n"
    )


def _agents(walk: Walk) -> None:
    kernel = _KERNEL.read_text(encoding="utf-8")
    loop = "#pragma omp parallel for"
    assert kernel.count(f"{loop}\n") == 1
    for name, schedule in (
        ("kernel", ""),
        ("faster", "(static, 2)"),
        ("third", "(static, 8)"),
        ("fourth", "(dynamic)"),
    ):
        text = kernel.replace(f"{loop}\n", f"{loop}{schedule and f' schedule{schedule}'}\n")
        (walk.folder / f"{name}.cpp").write_text(text, encoding="utf-8")


def _benchmarks(walk: Walk) -> None:
    shutil.copy(_KERNEL, walk.folder / "softmax.cpp")
    walk.run(f"warpsmith bench relu@small softmax@small --methods cupilot --out benches/second --no-verify {ONE}")


def _contract(walk: Walk) -> None:
    shutil.copy(ROOT / "examples/kernels/softmax_extension.cpp", walk.folder)
    level = walk.folder / "kernelbench/level1"
    level.mkdir(parents=True)
    (level / "23_Softmax.py").write_text(_MODULE, encoding="utf-8")
    (walk.folder / "model_new.py").write_text(_MODULE.replace("class Model(", "class ModelNew("), encoding="utf-8")


def _models(walk: Walk) -> None:
    (walk.folder / "keys.env").write_text("OPENAI_API_KEY=made-up-and-in-a-file\n", encoding="utf-8")


def _using(walk: Walk) -> None:
    shutil.copy(_KERNEL, walk.folder / "kernel.cpp")
    shutil.copytree(ROOT / "examples", walk.folder / "examples")


def _readme(walk: Walk) -> None:
    kernel = """
extern "C" int launch(const float* x, const float* weight, float* out, int64_t rows, int64_t cols, void*, void*) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += double(x[r * cols + c]) * x[r * cols + c];
    const float scale = float(1 / sqrt(sum / cols + 1e-6));
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = x[r * cols + c] * scale * weight[c];
  }
  return 0;
}
"""
    (walk.folder / "kernel.cpp").write_text(f"#include <cmath>\n#include <cstdint>\n{kernel}", encoding="utf-8")


def _kernel(walk: Walk) -> None:
    shutil.copy(_KERNEL, walk.folder / "kernel.cpp")


_PREPARED: Mapping[str, Callable[[Walk], None]] = {
    "README.md": _readme,
    "agents.md": _agents,
    "benchmarks.md": _benchmarks,
    "contract.md": _contract,
    "dashboard.md": Walk.first_run,
    "models.md": _models,
    "profiling.md": _kernel,
    "report.md": Walk.first_run,
    "suites.md": _kernel,
    "using.md": _using,
    "verification.md": Walk.first_run,
}
