"""Compiles a candidate: refuses unsafe sources, looks in the build cache, runs the compiler, checks the result.

A backend's `CompileOptions` say what to run. An error of the source is a `BuildFailure`; an error of this machine (no
compiler, full disk, toolkit parts of different versions) is an exception and is never cached.

Sources that would make the compiler read other files are refused, because compiler messages quote these files and go
to proposers: `#include "/etc/passwd"` leaks. This filters plain cases and is no sandbox: build hostile sources in a
container. Headers that a source uses and does not include are added.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from warpsmith._version import __version__
from warpsmith.backends.build_cache import LIBRARY, BuildCache, content_key
from warpsmith.backends.c_contract import CDialect, declaration_of, make_contract
from warpsmith.backends.diagnostics import clashes_with, errors_of, resources, undefined_symbols, warnings_of
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.library import LIBRARY as HEADERS
from warpsmith.backends.toolchain import Compiler
from warpsmith.backends.tunables import bad_macro, macros
from warpsmith.model.build import Artifact, BuildFailure
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.model.errors import HarnessFault, ToolMissing, UsageError
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task
from warpsmith.system.files import put_in_place
from warpsmith.system.locks import open_lock_file, try_lock
from warpsmith.system.processes import run_watched

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", re.ASCII)
_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")
# `#` opens a directive at the start of a line or after a comment. Comments after the `#` are refused: they only serve
# to hide a directive, and matching any number of them could take very long.
_GAP = r"[ \t\f\v]*"
_DIRECTIVE = re.compile(
    rf"^(?:[^\n]*\*/)?{_GAP}(?:\#|%:|\?\?=){_GAP}"
    rf"(?P<word>(?:include_next|include|import|embed|line|\d+|pragma{_GAP}GCC{_GAP}(?:pch_preprocess|dependency))\b"
    rf"|(?:pragma{_GAP}(?:GCC{_GAP})?)?/\*)"
    rf"{_GAP}(?P<rest>[^\n]*)",
    re.MULTILINE,
)
_ASSEMBLER = re.compile(r"""\.incbin\b|(?:["\s;]|\\[nt])\.include\s""")


def refusal(files: Iterable[SourceFile]) -> str | None:
    """Why the compiler does not get these files, in one sentence; None if it does."""
    names: set[str] = set()
    for file in files:
        if not _NAME.fullmatch(file.name):
            return f"the file name {file.name!r} is not usable: use letters, digits, '_', '-' and '.' only."
        if file.name in names:
            return f"two files are named {file.name!r}: give each its own name."
        names.add(file.name)
        found = _objection_to_text(file)
        if found:
            return found
    return None


def _objection_to_text(file: SourceFile) -> str | None:
    text = _SPLICE.sub("", file.text)
    for match in _DIRECTIVE.finditer(text):
        word, rest = match["word"], match["rest"].strip()
        line = text.count("\n", 0, match.start("word")) + 1
        where = f"{file.name}:{line}:"
        if word in ("include", "include_next", "import"):
            target = re.match(r'"([^"\n]*)"|<([^>\n]*)>', rest)
            if target is None:
                return f"{where} error: #include must name its file directly, not through a macro."
            path = target[1] if target[1] is not None else target[2]
            if path.startswith(("/", "~")) or ".." in path.split("/"):
                cure = "name a header of the toolkit or a file of the candidate"
                return f"{where} error: #include of {path!r} leaves the include path: {cure}."
        elif word.endswith("/*"):
            return f"{where} error: comments inside a directive are not allowed: move it out of the line."
        elif word == "embed":
            return f"{where} error: #embed is not allowed: a candidate is source code only."
        else:
            return f"{where} error: #{word.split()[0]} directives of this kind are not allowed: remove the line."
    if _ASSEMBLER.search(text):
        return f"{file.name}: error: the assembler's .incbin and .include are not allowed: remove them."
    return None


HEADER = "warpsmith_contract.h"
FULL_DISK_BYTES = 16 << 20

# Messages about a broken installation. They come from tools: a message that a source causes begins with a file name.
# Mistakes that small models make again and again, and what to do about each; the compiler only says what it saw.
MISTAKES = (
    (
        "cuda",
        re.compile(r'type "void \*" is incompatible with parameter of type "(?:cudaStream_t|size_t)"'),
        "`stream` is a void*: launch with `kernel<<<grid, block, shared_bytes, (cudaStream_t)stream>>>(...)`.",
    ),
    (
        "cuda",
        re.compile(r'type "const (\w+) \*" is incompatible with parameter of type "\1 \*"'),
        "inputs are read-only: declare the kernel's parameter as a pointer to const.",
    ),
    (
        "cuda",
        re.compile(r"__device_builtin_variable_"),
        "gridDim, blockDim, blockIdx and threadIdx exist in kernels only: give launches numbers of your own.",
    ),
    (
        "cuda",
        re.compile(r"\bcuda(?:Device|Stream|Event)Synchronize\b"),
        "a call may not synchronise: remove the line; the harness waits for the stream.",
    ),
    (
        "cuda",
        re.compile(r'identifier "__(?:max|min)f?" is undefined'),
        "there is no such function: use max, min, fmaxf or fminf.",
    ),
    (
        "cuda",
        re.compile(r"cu(?:blas|dnn|fft|rand|sparse|solver)\w*\.h\w*: No such file"),
        "libraries may not be called: write the computation yourself.",
    ),
    (
        "cpu",
        re.compile(r"cuda\w*\.h: No such file|__global__|<<<|blockIdx|threadIdx"),
        "this kernel runs on a CPU: write C++17 with OpenMP loops, and no CUDA.",
    ),
    (
        "cpu",
        re.compile(r"reduction\([^)]*\*|user defined reduction not found"),
        "a reduction clause takes a plain variable: add into a local one, and store that after the loop.",
    ),
    (
        "cpu",
        re.compile(r"workspace_bytes\W{1,3}cannot be used as a function|undefined reference to \W?workspace_bytes"),
        "`workspace_bytes` is for the harness to call; `launch` calls nothing of the contract.",
    ),
    (
        "cpu",
        re.compile(r"shadows a parameter|redeclared as different kind"),
        "a parameter has this name already: give the variable another one.",
    ),
)
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
class CompileOptions:
    """How one backend compiles for one target."""

    compiler: Compiler
    target: str  # what the code depends on besides the flags, e.g. the CPU's model and features
    flags: tuple[str, ...]  # before the sources
    include_flags: tuple[str, ...]  # `-include` of headers that the source uses and does not include
    link_flags: tuple[str, ...]  # after the sources
    suffixes: tuple[str, ...]  # files with these endings are compiled, others only included
    precompiled: tuple[str, ...] = ()  # headers that every contract includes and that g++ can keep in a compiled form


@dataclass(frozen=True)
class Builder:
    """Compiles candidates: with a cache folder, a time limit, and the environment in which compilers are found."""

    paths: Paths | None = None  # None: from the environment
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] | None = None  # None: the environment of this process at each call

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment in which compilers are found."""
        return os.environ if self.environment is None else self.environment

    @property
    def cache(self) -> BuildCache:
        """The cache of finished builds."""
        return BuildCache.of(self.paths or Paths.from_environment(self.environ))

    def build(self, candidate: Candidate, contract: Contract, recipe: CompileOptions) -> Artifact | BuildFailure:
        """The build of a candidate, from the cache if it is there. Safe to call from several threads."""
        refused = refusal(candidate.files)
        if refused:
            return BuildFailure(refused)
        job = _Job(candidate, contract, recipe, macros(candidate))
        for name, value in job.defines:
            if bad_macro(name, value):
                return BuildFailure(f"the macro {name}={value!r} is not usable: give a plain number or word.")
        key = self.cache.key(_key(job))
        return self.cache.load_or_make(key, lambda: self._compile(job, key))

    def remarks(self, candidate: Candidate, contract: Contract, recipe: CompileOptions) -> str:
        """The compiler's output when it builds a candidate again; the result is not kept."""
        job = _Job(candidate, contract, recipe, macros(candidate))
        try:
            with self.cache.work_folder() as work:
                command, tmp = _prepare(job, work), work / "tmp"
                limit_s = self.limits.build_s
                run = run_compiler(command, folder=work / "src", scratch=tmp, environ=self.environ, limit_s=limit_s)
        except OSError as fault:
            raise HarnessFault(f"the build cache cannot be used ({fault.strerror}); free or unlock it.") from fault
        if run.status != 0:
            raise HarnessFault(f"{recipe.compiler.name} failed on a source that it compiled before; run it again.")
        return run.log

    def _compile(self, job: _Job, key: str) -> Artifact | BuildFailure:
        store, limit_s = self.cache, self.limits.build_s
        killed_before = False
        headers = self._precompiled_headers(job.recipe)
        while True:
            with store.work_folder() as work:
                command, tmp = _prepare(job, work, headers), work / "tmp"
                run = run_compiler(command, folder=work / "src", scratch=tmp, environ=self.environ, limit_s=limit_s)
                if run.status != 0:
                    _raise_tool_faults(run, job.recipe, work)
                if not run.killed:
                    return store.publish(key, _judge(run, job, work / LIBRARY), work)
            if run.timed_out or killed_before:
                return BuildFailure(_why_killed(run, limit_s), run.seconds)
            killed_before = True  # try once more: other processes may have used up the memory

    def _precompiled_headers(self, recipe: CompileOptions) -> tuple[str, ...]:
        """The flags that include the headers of every contract in compiled form, in which g++ reads them in a tenth of
        the time: a small candidate then builds in less than half of it. They are compiled at the second build with the
        same flags. g++ itself refuses a compiled header that does not fit, and reads the text beside it."""
        if not recipe.precompiled:
            return ()
        key = content_key([recipe.compiler.identity, recipe.target, *recipe.flags, "", *recipe.precompiled])
        folder = self.cache.headers / key
        text, compiled = folder / "headers.h", folder / "headers.h.gch"
        if not text.exists():
            put_in_place(text, "".join(f"#include <{name}>\n" for name in recipe.precompiled).encode())
            return ()
        if not compiled.exists():
            handle = open_lock_file(folder / "lock")
            try:
                if try_lock(handle) and not compiled.exists():
                    self._precompile(text, compiled, recipe)
            finally:
                os.close(handle)
        usable = compiled.exists() and compiled.stat().st_size > 0
        return ("-include", str(text)) if usable else ()

    def _precompile(self, text: Path, compiled: Path, recipe: CompileOptions) -> None:
        """Compile the headers; an empty file says that they cannot be compiled."""
        with self.cache.work_folder() as work:
            made = work / compiled.name
            command = (*recipe.compiler.command, *recipe.flags, "-c", "-x", "c++-header", "-o", str(made), str(text))
            run = run_compiler(command, folder=work, scratch=work, environ=self.environ, limit_s=self.limits.build_s)
            if run.status == 0 or not run.killed:
                made.touch()
                made.rename(compiled)


class NativeBackend:
    """What the backends of C++ and CUDA share: a builder, the folder of the headers, and the C entry point."""

    name: str
    dialect: CDialect

    def __init__(self, builder: Builder | None = None, library: Path = HEADERS) -> None:
        self._builder = builder or Builder()
        self._library = library

    def configured(self, paths: Paths, limits: Limits) -> Self:
        """The same backend with another cache folder and other limits."""
        return type(self)(replace(self._builder, paths=paths, limits=limits), self._library)

    def with_library(self, library: Path) -> Self:
        """The same backend with the headers of another folder as <warpsmith/...>: those of a bundle."""
        return type(self)(self._builder, library)

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The C entry point, with pointers to the memory of the device."""
        if entry:
            raise UsageError(f"--entry is for Python and torch extensions; a {self.name} kernel defines `launch`.")
        return make_contract(task, self._dialect_here())

    def _dialect_here(self) -> CDialect:
        """The dialect with what only some machines have."""
        return self.dialect


@dataclass(frozen=True)
class _Job:
    candidate: Candidate
    contract: Contract
    recipe: CompileOptions
    defines: tuple[tuple[str, str], ...]


def _key(job: _Job) -> str:
    recipe = job.recipe
    parts = [__version__, job.candidate.backend, job.contract.entry, job.contract.header]
    parts += [recipe.compiler.identity, recipe.target]
    parts += [*recipe.flags, "", *recipe.include_flags, "", *recipe.link_flags, ""]
    parts += [f"{name}={value}" for name, value in job.defines]
    for file in job.candidate.files:
        parts += [file.name, file.text]
    return content_key(parts)


def _prepare(job: _Job, work: Path, headers: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Fill the work folder and return the command to run in its folder `src`; `headers`: flags that come first."""
    candidate, recipe = job.candidate, job.recipe
    for name in ("src", "tmp", "contract", "lib"):
        (work / name).mkdir()
    for file in candidate.files:
        (work / "src" / file.name).write_text(file.text, encoding="utf-8", errors="replace")
    (work / "contract" / HEADER).write_text(job.contract.header, encoding="utf-8")
    search = list(recipe.compiler.search_flags)
    if recipe.compiler.runtime is not None:
        # The packages on PyPI have libcudart.so.13 only; the linker looks for libcudart.so.
        (work / "lib" / "libcudart.so").symlink_to(recipe.compiler.runtime)
        search += ["-L", str(work / "lib")]
    compiled = [f.name for f in candidate.files[1:] if f.name.endswith(recipe.suffixes)]
    return (
        *recipe.compiler.command,
        *search,
        *recipe.flags,
        *(f"-D{name}={value}" for name, value in job.defines),
        *headers,
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
        reason = f"`{entry}` is defined with other parameters than the contract's. Define:\n{expected}"
    else:
        reason = f"no function named {entry} is defined. Define:\n{expected}"
    return BuildFailure(reason, run.seconds)


def _hints(log: str, job: _Job) -> list[str]:
    """Hints that the compiler's messages lack: the expected signature, and what to do about common mistakes."""
    found: list[str] = []
    entry = job.contract.entry
    if clashes_with(log, entry) or entry in undefined_symbols(log):
        found.append(f"expected: {declaration_of(job.contract)}")
    found += [
        f"hint: {advice}"
        for backend, pattern, advice in MISTAKES
        if backend == job.contract.backend and pattern.search(log)
    ]
    return found


def _raise_tool_faults(run: CompilerRun, recipe: CompileOptions, work: Path) -> None:
    for pattern, message in _TOOL_FAULTS:
        match = pattern.search(run.log)
        if match:
            raise ToolMissing(message.format(*match.groups(), compiler=recipe.compiler.name))
    if run.status in (126, 127) and not run.timed_out:
        name = os.path.basename(recipe.compiler.command[0])
        raise ToolMissing(f"{recipe.compiler.name} cannot be started ({name}): install it again.")
    # A source can print any message, so the disk is checked too. On a full disk the log may be empty.
    said = "No space left on device" in run.log or not run.log.strip()
    if said and not run.timed_out and shutil.disk_usage(work).free < FULL_DISK_BYTES:
        raise HarnessFault("the disk of the build cache is full; free some space or set WARPSMITH_CACHE.")


def _why_killed(run: CompilerRun, limit_s: float) -> str:
    cure = "use fewer templates, less unrolling or smaller constants"
    if run.timed_out:
        return f"compilation took longer than {limit_s:g} s: {cure}."
    return f"the compiler died, most likely out of memory ({COMPILER_MEMORY_BYTES >> 30} GiB): {cure}."


STANDARD_NAMES: Mapping[str, str] = {
    "vector": r"\bstd::vector\b",
    "array": r"\bstd::array\b",
    "numeric": r"\bstd::(?:accumulate|iota|reduce|inner_product|transform_reduce)\b",
    "complex": r"\bstd::complex\b",
    "atomic": r"\bstd::atomic\w*\b",
    "memory": r"\bstd::(?:unique_ptr|make_unique|align|assume_aligned)\b",
    "type_traits": r"\bstd::(?:is_\w+|enable_if\w*|conditional\w*|remove_\w+)\b",
    "utility": r"\bstd::(?:pair|move|swap|forward|integer_sequence|index_sequence)\b",
    "tuple": r"\bstd::tuple\b",
    "functional": r"\bstd::(?:plus|multiplies|function|less|greater)\b",
    "string": r"\bstd::(?:string|to_string)\b",
}

_INTRINSICS = {  # by machine: the header does not exist on others
    "x86_64": {"immintrin.h": r"\b(?:_mm(?:256|512)?_\w+|__m(?:128|256|512)[di]?)\b"},
    "aarch64": {"arm_neon.h": r"\b(?:float32x4_t|vld1q?_f32|vfmaq?_f32)\b"},
}
CPU_NAMES: Mapping[str, str] = {**STANDARD_NAMES, **_INTRINSICS.get(platform.machine(), {})}

CUDA_NAMES: Mapping[str, str] = {
    **STANDARD_NAMES,
    "cuda_fp16.h": r"\b(?:__half2?|half2?|__half2float|__float2half\w*|__h(?:add|mul|fma|sub|max)2?)\b",
    "cuda_bf16.h": r"\b(?:__nv_bfloat162?|nv_bfloat162?|__bfloat162float|__float2bfloat16\w*)\b",
    "cuda_fp8.h": r"\b__nv_fp8\w*\b",
    "mma.h": r"\b(?:wmma|nvcuda)::",
    "cooperative_groups.h": r"\b(?:cooperative_groups\b|cg::)",
    "cooperative_groups/reduce.h": r"\b(?:cg|cooperative_groups)::(?:reduce|plus|greater|less)\b",
    "cooperative_groups/memcpy_async.h": r"\b(?:cg|cooperative_groups)::(?:memcpy_async|wait\w*)\b",
    # All of cub takes twice the compile time of the parts a kernel uses (17 s against 9 s, measured once).
    "cub/block/block_reduce.cuh": r"\bcub::BlockReduce\b",
    "cub/block/block_scan.cuh": r"\bcub::BlockScan\b",
    "cub/block/block_load.cuh": r"\bcub::BlockLoad\b",
    "cub/block/block_store.cuh": r"\bcub::BlockStore\b",
    "cub/block/block_radix_sort.cuh": r"\bcub::BlockRadixSort\b",
    "cub/warp/warp_reduce.cuh": r"\bcub::WarpReduce\b",
    "cub/warp/warp_scan.cuh": r"\bcub::WarpScan\b",
    "cub/cub.cuh": r"\bcub::Device\w+",
    "cuda_pipeline.h": r"\b__pipeline_\w+\b",
    "cuda/pipeline": r"\bcuda::(?:pipeline|memcpy_async|make_pipeline)\b",
    "cuda/barrier": r"\bcuda::barrier\b",
    "cuda/atomic": r"\bcuda::(?:atomic\w*|memory_order\w*)\b",
    "cuda/ptx": r"\bcuda::ptx\b",
    "cuda.h": r"\b(?:CUtensorMap|cuTensorMapEncode\w+)\b",
    "math_constants.h": r"\bCUDART_\w+\b",
}

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def missing_headers(texts: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Headers to add, in the order of `names`: those that a text uses and no text includes."""
    whole = _COMMENTS.sub(" ", "\n".join(texts))
    included = set(re.findall(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", whole, re.MULTILINE))
    return tuple(h for h, pattern in names.items() if h not in included and re.search(pattern, whole))


COMPILER_MEMORY_BYTES = 8 << 30
COMPILER_FILE_BYTES = 1 << 30
_LONG_LINE = re.compile(r"([^\n]{4000})[^\n]+")  # the rest is cut: patterns would take very long

# Lines that a tool prints itself: words that a source makes the compiler print come after a file name.
_DIED = re.compile(
    r"^(?:\S*(?:g\+\+|clang\S*|cc1plus|collect2|as|ld)[\d.-]*: "
    r"(?:fatal error: |internal compiler error: |error: )?"
    r"(?:Killed|\w+ signal terminated program|out of memory|unable to execute command)"
    r"|nvcc error\s*: '[^']+' died|virtual memory exhausted|LLVM ERROR: out of memory)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CompilerRun:
    """The result of a compiler command."""

    status: int  # its exit status; negative: the signal that ended it
    log: str  # the beginning of stdout and stderr together: template errors can fill gigabytes
    seconds: float
    timed_out: bool

    @property
    def killed(self) -> bool:
        """Whether the compiler or a process that it started was killed, crashed or ran out of time."""
        # 255 is not a signal: nvcc returns it for ordinary errors of ptxas.
        by_signal = self.status < 0 or 128 < self.status < 255
        return self.timed_out or by_signal or (self.status != 0 and _DIED.search(self.log) is not None)


def run_compiler(
    command: Sequence[str], *, folder: Path, scratch: Path, environ: Mapping[str, str], limit_s: float
) -> CompilerRun:
    """Run a command in a folder; its process group is killed when the call ends."""
    # The command gets only PATH of the caller's environment: no API keys, and no flags that the cache key lacks.
    scrubbed = {
        "PATH": environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(scratch),
        "HOME": str(scratch),
    }
    done = run_watched(
        command,
        folder=folder,
        environ=scrubbed,
        limit_s=limit_s,
        log=scratch / "compiler.log",
        file_bytes=COMPILER_FILE_BYTES,
        memory_bytes=COMPILER_MEMORY_BYTES,
    )
    return CompilerRun(done.status, _LONG_LINE.sub(r"\1", done.output), done.seconds, done.timed_out)
