from __future__ import annotations

import ctypes
import multiprocessing
import os
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from warpsmith.backends.builder import MISTAKES, Builder
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.elf import imported_symbols, read_symbols
from warpsmith.backends.tunables import tunables
from warpsmith.model.build import Artifact, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import first_sentence
from warpsmith.model.errors import HarnessFault, ToolMissing, UsageError
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload

LAUNCH = "int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream)"
COPY = f'extern "C" {LAUNCH} {{ for (int64_t i = 0; i < rows * cols; ++i) out[i] = x[i]; return 0; }}\n'
NATIVE = Target(DeviceKind.CPU)
EXPECTED = f'extern "C" {LAUNCH};'


def cpu_candidate(text: str, *more: SourceFile, defines: tuple[tuple[str, str], ...] = ()) -> Candidate:
    return Candidate((SourceFile("candidate.cpp", text), *more), "cpu", defines)


class WrappedCompiler:
    """A shell script in front of g++ that notes each compilation, and may do something else first."""

    def __init__(self, folder: Path, before: str = "") -> None:
        self.log = folder / "compilations"
        script = folder / "wrapped-g++"
        script.write_text(
            '#!/bin/sh\ncase "$1" in --version|-print-file-name=*) exec g++ "$1";; esac\n'
            'case "$*" in *c++-header*) exec g++ "$@";; esac\n'
            f'echo run >> "{self.log}"\n{before}\nexec g++ "$@"\n'
        )
        script.chmod(0o755)
        self.environ = {"PATH": os.environ["PATH"], "CXX": str(script), "OPENAI_API_KEY": "sk-secret"}

    @property
    def runs(self) -> int:
        return self.log.read_text().count("run") if self.log.exists() else 0


def built(backend: CpuBackend, task: Task, candidate: Candidate) -> Artifact:
    outcome = backend.build(candidate, backend.contract(task), NATIVE)
    assert isinstance(outcome, Artifact), outcome.reason
    return outcome


def failed(backend: CpuBackend, task: Task, text: str, *more: SourceFile) -> str:
    outcome = backend.build(cpu_candidate(text, *more), backend.contract(task), NATIVE)
    assert isinstance(outcome, BuildFailure)
    return outcome.reason


def leftovers(cache: Path) -> list[Path]:
    return [*(cache / "builds" / "work").glob("*"), *(cache / "builds" / "locks").glob("*")]


def test_a_built_candidate_runs(cpu: CpuBackend, softmax: Task) -> None:
    artifact = built(cpu, softmax, cpu_candidate(COPY))
    x, out = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6), (ctypes.c_float * 6)()
    launch = ctypes.CDLL(str(artifact.library)).launch
    status = launch(x, out, ctypes.c_int64(2), ctypes.c_int64(3), None, None)
    assert status == 0
    assert list(out) == [1, 2, 3, 4, 5, 6]
    assert not os.access(artifact.library, os.W_OK) or os.geteuid() == 0
    assert artifact.compiler.startswith(("g++ ", "clang++ "))


def test_headers_are_compiled_once_and_read_by_later_builds(softmax: Task, tmp_path: Path) -> None:
    script, log = tmp_path / "logged-g++", tmp_path / "log"
    script.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nexec g++ "$@" -Winvalid-pch -H 2>> "{log}"\n')
    script.chmod(0o755)
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment={"PATH": os.environ["PATH"], "CXX": str(script)}))
    for number in range(4):
        log.write_text("")
        built(cpu, softmax, cpu_candidate(f"// {number}\n{COPY}"))
        said = log.read_text()
        assert said.count("c++-header") == (number == 1)  # a single build does not pay for it
        assert ("\n! " in said) == (number >= 1)  # g++ says so: the compiled headers were read
        assert "invalid-pch" not in said
    headers = next((tmp_path / "cache" / "builds" / "headers").rglob("*.gch"))
    headers.write_bytes(b"")  # they could not be compiled
    built(cpu, softmax, cpu_candidate(f"// 5\n{COPY}"))


def test_bfloat16_and_float16_compute(cpu: CpuBackend) -> None:
    def tensor(name: str, dtype: str, role: TensorRole) -> TensorSpec:
        return TensorSpec(name, dtype, (4,), role)

    tensors = (
        tensor("b", "bfloat16", TensorRole.INPUT),
        tensor("h", "float16", TensorRole.INPUT),
        tensor("bo", "bfloat16", TensorRole.OUTPUT),
        tensor("ho", "float16", TensorRole.OUTPUT),
    )
    task = Task("halves", "", TaskKind.NATIVE, tensors, (), (Workload("only"),), Precision.BF16, "digest")
    source = (
        "int launch(const bf16* b, const _Float16* h, bf16* bo, _Float16* ho, void* workspace, void* stream)"
        "{ for (int i = 0; i < 4; ++i) { bo[i] = b[i] * 3.0f + b[i]; ho[i] = h[i] * h[i]; } return 0; }"
    )
    artifact = built(cpu, task, cpu_candidate(source))
    b = (ctypes.c_uint16 * 4)(0x3F80, 0xC000, 0x7FC0, 0x3F81)  # 1, -2, NaN, 1 + 2^-7
    h = (ctypes.c_uint16 * 4)(0x4000, 0xC200, 0x3C00, 0x0000)  # 2, -3, 1, 0
    bo, ho = (ctypes.c_uint16 * 4)(), (ctypes.c_uint16 * 4)()
    assert ctypes.CDLL(str(artifact.library)).launch(b, h, bo, ho, None, None) == 0
    assert list(bo) == [0x4080, 0xC100, 0x7FC0, 0x4081]  # 4, -8, NaN, 4 + 2^-5
    assert list(ho) == [0x4400, 0x4880, 0x3C00, 0x0000]  # 4, 9, 1, 0


def test_a_forgotten_extern_c_and_forgotten_headers_are_no_failure(cpu: CpuBackend, softmax: Task) -> None:
    vector = {"x86_64": "__m256 r; (void)r;", "aarch64": "float32x4_t r; (void)r;"}.get(platform.machine(), "")
    text = f"{LAUNCH} {{ std::vector<float> v(4); {vector} return std::max(0, (int)v[0]); }}"
    artifact = built(cpu, softmax, cpu_candidate(text))
    assert "launch" in read_symbols(artifact.library).functions


def test_imports_and_libraries_are_listed(cpu: CpuBackend, softmax: Task) -> None:
    text = f'extern "C" {LAUNCH} {{ out[0] = std::exp(x[0]); return std::system("true"); }}'
    artifact = built(cpu, softmax, cpu_candidate(text))
    imports = imported_symbols(artifact.library)
    assert {"system", "expf"} <= set(imports)
    assert "launch" not in imports
    assert "libc.so.6" in read_symbols(artifact.library).needed


def test_what_is_no_elf_is_our_own_fault(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"\x7fELF\x02\x01" + bytes(30))
    with pytest.raises(HarnessFault, match=r"a\.so is a damaged ELF"):
        imported_symbols(tmp_path / "a.so")


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" int launch(float* x, float* out, int rows) { return 0; }',
        f'extern "C" void {LAUNCH.removeprefix("int ")} {{}}',
        "int launch(float* x, float* out, int rows, int cols, void* w, void* s) { return 0; }",
        'extern "C" int start() { return 0; }',
    ],
    ids=["other parameters", "other result", "overload", "missing"],
)
def test_a_wrong_entry_point_is_told_the_right_one(cpu: CpuBackend, softmax: Task, text: str) -> None:
    reason = failed(cpu, softmax, text)
    assert EXPECTED in reason
    assert not first_sentence(reason).endswith((":", "define"))  # what a certificate and a table quote


def test_an_undefined_function_is_an_error_of_the_link(cpu: CpuBackend, softmax: Task) -> None:
    reason = failed(cpu, softmax, f"int somewhere_else();\n{LAUNCH} {{ return somewhere_else(); }}")
    assert reason == "link error: undefined reference to `somewhere_else()`"


def test_errors_are_trimmed_to_line_source_and_caret(cpu: CpuBackend, softmax: Task, tmp_path: Path) -> None:
    reason = failed(cpu, softmax, f"\n{LAUNCH} {{\n  return undeclared_thing;\n}}")
    lines = reason.splitlines()
    assert lines[0].startswith("candidate.cpp:3:10: error: ")
    assert "undeclared_thing" in lines[0]
    assert lines[1].endswith("return undeclared_thing;")
    assert "^" in lines[2]
    assert str(tmp_path) not in reason
    assert "In function" not in reason


def test_an_avalanche_of_template_errors_stays_readable(cpu: CpuBackend, softmax: Task) -> None:
    text = f"struct A {{}};\n{LAUNCH} {{\n  A a[3];\n  std::sort(a, a + 3);\n  return 0;\n}}"
    reason = failed(cpu, softmax, text)
    assert len(reason.splitlines()) <= 16
    assert len(reason) <= 2200
    assert "candidate.cpp:4: needed here" in reason
    assert "/usr/" not in reason


def test_the_second_build_comes_from_the_cache(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path)
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    first = built(cpu, softmax, cpu_candidate(COPY))
    second = built(cpu, softmax, cpu_candidate(COPY))
    assert (first.cached, second.cached) == (False, True)
    assert replace(second, cached=False) == first
    other = built(cpu, softmax, cpu_candidate(COPY + "// another\n"))
    assert not other.cached
    assert compiler.runs == 2
    assert leftovers(tmp_path / "cache") == []


def test_a_failure_is_cached_too(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path)
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    assert failed(cpu, softmax, "nonsense") == failed(cpu, softmax, "nonsense")
    assert compiler.runs == 1
    assert leftovers(tmp_path / "cache") == []


def test_a_damaged_entry_is_built_again(cpu: CpuBackend, softmax: Task) -> None:
    first = built(cpu, softmax, cpu_candidate(COPY))
    first.library.chmod(0o755)
    first.library.write_bytes(b"")
    again = built(cpu, softmax, cpu_candidate(COPY))
    assert not again.cached
    assert "launch" in read_symbols(again.library).functions


def test_flags_headers_and_targets_are_part_of_the_key(cpu: CpuBackend, softmax: Task) -> None:
    contract = cpu.contract(softmax)
    other = cpu.contract(replace(softmax, workloads=(Workload("w", (("rows", 2), ("cols", 2))),)))
    candidate = cpu_candidate(COPY)
    libraries = set()
    plain = Target(DeviceKind.CPU, "armv8-a" if platform.machine() == "aarch64" else "x86-64")
    for chosen, target in ((contract, NATIVE), (other, NATIVE), (contract, plain)):
        outcome = cpu.build(candidate, chosen, target)
        assert isinstance(outcome, Artifact)
        libraries.add(outcome.library)
    assert len(libraries) == 3


def test_threads_that_want_the_same_build_share_one_compilation(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path, before="sleep 0.3")
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda _: built(cpu, softmax, cpu_candidate(COPY)), range(6)))
    assert compiler.runs == 1
    assert sum(not outcome.cached for outcome in outcomes) == 1
    assert leftovers(tmp_path / "cache") == []


def test_where_builds_are_not_used_again_nobody_sees_what_others_had_built(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path)
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache", reuse_builds=False), environment=compiler.environ))
    shared = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    made = [built(backend, softmax, cpu_candidate(COPY)) for backend in (shared, cpu, cpu)]
    assert [each.cached for each in made] == [False] * 3
    assert len({each.library for each in made}) == 3
    assert compiler.runs == 3
    assert built(shared, softmax, cpu_candidate(COPY)).cached
    assert leftovers(tmp_path / "cache") == []


def _build_in_process(cache: str, environ: dict[str, str], task: Task) -> bool:
    cpu = CpuBackend(Builder(Paths(Path(cache)), environment=environ))
    return built(cpu, task, cpu_candidate(COPY)).cached


def test_processes_share_one_compilation_too(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path, before="sleep 0.3")
    job = (str(tmp_path / "cache"), compiler.environ, softmax)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        cached = pool.starmap(_build_in_process, [job, job])
    assert sorted(cached) == [False, True]
    assert compiler.runs == 1


ENDLESS = f"""
template <int Depth, long Path>
struct Tree {{ Tree<Depth - 1, 2 * Path> a; Tree<Depth - 1, 2 * Path + 1> b; }};
template <long Path> struct Tree<0, Path> {{ char leaf; }};
{LAUNCH} {{ return sizeof(Tree<40, 1>); }}
"""


def test_a_compilation_that_does_not_end_is_killed_and_not_remembered(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path)
    builder = Builder(Paths(tmp_path / "cache"), Limits(build_s=0.8), compiler.environ)
    cpu = CpuBackend(builder)
    begun = time.monotonic()
    reason = failed(cpu, softmax, ENDLESS)
    assert time.monotonic() - begun < 10
    assert reason.startswith("compilation took longer than 0.8 s: ")
    failed(cpu, softmax, ENDLESS)
    assert compiler.runs == 2
    assert leftovers(tmp_path / "cache") == []
    assert not _compilers_in(tmp_path)


def _compilers_in(folder: Path) -> list[str]:
    """Processes still at work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in os.readlink(process / "cwd"):
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_compiler_that_is_killed_is_started_once_more(softmax: Task, tmp_path: Path) -> None:
    once = tmp_path / "killed-once"
    compiler = WrappedCompiler(tmp_path, before=f'[ -e "{once}" ] || {{ touch "{once}"; kill -9 $$; }}')
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    assert not built(cpu, softmax, cpu_candidate(COPY)).cached
    assert once.exists()


def test_a_compiler_that_keeps_being_killed_is_not_held_against_the_source_for_ever(
    softmax: Task, tmp_path: Path
) -> None:
    lives = tmp_path / "lives"
    lives.write_text("xx")  # deaths to come
    killed = f'[ -s "{lives}" ] && {{ truncate -s -1 "{lives}"; kill -9 $$; }}'
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=WrappedCompiler(tmp_path, before=killed).environ))
    assert failed(cpu, softmax, COPY).startswith("the compiler died, most likely out of memory")
    assert not built(cpu, softmax, cpu_candidate(COPY)).cached


def test_words_in_a_source_cannot_pose_as_a_dying_compiler(softmax: Task, tmp_path: Path) -> None:
    compiler = WrappedCompiler(tmp_path)
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    text = '#error "g++: fatal error: Killed signal terminated program cc1plus; No space left on device"'
    assert failed(cpu, softmax, text).startswith("candidate.cpp:1:2: error: #error")
    failed(cpu, softmax, text)
    assert compiler.runs == 1


def test_the_compiler_sees_no_keys_and_writes_only_in_its_own_folder(softmax: Task, tmp_path: Path) -> None:
    dump = tmp_path / "environment"
    compiler = WrappedCompiler(tmp_path, before=f'env > "{dump}"')
    cpu = CpuBackend(Builder(Paths(tmp_path / "cache"), environment=compiler.environ))
    built(cpu, softmax, cpu_candidate(COPY))
    seen = dump.read_text()
    assert "sk-secret" not in seen
    assert f"TMPDIR={tmp_path / 'cache' / 'builds' / 'work'}/" in seen


def test_no_compiler_is_a_clear_state(softmax: Task, tmp_path: Path) -> None:
    cpu = CpuBackend(Builder(Paths(tmp_path), environment={"PATH": str(tmp_path)}))
    state = cpu.available()
    assert (state.build, state.run) == (False, False)
    assert "install g++" in state.detail
    with pytest.raises(ToolMissing, match="install g"):
        cpu.build(cpu_candidate(COPY), cpu.contract(softmax), NATIVE)


def test_another_device_is_refused(cpu: CpuBackend, softmax: Task) -> None:
    with pytest.raises(UsageError, match="choose a CPU target"):
        cpu.build(cpu_candidate(COPY), cpu.contract(softmax), Target(DeviceKind.CUDA, "sm_90a"))


def test_a_cache_that_cannot_be_written_is_our_own_fault(softmax: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cpu = CpuBackend(Builder(Paths(tmp_path / "file")))
    with pytest.raises(HarnessFault, match="build cache"):
        cpu.build(cpu_candidate(COPY), cpu.contract(softmax), NATIVE)


TUNED = f"// tune: BLOCK = 128, 256, 512\n#ifndef BLOCK\n#define BLOCK 1\n#endif\n{LAUNCH} {{ return BLOCK; }}\n"


@pytest.mark.parametrize(("defines", "value"), [((), 128), ((("BLOCK", "512"),), 512)])
def test_tunables_become_macros(
    cpu: CpuBackend, softmax: Task, defines: tuple[tuple[str, str], ...], value: int
) -> None:
    artifact = built(cpu, softmax, cpu_candidate(TUNED, defines=defines))
    assert ctypes.CDLL(str(artifact.library)).launch(None, None, None, None, None, None) == value


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("#include <cuda_runtime.h>\n", "this kernel runs on a CPU: write C++17 with OpenMP loops, and no CUDA."),
        (
            "void add(float* s) {\n#pragma omp parallel for reduction(+:*s)\nfor (int i = 0; i < 9; ++i) *s += i;\n}",
            "a reduction clause takes a plain variable: add into a local one, and store that after the loop.",
        ),
        (
            "int64_t twice(int64_t n) { int64_t workspace_bytes = workspace_bytes(n, n); return workspace_bytes; }\n",
            "`workspace_bytes` is for the harness to call; `launch` calls nothing of the contract.",
        ),
        (
            "int64_t most(int64_t n) { return workspace_bytes(n, n); }\n",  # and no definition
            "`workspace_bytes` is for the harness to call; `launch` calls nothing of the contract.",
        ),
        (
            "void twice(float* workspace) { float workspace[9]; }\n",
            "a parameter has this name already: give the variable another one.",
        ),
    ],
)
def test_common_mistakes_get_a_hint(cpu: CpuBackend, softmax: Task, code: str, hint: str) -> None:
    assert f"hint: {hint}" in failed(cpu, softmax, f"{code}{COPY}")


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ('argument of type "void *" is incompatible with parameter of type "cudaStream_t"', "(cudaStream_t)stream"),
        ('argument of type "const float *" is incompatible with parameter of type "float *"', "pointer to const"),
        ("kernel.cu:2:10: fatal error: cublas_v2.h: No such file or directory", "libraries may not be called"),
        ("link error: undefined reference to `__device_builtin_variable_blockDim`", "exist in kernels only"),
        ('error: identifier "__max" is undefined', "use max"),
        ("error: too many arguments\n    cudaDeviceSynchronize(stream);", "may not synchronise"),
    ],
)
def test_messages_of_nvcc_that_have_a_hint(log: str, words: str) -> None:
    assert [words in advice for backend, found, advice in MISTAKES if backend == "cuda" and found.search(log)] == [True]


def test_a_tunable_that_is_declared_as_well_keeps_its_value(cpu: CpuBackend, softmax: Task) -> None:
    code = f"// tune: BLOCK = 128, 256\nconstexpr int BLOCK = 64;\n{LAUNCH} {{ return BLOCK; }}\n"
    artifact = built(cpu, softmax, cpu_candidate(code))
    assert ctypes.CDLL(str(artifact.library)).launch(None, None, None, None, None, None) == 64
    assert tunables(code) == ()
    assert [each.name for each in tunables(TUNED)] == ["BLOCK"]  # a definition in case there is none


def test_a_macro_that_is_more_than_a_word_never_reaches_a_command_line(cpu: CpuBackend, softmax: Task) -> None:
    candidate = cpu_candidate(COPY, defines=(("BLOCK", "1;$(touch x)"),))
    outcome = cpu.build(candidate, cpu.contract(softmax), NATIVE)
    assert isinstance(outcome, BuildFailure)
    assert "BLOCK" in outcome.reason


@pytest.mark.parametrize(
    "line",
    [
        '#include "/etc/passwd"',
        "#include </etc/passwd>",
        '#  include "../../secret.h"',
        '/* x */ # /* y */ include "/etc/passwd"',
        '/* x\n */ #include "/etc/passwd"',
        '#inc\\\nlude "/etc/passwd"',
        '%:include "/etc/passwd"',
        '#define F "/etc/passwd"\n#include F',
        '#line 1 "/etc/passwd"\nbroken',
        '# 1 "/etc/passwd"\nbroken',
        '#embed "/etc/passwd"',
        'asm(".incbin \\"/etc/passwd\\"");',
        'asm(".include \\"/etc/passwd\\"");',
    ],
)
def test_a_source_that_reads_other_files_is_refused(cpu: CpuBackend, softmax: Task, line: str) -> None:
    reason = failed(cpu, softmax, f"{line}\n{COPY}")
    assert "root:" not in reason
    assert "not allowed" in reason or "leaves the include path" in reason or "through a macro" in reason


def test_several_files_are_compiled_and_included(cpu: CpuBackend, softmax: Task) -> None:
    header = SourceFile("part.h", "int part();\n")
    part = SourceFile("part.cpp", '#include "part.h"\nint part() { return 7; }\n')
    main = f'#include "part.h"\n{LAUNCH} {{ return part(); }}\n'
    artifact = built(cpu, softmax, cpu_candidate(main, header, part))
    assert ctypes.CDLL(str(artifact.library)).launch(None, None, None, None, None, None) == 7


@pytest.mark.parametrize("name", ["../up.h", "a b.h", "-o.h", "$(x).h", ""])
def test_a_file_name_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no plain file name"):
        SourceFile(name, "")


def test_warnings_are_kept(cpu: CpuBackend, softmax: Task) -> None:
    artifact = built(cpu, softmax, cpu_candidate(f"static int f() {{}}\n{LAUNCH} {{ return rows ? 0 : f(); }}"))
    assert artifact.warnings.startswith("candidate.cpp:1:")
    assert "warning: " in artifact.warnings


@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on this machine")
def test_clang_builds_too(softmax: Task, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "CXX": "clang++"}
    cpu = CpuBackend(Builder(Paths(tmp_path), environment=environ))
    try:
        artifact = built(cpu, softmax, cpu_candidate(COPY))
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert artifact.compiler.startswith("clang++ ")
