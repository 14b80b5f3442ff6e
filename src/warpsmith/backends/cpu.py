"""The `cpu` backend: C++17 with OpenMP, compiled for this machine by g++ or clang++.

-ffast-math is off: it would let a candidate ignore NaNs and reorder sums, which PyTorch may not. A candidate can turn
it on for one loop with a pragma; its results must still pass the numerical check.
"""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path

from warpsmith.backends.builder import CPU_NAMES, CompileOptions, NativeBackend, missing_headers
from warpsmith.backends.c_contract import CDialect
from warpsmith.backends.library import library_digest, library_headers
from warpsmith.backends.toolchain import NO_CXX, Compiler, find_cxx
from warpsmith.hardware.device import cpu_info
from warpsmith.model.build import Artifact, Availability, Backend, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import ToolMissing, UsageError

# g++ 12 has neither std::bfloat16_t nor __bf16 on every target, so the header defines a storage type.
_BF16 = """
struct bf16 {
  uint16_t bits;
  bf16() = default;
  bf16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    bits = static_cast<uint16_t>(value != value ? (word >> 16) | 0x40u : rounded);
  }
  operator float() const {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
};
"""

DIALECT = CDialect(
    backend="cpu",
    language="C++17 with OpenMP",
    fence="cpp",
    ctypes={
        "float64": "double",
        "float32": "float",
        "float16": "_Float16",
        "bfloat16": "bf16",
        "float8_e4m3fn": "uint8_t",
        "float8_e5m2": "uint8_t",
        "int64": "int64_t",
        "int32": "int32_t",
        "int16": "int16_t",
        "int8": "int8_t",
        "uint8": "uint8_t",
        "bool": "bool",
        "complex64": "std::complex<float>",
        "complex128": "std::complex<double>",
    },
    includes=(
        *("cstdint", "cstddef", "cstdio", "cstdlib", "cstring", "cmath", "cfloat", "climits"),
        *("algorithm", "limits", "omp.h"),
    ),
    type_includes={"complex64": "complex", "complex128": "complex"},
    type_preludes={"bfloat16": _BF16},
    memory="host",
    alignment_bytes=64,
    table_note="an array of pointers",
    rules=(
        "Use OpenMP for threads (the harness sets their number) and no threads that outlive the call.",
        "Compiled with `-O3 -march=native -fopenmp`, without `-ffast-math`; SIMD intrinsics may be used.",
    ),
    type_rules={
        "bfloat16": "`bf16` is a 16-bit storage type that converts to and from `float` by itself.",
        "float16": "`_Float16` is the compiler's own type: convert to `float` for arithmetic.",
        "float8_e4m3fn": "float8_e4m3fn comes as raw bytes: 1 sign, 4 exponent (bias 7), 3 mantissa bits.",
        "float8_e5m2": "float8_e5m2 comes as raw bytes: 1 sign, 5 exponent (bias 15), 2 mantissa bits.",
    },
)

_FLAGS = (
    *("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-shared", "-fvisibility=default"),
    # With these flags results are those of IEEE arithmetic with fused multiply-add.
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    "-fdiagnostics-color=never",
)
# -O1 keeps line numbers of reports right; _GLIBCXX_ASSERTIONS finds accesses between a vector's size and capacity.
_SANITIZED_FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "-D_GLIBCXX_ASSERTIONS",
)
_SANITIZED_ONLY_FOR = {"gcc": (), "clang": ("-shared-libasan",)}
_VECTORISATION = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": tuple(f"-Rpass{kind}=loop-vectorize" for kind in ("", "-missed", "-analysis")),
}
_ERROR_LIMIT = {"gcc": "-fmax-errors=5", "clang": "-ferror-limit=5"}
_LINK_FLAGS = ("-Wl,--no-undefined", "-Wl,-z,now")


class CpuBackend(NativeBackend):
    name: str = "cpu"
    suffixes: tuple[str, ...] = (".cpp", ".cc", ".cxx", ".c++")
    devices: tuple[DeviceKind, ...] = (DeviceKind.CPU,)
    dialect = DIALECT

    def available(self) -> Availability:
        """Whether a C++ compiler is installed; every machine can run what it builds."""
        compiler = find_cxx(self._builder.environ)
        if compiler is None:
            return Availability(build=False, run=False, detail=NO_CXX)
        return Availability(build=True, run=True, detail=compiler.name)

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Compile for `target.arch` ("native" or any name -march takes)."""
        if target.kind not in self.devices:
            raise UsageError(f"backend cpu cannot build for {target.kind!r}; choose a CPU target.")
        compiler = find_cxx(self._builder.environ)
        if compiler is None:
            raise ToolMissing(NO_CXX + ".")
        recipe = _recipe(compiler, candidate, contract, target, self._library)
        return self._builder.build(candidate, contract, recipe)

    def vectorisation(self, candidate: Candidate, contract: Contract, target: Target) -> str:
        """The compiler's report on vectorised and missed loops, in lines `file:line:column: ...`."""
        compiler = find_cxx(self._builder.environ)
        if compiler is None:
            raise ToolMissing(NO_CXX + ".")
        recipe = _recipe(compiler, candidate, contract, target, self._library)
        flags = (*_VECTORISATION[compiler.family], *recipe.flags)
        return self._builder.remarks(candidate, contract, replace(recipe, flags=flags))


def half_flags(compiler: Compiler) -> tuple[str, ...]:
    """The flags that define `_Float16` for g++ before 13 on Arm, which has the type under another name."""
    version = re.search(r"g\+\+ (\d+)", compiler.name)
    old = compiler.family == "gcc" and version is not None and int(version[1]) < 13
    return ("-D_Float16=__fp16",) if old and platform.machine() == "aarch64" else ()


def _recipe(
    compiler: Compiler, candidate: Candidate, contract: Contract, target: Target, folder: Path
) -> CompileOptions:
    headers = missing_headers((f.text for f in candidate.files), CPU_NAMES)
    library = library_headers(*(file.text for file in candidate.files), folder=folder)
    processor = cpu_info()
    checks = (*_SANITIZED_FLAGS, *_SANITIZED_ONLY_FOR[compiler.family]) if target.sanitized else ()
    return CompileOptions(
        compiler=compiler,
        target=" ".join(
            [
                f"{processor.name} {processor.flags}" if target.arch == "native" else target.arch,
                *([library_digest(library)] if library else []),
            ]
        ),
        flags=(
            *_FLAGS,
            f"-march={target.arch}",
            *half_flags(compiler),
            _ERROR_LIMIT[compiler.family],
            *checks,
            *((f"-I{folder}",) if library else ()),
            "-x",
            "c++",
        ),
        include_flags=tuple(word for header in headers for word in ("-include", header)),
        # `-x none` ends `-x c++`, under which libraries would be read as source.
        link_flags=(
            *("-x", "none", *_LINK_FLAGS),
            *(("-Wl,--no-as-needed", str(compiler.stdlib), "-Wl,--as-needed") if compiler.stdlib else ()),
            *(f"-l{name}" for name in contract.libraries),
        ),
        suffixes=CpuBackend.suffixes,
        precompiled=DIALECT.includes if compiler.family == "gcc" and not target.sanitized else (),
    )


PLUGIN: Backend = CpuBackend()
