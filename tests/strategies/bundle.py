"""Many generated kernels in one library, called directly: quicker than one build and one judgement each."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from warpsmith.backends.cpu import DIALECT, half_flags
from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import find_cxx
from warpsmith.backends.tunables import tunables
from warpsmith.core.contract import ArgumentKind
from warpsmith.core.search import Problem
from warpsmith.core.strategy import Choice, Plan
from warpsmith.core.task import Workload
from warpsmith.strategies import templates
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import DTYPES, Program

HERE = Path(__file__).resolve().parent
_INTRINSICS = ("immintrin.h",) if platform.machine() == "x86_64" else ()
_INCLUDES = "".join(f"#include <{name}>\n" for name in (*DIALECT.includes, *_INTRINSICS))
_LAUNCH = re.compile(r"^(\s*)(.+?)<<<(.+), (\w+), (\w+), stream_>>>\((.*)\);$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One kernel of one plan."""

    program: Program
    problem: Problem
    plan: Plan
    source: str


def problem_of(program: Program, backend: str) -> Problem:
    """What a template gets to know about a task."""
    contract = backend_named(backend).contract(program.task)
    arch = "sm_90a" if backend == "cuda" else ""
    return Problem(program.task, contract, backend, "a device", backend, arch, (), outline(program))


def load_case(file: Path, name: str, backend: str) -> tuple[Program, Problem]:
    """A task of a file and its problem."""
    program = load_task(f"{file}::{name}")
    return program, problem_of(program, backend)


def every(problem: Problem, without: Sequence[str] = ()) -> Plan:
    """All strategies at once, with their usual values; what excludes each other is settled by the template."""
    return Plan(
        tuple(
            Choice(s.name, tuple((p.name, p.values[0]) for p in s.parameters))
            for s in templates.abilities(problem)
            if s.name not in without
        )
    )


def drawn(problem: Problem, random: Random) -> Plan:
    """Some strategies with any values."""
    return Plan(
        tuple(
            Choice(s.name, tuple((p.name, random.choice(p.values)) for p in s.parameters))
            for s in templates.abilities(problem)
            if random.random() < 0.6
        )
    )


def case_of(program: Program, problem: Problem, plan: Plan) -> Case:
    """The kernel of a plan."""
    return Case(program, problem, plan, templates.translate(problem, plan))


def build(cases: Sequence[Case], folder: Path) -> ctypes.CDLL:
    """All kernels in one library, with CUDA ones emulated."""
    device = cases[0].problem.backend == "cuda"
    text = f'#include "{HERE / "emulator.h"}"\n' if device else _INCLUDES + DIALECT.type_preludes["bfloat16"]
    for number, case in enumerate(cases):
        body = re.sub(r"^#include.*$", "", case.source, flags=re.MULTILINE)
        body = re.sub(r"\blaunch\(", f"launch_{number}(", body)
        body = re.sub(r"\bworkspace_bytes\(", f"workspace_bytes_{number}(", body)
        body = body.replace('extern "C"', 'extern "C" __attribute__((visibility("default")))')
        if device:
            body = _emulated(body)
        macros = tunables(case.source)
        text += "".join(f"#define {m.name} {m.values[0]}\n" for m in macros)
        text += f"namespace case_{number} {{\n{body}\n}}\n#undef keep_for\n"
        text += "".join(f"#undef {m.name}\n" for m in macros)
    source, library = folder / "bundle.cpp", folder / "bundle.so"
    source.write_text(text)
    # -O0: the numbers are checked here, not the speed, and compiling is what takes the time.
    # Hidden: what has the same name in two libraries of one process, such as a kernel's shared memory, stays apart.
    flags = ("-std=c++17", "-O0", "-march=native", "-fopenmp", "-fPIC", "-shared", "-w", "-fmax-errors=3")
    compiler = find_cxx(os.environ)
    assert compiler is not None
    done = subprocess.run(
        [*compiler.command, *flags, "-fvisibility=hidden", *half_flags(compiler), str(source), "-o", str(library)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(library))


def _emulated(body: str) -> str:
    """CUDA C++ as plain C++ for the emulator: launches are calls, shared memory is static."""
    body = re.sub(r"extern __shared__ .* (\w+)\[\];", r"unsigned char* \1 = emulated::dynamic_bytes;", body)
    body = re.sub(r'asm\("tanh\.approx.*\);', "y = tanhf(x);", body)
    body = re.sub(r"^\s*#pragma unroll.*$", "", body, flags=re.MULTILINE)
    return _LAUNCH.sub(_call, body)


def _call(launch: re.Match[str]) -> str:
    indent, kernel, grid, threads, shared, arguments = launch.groups()
    name = "launch_clusters(CLUSTER, " if kernel.startswith("cluster") else "launch("
    return f"{indent}emulated::{name}{grid}, {threads}, {shared}, [&] {{ {kernel}({arguments}); }});"


def run(library: ctypes.CDLL, number: int, case: Case, workload: Workload) -> tuple[list[Tensor], list[Tensor]]:
    """What a kernel writes, and what the reference gives in double precision."""
    inputs = case.program.inputs(workload, seed=number, device=torch.device("cpu"))
    outputs = {
        spec.name: torch.full(spec.shape(workload.sizes), 77, dtype=DTYPES[spec.dtype])
        for spec in case.problem.task.outputs
    }
    values: list[ctypes.c_void_p | ctypes.c_int64] = []
    sizes = [ctypes.c_int64(workload.sizes[a.source]) for a in case.problem.contract.size_arguments]
    scratch = torch.empty(0)
    for argument in case.problem.contract.arguments:
        if argument.kind is ArgumentKind.INPUT:
            values.append(ctypes.c_void_p(inputs[argument.source].data_ptr()))
        elif argument.kind is ArgumentKind.OUTPUT:
            values.append(ctypes.c_void_p(outputs[argument.source].data_ptr()))
        elif argument.kind is ArgumentKind.AXIS:
            values.append(ctypes.c_int64(workload.sizes[argument.source]))
        elif argument.kind is ArgumentKind.WORKSPACE and "workspace_bytes(" in case.source:
            ask = getattr(library, f"workspace_bytes_{number}")
            ask.restype = ctypes.c_int64
            scratch = torch.full((ask(*sizes) + 256,), 255, dtype=torch.uint8)
            values.append(ctypes.c_void_p((scratch.data_ptr() + 255) // 256 * 256))
        else:
            values.append(ctypes.c_void_p(0))
    assert getattr(library, f"launch_{number}")(*values) == 0
    assert scratch is not None  # alive until here
    return list(outputs.values()), list(case.program.run(case.program.widen(inputs)))


def error(found: Tensor, wanted: Tensor) -> float:
    """The largest scaled error, relative to the element type's own resolution; 0 or infinity for whole numbers."""
    if not found.is_floating_point():
        return 0.0 if bool((found == wanted.to(found.dtype)).all()) else float("inf")
    scale = wanted.double().pow(2).mean().sqrt().item() + 1e-30
    far = ((found.double() - wanted.double()).abs() / (wanted.double().abs() + scale)).max().item()
    return far / torch.finfo(found.dtype).eps if far == far else float("inf")
