"""Compiles a candidate once: screens it, looks it up by content, runs the compiler, checks the result.

What to run is a backend's `Recipe`. A source's fault is a `BuildFailure`; a fault of this machine (no
compiler, full disk, parts of a toolkit that do not fit) is an exception and is never remembered.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.backends.compile import COMPILER_MEMORY_BYTES, CompilerRun, run_compiler
from warpsmith.backends.diagnostics import clashes_with, errors_of, undefined_symbols, warnings_of
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.entry import declaration_of
from warpsmith.backends.ptxas import resources
from warpsmith.backends.screen import objection
from warpsmith.backends.store import LIBRARY, BuildStore
from warpsmith.backends.toolchain import Compiler
from warpsmith.backends.tunables import bad_macro, macros, redefined, tunables
from warpsmith.core.build import Artifact, BuildFailure
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract
from warpsmith.core.errors import HarnessFault, ToolMissing

HEADER = "warpsmith_contract.h"
FULL_DISK_BYTES = 16 << 20

# Messages of tools (never of a source: those begin with a file name) that no change of the source can cure.
_TOOL_FAULTS = (
    (
        re.compile(r"^nvcc fatal\s*: Unsupported gpu architecture '([^']+)'", re.M),
        "{compiler} cannot build for {0}; install a newer CUDA toolkit.",
    ),
    (
        re.compile(r"^ptxas .*fatal\s*: Unsupported \.version (\S+);", re.M),
        "{compiler} is put together from parts of different versions (PTX {0}); install nvidia-cuda-nvcc, "
        "nvidia-nvvm, nvidia-cuda-crt and nvidia-cuda-runtime of one version.",
    ),
    (
        re.compile(r"^\S*ld(?:\.\w+)?: cannot find -l(cudart|cudadevrt|gomp|omp)\b", re.M),
        "{compiler} has no lib{0} to link; install it (CUDA runtime, or libomp-dev for clang++).",
    ),
    (
        re.compile(r"^\S*(?:g\+\+|clang\S*|collect2)[\d.-]*: fatal error: cannot (?:execute|find) \W*([\w.+-]+)", re.M),
        "{compiler} lacks its part {0}; install it again.",
    ),
    (
        re.compile(r"^nvcc fatal\s*: (Failed to preprocess host compiler|Cannot find compiler '[^']+' in PATH)", re.M),
        "{compiler} has no host compiler ({0}); install g++, or set NVCC_CCBIN.",
    ),
    (
        re.compile(r"^\S*host_config\.h\S* error: .*(unsupported \w+ version)", re.M),
        "{compiler} does not take this host compiler ({0}); set NVCC_CCBIN to an older g++.",
    ),
)


@dataclass(frozen=True)
class Recipe:
    """How one backend compiles for one target."""

    compiler: Compiler
    target: str  # all that the code depends on besides the flags, e.g. the CPU's model and features
    flags: tuple[str, ...]  # before the sources
    include_flags: tuple[str, ...]  # `-include` of headers the source uses but may have forgotten
    link_flags: tuple[str, ...]  # after the sources
    suffixes: tuple[str, ...]  # files with these endings are compiled, others only included


@dataclass(frozen=True)
class Workshop:
    """Where builds are kept, how long one may take, and the environment compilers are found in."""

    paths: Paths | None = None  # None: from the environment
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] | None = None  # None: this process's own, as it is at each call

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment that applies now."""
        return os.environ if self.environment is None else self.environment

    def build(self, candidate: Candidate, contract: Contract, recipe: Recipe) -> Artifact | BuildFailure:
        """One build, from the cache where it has been done before. Any number of threads may call it."""
        refused = objection(candidate.files)
        if refused:
            return BuildFailure(refused)
        job = _Job(candidate, contract, recipe, macros(candidate))
        for name, value in job.defines:
            if bad_macro(name, value):
                return BuildFailure(f"the macro {name}={value!r} is not usable: give a plain number or word.")
        root = (self.paths or Paths.from_environment(self.environ)).cache / "builds"
        store = BuildStore(root)
        key = _key(job)
        known = store.load(key)
        if known is not None:
            return known
        try:
            with store.locked(key):
                known = store.load(key)
                if known is not None:
                    return known
                return self._compile(job, store, key)
        except OSError as fault:
            raise HarnessFault(
                f"the build cache in {root} cannot be used ({fault.strerror}); free or unlock it."
            ) from fault

    def remarks(self, candidate: Candidate, contract: Contract, recipe: Recipe) -> str:
        """What the compiler says while it builds what has been built before; nothing is kept."""
        job = _Job(candidate, contract, recipe, macros(candidate))
        root = (self.paths or Paths.from_environment(self.environ)).cache / "builds"
        try:
            with BuildStore(root).work_folder() as work:
                command, tmp = _prepare(job, work), work / "tmp"
                limit_s = self.limits.build_s
                run = run_compiler(command, folder=work / "src", scratch=tmp, environ=self.environ, limit_s=limit_s)
        except OSError as fault:
            raise HarnessFault(f"the build cache in {root} cannot be used ({fault.strerror}).") from fault
        if run.status != 0:
            raise HarnessFault(f"{recipe.compiler.name} gives no report on a source that it has compiled before.")
        return run.log

    def _compile(self, job: _Job, store: BuildStore, key: str) -> Artifact | BuildFailure:
        limit_s = self.limits.build_s
        killed_before = False
        while True:
            with store.work_folder() as work:
                command, tmp = _prepare(job, work), work / "tmp"
                run = run_compiler(command, folder=work / "src", scratch=tmp, environ=self.environ, limit_s=limit_s)
                if run.status != 0:
                    _raise_tool_faults(run, job.recipe, work)
                if not run.killed:
                    return store.publish(key, _judge(run, job, work / LIBRARY), work)
            if run.timed_out or killed_before:
                return BuildFailure(_why_killed(run, limit_s), run.seconds)
            killed_before = True  # perhaps others had used up the memory: once is no proof


@dataclass(frozen=True)
class _Job:
    """Everything that decides what a build gives."""

    candidate: Candidate
    contract: Contract
    recipe: Recipe
    defines: tuple[tuple[str, str], ...]


def _key(job: _Job) -> str:
    recipe = job.recipe
    parts = [__version__, job.candidate.backend, job.contract.entry, job.contract.header]
    parts += [recipe.compiler.identity, recipe.target]
    parts += [*recipe.flags, "", *recipe.include_flags, "", *recipe.link_flags, ""]
    parts += [f"{name}={value}" for name, value in job.defines]
    for file in job.candidate.files:
        parts += [file.name, file.text]
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _prepare(job: _Job, work: Path) -> tuple[str, ...]:
    """Lay out the work folder and give the command to run in its `src`."""
    candidate, recipe = job.candidate, job.recipe
    for name in ("src", "tmp", "contract", "lib"):
        (work / name).mkdir()
    for file in candidate.files:
        (work / "src" / file.name).write_text(file.text, encoding="utf-8", errors="replace")
    (work / "contract" / HEADER).write_text(job.contract.header, encoding="utf-8")
    search = list(recipe.compiler.search_flags)
    if recipe.compiler.runtime is not None:
        # Packages of the index hold libcudart.so.13 only; the linker asks for libcudart.so.
        (work / "lib" / "libcudart.so").symlink_to(recipe.compiler.runtime)
        search += ["-L", str(work / "lib")]
    compiled = [f.name for f in candidate.files[1:] if f.name.endswith(recipe.suffixes)]
    return (
        *recipe.compiler.command,
        *search,
        *recipe.flags,
        *(f"-D{name}={value}" for name, value in job.defines),
        "-include",
        str(work / "contract" / HEADER),
        *recipe.include_flags,
        "-o",
        str(work / LIBRARY),
        candidate.main.name,
        *compiled,
        *recipe.link_flags,
    )


def _judge(run: CompilerRun, job: _Job, library: Path) -> Artifact | BuildFailure:
    entry = job.contract.entry
    if run.status != 0:
        files = [file.name for file in job.candidate.files]
        return BuildFailure(errors_of(run.log, files=files, hints=_hints(run.log, job)), run.seconds)
    functions = read_symbols(library).functions
    if entry in functions:
        compiler = job.recipe.compiler.name
        return Artifact(library, compiler, resources(run.log), warnings_of(run.log), run.seconds)
    expected = declaration_of(job.contract)
    if any(name.startswith(f"_Z{len(entry)}{entry}") for name in functions):
        reason = f"`{entry}` is defined with other parameters than the contract's: define\n{expected}"
    else:
        reason = f"no function named {entry} is defined: define\n{expected}"
    return BuildFailure(reason, run.seconds)


def _hints(log: str, job: _Job) -> list[str]:
    """What the compiler does not say: the signature it expected, and macros that got in the way."""
    found: list[str] = []
    entry = job.contract.entry
    if clashes_with(log, entry) or entry in undefined_symbols(log):
        found.append(f"expected: {declaration_of(job.contract)}")
    texts = [file.text for file in job.candidate.files]
    for tunable in (t for text in texts for t in tunables(text)):
        if any(redefined(text, tunable.name) for text in texts):
            found.append(f"hint: `// tune:` makes {tunable.name} a macro; do not declare it as well.")
    return found


def _raise_tool_faults(run: CompilerRun, recipe: Recipe, work: Path) -> None:
    for pattern, message in _TOOL_FAULTS:
        match = pattern.search(run.log)
        if match:
            raise ToolMissing(message.format(*match.groups(), compiler=recipe.compiler.name))
    if run.status in (126, 127) and not run.timed_out:
        name = os.path.basename(recipe.compiler.command[0])
        raise ToolMissing(f"{recipe.compiler.name} cannot be started ({name}): install it again.")
    # Only believed where the disk really is full: a source can print any message. A log that found no room is empty.
    said = "No space left on device" in run.log or not run.log.strip()
    if said and not run.timed_out and shutil.disk_usage(work).free < FULL_DISK_BYTES:
        raise HarnessFault("the disk of the build cache is full; free some space or set WARPSMITH_CACHE.")


def _why_killed(run: CompilerRun, limit_s: float) -> str:
    cure = "use fewer templates, less unrolling or smaller constants"
    if run.timed_out:
        return f"compilation took longer than {limit_s:g} s: {cure}."
    return f"the compiler died, most likely out of memory ({COMPILER_MEMORY_BYTES >> 30} GiB): {cure}."
