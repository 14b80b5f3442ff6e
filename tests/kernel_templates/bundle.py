"""Checks many generated kernels at once: one library for all, called in a process of its own.

That takes less time than one build and one evaluation for each kernel.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

import torch
from torch import Tensor

from tests.emulated_device import compile_library
from tests.processes import KilledProcess
from warpsmith import kernel_templates as templates
from warpsmith.backends.cpu import DIALECT, half_flags
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import find_cxx
from warpsmith.backends.tunables import tunables
from warpsmith.model.brief import Problem
from warpsmith.model.build import DeviceKind
from warpsmith.model.contract import Argument, ArgumentKind
from warpsmith.model.strategy import Plan, StrategyChoice
from warpsmith.model.task import Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import DTYPES, Program

HERE = Path(__file__).resolve().parent
_INTRINSICS = ("immintrin.h",) if platform.machine() == "x86_64" else ()
_HEADERS = (*DIALECT.includes, *_INTRINSICS)
_INCLUDES = "".join(f"#include <{name}>\n" for name in _HEADERS)
MOST_ERROR = 40.0  # units of the element type's resolution, for the largest error of a few hundred elements

# Without torch, which would take seconds to import. The memory is a file that both processes map.
_CALLS = """
import ctypes, json, mmap, sys
library = ctypes.CDLL(sys.argv[1])
for line in sys.stdin:
    name, values = json.loads(line)
    function, base = getattr(library, name), 0
    function.restype = ctypes.c_int64 if name.startswith("workspace_bytes") else ctypes.c_int
    if any(kind == "address" for kind, _ in values):
        with open(sys.argv[2], "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    kinds = {"address": lambda at: ctypes.c_void_p(base + at), "number": ctypes.c_int64, "null": ctypes.c_void_p}
    kinds["real"] = ctypes.c_double
    print(function(*(kinds[kind](value) for kind, value in values)), flush=True)
"""
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
    return Problem(program.task, contract, backend, "a device", DeviceKind(backend), arch, (), outline(program))


def load_case(file: Path, name: str, backend: str) -> tuple[Program, Problem]:
    """A task of a file and its problem."""
    program = load_task(f"{file}::{name}")
    return program, problem_of(program, backend)


def every(problem: Problem, without: Sequence[str] = ()) -> Plan:
    """All strategies at once, with their usual values; what excludes each other is settled by the template."""
    return Plan(
        tuple(
            StrategyChoice(s.name, tuple((p.name, p.values[0]) for p in s.parameters))
            for s in templates.abilities(problem)
            if s.name not in without
        )
    )


def drawn(problem: Problem, random: Random) -> Plan:
    """Some strategies with any values."""
    return Plan(
        tuple(
            StrategyChoice(s.name, tuple((p.name, random.choice(p.values)) for p in s.parameters))
            for s in templates.abilities(problem)
            if random.random() < 0.6
        )
    )


def case_of(program: Program, problem: Problem, plan: Plan) -> Case:
    """The kernel of a plan."""
    return Case(program, problem, plan, templates.translate(problem, plan))


def build(cases: Sequence[Case], folder: Path) -> Path:
    """A library of all kernels; CUDA kernels are compiled for the emulated device."""
    device = cases[0].problem.backend == "cuda"
    text = f'#include "{HERE / "emulator.h"}"\n' if device else _INCLUDES + DIALECT.type_preludes["bfloat16"]
    library_lines = [line for case in cases for line in case.source.splitlines() if "#include <warpsmith/" in line]
    text += "".join(f"{line}\n" for line in dict.fromkeys(library_lines))
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
    compiler = find_cxx(os.environ)
    assert compiler is not None
    # -O0: the numbers are checked here, not the speed, and compiling is what takes the time.
    options = ("-O0", "-march=native", "-fopenmp", "-fvisibility=hidden", f"-I{LIBRARY}", *half_flags(compiler))
    return compile_library(text, folder, options, headers=_HEADERS)


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


class KernelProcess:
    """A process that calls the kernels of one library: a kernel that crashes fails one test, which names it."""

    def __init__(self, library: Path) -> None:
        self._memory = library.with_suffix(".memory")
        command = [sys.executable, "-c", _CALLS, str(library), str(self._memory)]
        self._process = KilledProcess(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            pass

    def error(
        self,
        number: int,
        case: Case,
        workload: Workload,
        measure: Callable[[Tensor, Tensor], float] | None = None,
    ) -> float:
        """The largest error of a kernel's outputs against the reference in double precision."""
        inputs = case.program.inputs(workload, seed=number, device=torch.device("cpu"))
        tensors = dict(inputs)
        for spec in case.problem.task.outputs:
            tensors[spec.name] = torch.full(spec.shape(workload.sizes), 77, dtype=DTYPES[spec.dtype])
        places, total = {}, 0
        for name, tensor in tensors.items():
            places[name], total = total, total + _aligned(tensor.nbytes)
        arguments = case.problem.contract.arguments
        scratch_bytes = 0
        if "workspace_bytes(" in case.source:
            sizes = [_number(case, workload, a) for a in case.problem.contract.size_arguments]
            scratch_bytes = self._call(case, f"workspace_bytes_{number}", sizes)
        self._memory.write_bytes(b"\xff" * max(1, total + scratch_bytes))
        memory = torch.from_file(str(self._memory), shared=True, size=total, dtype=torch.uint8)
        for name, tensor in tensors.items():
            memory[places[name] : places[name] + tensor.nbytes] = tensor.reshape(-1).view(torch.uint8)
        values: list[tuple[str, float]] = []
        for argument in arguments:
            if argument.kind in (ArgumentKind.INPUT, ArgumentKind.OUTPUT):
                values.append(("address", places[argument.source]))
            elif argument.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR):
                values.append(_number(case, workload, argument))
            else:
                with_scratch = argument.kind is ArgumentKind.WORKSPACE and scratch_bytes
                values.append(("address", total) if with_scratch else ("null", 0))
        assert self._call(case, f"launch_{number}", values) == 0
        wanted = case.program.run(case.program.widen(inputs))
        worst = 0.0
        for spec, expected in zip(case.problem.task.outputs, wanted, strict=True):
            like = tensors[spec.name]
            written = memory[places[spec.name] : places[spec.name] + like.nbytes].clone()
            worst = max(worst, (measure or error)(written.view(like.dtype).reshape(like.shape), expected))
        return worst

    def _call(self, case: Case, function: str, values: Sequence[tuple[str, float]]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([function, values]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            raise AssertionError(f"{function} of {case.problem.task.name} [{case.plan}] ended its process: {status}")
        return int(answer)


def _number(case: Case, workload: Workload, argument: Argument) -> tuple[str, float]:
    """An axis or a scalar of the task."""
    if argument.kind is ArgumentKind.AXIS:
        return "number", workload.sizes[argument.source]
    value = next(each.value for each in case.problem.task.scalars if each.name == argument.source)
    return ("real" if isinstance(value, float) else "number"), value


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 256) * 256


def errors_of(cases: Sequence[Case], folder: Path) -> list[list[float]]:
    """The largest error of each kernel in each workload."""
    with KernelProcess(build(cases, folder)) as process:
        return [
            [process.error(number, case, workload) for workload in case.problem.task.workloads]
            for number, case in enumerate(cases)
        ]


def wrong_cases(cases: Sequence[Case], folder: Path) -> list[str]:
    """The kernels whose error is too large, with their plans."""
    found = errors_of(cases, folder)
    return [
        f"{case.problem.task.name} {case.problem.task.precision} [{case.plan}]: {errors}"
        for case, errors in zip(cases, found, strict=True)
        if max(errors) > MOST_ERROR
    ]


def error(found: Tensor, wanted: Tensor) -> float:
    """The largest scaled error, relative to the element type's own resolution; 0 or infinity for whole numbers."""
    if not found.is_floating_point():
        return 0.0 if bool((found == wanted.to(found.dtype)).all()) else float("inf")
    scale = wanted.double().pow(2).mean().sqrt().item() + 1e-30
    far = ((found.double() - wanted.double()).abs() / (wanted.double().abs() + scale)).max().item()
    return far / torch.finfo(found.dtype).eps if far == far else float("inf")
