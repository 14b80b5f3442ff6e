"""Candidate files, build logs and built objects: everything that is read between a file and a library."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.fuzz.engine import Target, one_line
from tests.fuzz.mutate import Mutator
from warpsmith.backends.builder import refusal
from warpsmith.backends.diagnostics import clashes_with, errors_of, resources, undefined_symbols, warnings_of
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.source import read_candidate
from warpsmith.backends.tunables import bad_macro, macros, redefined, tunables
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import CandidateError, HarnessFault

ROOT = Path(__file__).resolve().parent.parent.parent
_WORDS = (
    *("#include", "#include <", '#include "/etc/passwd"', "#pragma", "#/**/include", "%:include", "#line 3", "#embed"),
    *("// tune: BLOCK = 128, 256", "// tune:", "launch", 'extern "C"', "template", "constexpr int", "??=include"),
    *("import triton", "class ModelNew", "def launch", "\\\n", 'R"(', ".incbin", "int64_t", "omp", "__global__"),
)
_LOG_WORDS = (
    *("error:", "warning:", "note:", "fatal error:", "candidate.cpp:3:7:", "candidate.cu(12):", "ptxas info    :"),
    *("undefined reference to `foo'", "Compiling entry function '_Z3foov' for 'sm_90a'", "Used 32 registers"),
    *("16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads", "required from here", "In file included"),
    *("Function properties for _Z3foov", "nvcc fatal   :", "/usr/include/c++/12/bits/", "_ZN3foo3barILi3EEvv", "^~~~"),
)
LOGS = (
    "candidate.cpp: In function 'int launch(const float*)':\ncandidate.cpp:3:5: error: 'foo' was not declared in this "
    "scope\n    3 |     foo();\n      |     ^~~\nIn file included from /usr/include/c++/12/algorithm:60,\n"
    "/usr/include/c++/12/bits/stl_algo.h:5:2: error: no match\ncandidate.cpp:9:1:   required from here\n",
    'candidate.cu(12): error: identifier "foo" is undefined\n      foo<<<1, 2>>>();\n      ^\n\n1 error detected in '
    'the compilation of "candidate.cu".\n',
    "ptxas info    : Compiling entry function '_Z3fooPf' for 'sm_90a'\n"
    "ptxas info    : Function properties for _Z3fooPf\n"
    "    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\nptxas info    : Used 32 registers, 400 bytes "
    "smem\nptxas /tmp/x.ptx, line 3; error   : Unknown symbol '_Z3barv'\n",
    "/usr/bin/ld: /tmp/x.o: in function `launch':\ncandidate.cpp:(.text+0x1): undefined reference to `foo(float*)'\n"
    "collect2: error: ld returned 1 exit status\n",
)


@cache
def kernels() -> tuple[str, ...]:
    """Sources of all kinds of candidate."""
    files = [*(ROOT / "tests/kernels/cpu").glob("*.cpp"), *(ROOT / "tests/kernels/cuda").glob("*.cu")]
    files += [*(ROOT / "examples/kernels").iterdir(), *(ROOT / "tests/kernels").glob("python/*.py")]
    return tuple(path.read_text(encoding="utf-8") for path in sorted(files))


@cache
def objects() -> tuple[bytes, ...]:
    """Small shared objects of this machine, cut to what matters."""
    found = [Path(p) for p in ("/proc/self/exe",)] + sorted(Path("/usr/lib").glob("*/libdl.so*"))[:1]
    found += sorted(Path("/usr/lib").glob("*/libutil.so*"))[:1] + sorted(Path("/usr/lib").glob("*/libgomp.so*"))[:1]
    return tuple(data for path in found if len(data := path.read_bytes()) < 1 << 19) or (
        b"\x7fELF\x02\x01" + bytes(90),
    )


@cache
def _folder() -> Path:
    # Kept until this process ends: a folder per input would cost more than the input.
    holder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(holder)
    return Path(holder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def make_file(mutator: Mutator) -> tuple[str, bytes, str]:
    """A file name, its content, and an --entry."""
    rng = mutator.rng
    name = rng.choice(
        ("k.cpp", "k.cu", "k.py", "k.cc", "K.CPP", "k.txt", "k", "-k.cpp", ".cpp", "a b;$(x).cu", "é.cpp")
    )
    entry = rng.choice(("", "", "f", "f(x, 1)", "f(", "", mutator.text(("f(x, out, 3, true, none)",))[:200]))
    return name, mutator.encoded(mutator.text(kernels(), _WORDS)), entry


def feed_candidate(given: tuple[str, bytes, str]) -> str:
    """From a file to what is handed to a compiler."""
    name, data, entry = given
    path = _folder() / name
    path.write_bytes(data)
    try:
        candidate = read_candidate(path, entry=entry)
    except CandidateError as error:
        return one_line(error)
    finally:
        path.unlink()
    refused = refusal(candidate.files)
    if refused is not None:
        assert len(refused.splitlines()) == 1, refused
    for name, value in macros(candidate):
        assert not bad_macro(name, value), (name, value)
    return "accepted" if refused is None else "objected"


def make_text(mutator: Mutator) -> str:
    """Source text that has passed no reader."""
    return mutator.text(kernels(), _WORDS)


def feed_screen(text: str) -> str:
    """The screen and the tunables on any text."""
    refused = refusal([SourceFile("candidate.cpp", text)])
    for each in tunables(text):
        redefined(text, each.name)
    return "accepted" if refused is None else "objected"


def feed_log(log: str) -> str:
    """A compiler's output, which a source can put anything into."""
    shown = errors_of(log, files=["candidate.cpp", "candidate.cu"], hints=["a hint"])
    assert shown.strip()
    assert len(shown) < 8000, "a diagnosis is short"
    warnings_of(log)
    undefined_symbols(log)
    clashes_with(log, "launch")
    return "kernels" if resources(log) else "none"


def feed_object(data: bytes) -> str:
    """A built library."""
    path = _folder() / "candidate.so"
    path.write_bytes(data)
    try:
        read_symbols(path)
    except HarnessFault as error:
        return one_line(error)
    return "accepted"


TARGETS = (
    Target("candidate", make_file, feed_candidate, 0.12),
    Target("screen", make_text, feed_screen, 0.06),
    Target("log", lambda m: m.text(LOGS, _LOG_WORDS), feed_log, 0.05),
    Target("elf", lambda m: m.data(objects()), feed_object, 0.06),
)
