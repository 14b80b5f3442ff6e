"""Diagnoses for the CPU: loops that the compiler did not vectorise, and whether threads are used.

The candidate is compiled once more with the backend's own flags and with remarks; nothing runs. The compiler's reasons
are translated into terms of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.source import backend_named
from warpsmith.hardware.roofline import Zone
from warpsmith.model.brief import Problem
from warpsmith.model.build import Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import ToolMissing
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.numbers import whole_percent
from warpsmith.model.settings import Limits, Paths
from warpsmith.profiling.digest import (
    CPU_STRATEGIES,
    NEAR,
    Bottleneck,
    Diagnosis,
    Rank,
    longest_workload,
    workload_zone,
)

_MOST_LOOPS = 2  # named in one digest
_BODY_LINES = 12  # of a loop, searched for reasons that the compiler does not report

_REMARK = re.compile(r"^([^:\n]+):(\d+):(\d+): (missed|optimized|note|remark):\s*(.*)$")
_MISSED = re.compile(r"couldn't vectorize loop|loop not vectorized")
_DONE = re.compile(r"loop vectorized using|vectorized loop|OUTER LOOP VECTORIZED")
_OUTER = re.compile(
    r"consecutive inner loops|multiple nested loops|outer.loop|not the innermost|not suitable for outer"
)
_CALL = re.compile(
    r"\b(?:std::)?(exp2?|expm1|log(?:2|10|1p)?|pow|tanh|sinh?|cosh?|tan|a(?:sin|cos|tan2?)|erfc?|tgamma|lgamma|cbrt)f?\s*\("
)
_LOOP = re.compile(r"^(?!\s*#).*\b(?:for|while|do)\b")
_LOOP_WORD = re.compile(r"\b(?:for|while)\s*\(")
_INTRINSIC = re.compile(r"\b(?:_mm(?:256|512)?_\w+|v(?:ld|st)[1-4]q?_\w+|sv(?:ld|st)\w+)\s*\(")
_BACKWARD = re.compile(r"\[[^\]\n]*-\s*1\s*\]")
_PARALLEL = re.compile(r"#\s*pragma\s+omp\b[^\n]*\b(?:parallel|taskloop|teams)\b|std::thread|omp_set_num_threads")

# The compiler's phrase, its meaning for the author of the loop, and strategies.
_REASONS: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (re.compile(r"control flow|early exit|switch"), "a branch or an early exit in it", ("branchless", "simd")),
    (
        re.compile(r"unsupported use in stmt|reduction|reorder|floating-point operations"),
        "its sum or maximum may not be reordered without permission",
        ("simd", "multiple-accumulators"),
    ),
    (
        re.compile(r"alias|dependen[ct]|versioning"),
        "an iteration may depend on another one, or pointers may overlap",
        ("restrict-pointers", "multiple-accumulators"),
    ),
    (
        re.compile(r"access pattern|gather|not consecutive|strided|unsupported data.ref|bad data ref"),
        "its accesses are not contiguous",
        ("loop-interchange", "cache-blocking"),
    ),
    (
        re.compile(r"number of iterations|could not determine number|latch|loop exit"),
        "how often it runs is not known before it starts",
        ("strength-reduction", "simd"),
    ),
    (
        re.compile(r"clobbers memory|function call|call instruction|library call"),
        "it calls a function that has no vector form",
        ("vector-exp", "simd"),
    ),
)


@dataclass(frozen=True)
class ScalarLoop:
    """A loop that the compiler did not vectorise."""

    file: str
    line: int
    reason: str  # in words
    strategies: tuple[str, ...]


@dataclass(frozen=True)
class VectorisationReport:
    """The compiler's report on loops."""

    compiler: str
    scalar: tuple[ScalarLoop, ...]  # innermost loops that were not vectorised, in source order
    vectorised: int  # number of vectorised loops


def compile_report(
    candidate: Candidate, contract: Contract, target: Target, paths: Paths, limits: Limits
) -> VectorisationReport:
    """Compile the candidate with remarks and parse them."""
    backend = backend_named("cpu").configured(paths, limits)
    if not isinstance(backend, CpuBackend):
        raise ToolMissing(
            "the cpu backend in use gives no report on vectorisation; remove the package that replaces it."
        )
    compiler = backend.available().detail
    return parse_report(backend.vectorisation(candidate, contract, target), candidate, compiler)


def parse_report(log: str, candidate: Candidate, compiler: str) -> VectorisationReport:
    """Parse the remarks of g++ or clang++."""
    texts = {file.name: file.text.splitlines() for file in candidate.files}
    missed: dict[tuple[str, int], list[str]] = {}
    done: set[tuple[str, int]] = set()
    latest: tuple[str, int] | None = None
    for line in log.splitlines():
        found = _REMARK.match(line)
        if found is None:
            continue
        name, said = found[1].rsplit("/", 1)[-1], found[5]
        if name not in texts:
            latest = None  # a loop in a header
            continue
        place = (name, _loop_line(texts[name], int(found[2])))  # line 0: no loop
        if _DONE.search(said):
            done.add(place)
            latest = None
        elif _MISSED.search(said):
            latest = place if place[1] else None
            if latest:
                missed.setdefault(latest, []).append(said)
        elif latest is not None and "not vectorized" in said:
            missed[latest].append(said)
    scalar = [
        _loop(place, said, texts[place[0]])
        for place, said in sorted(missed.items())
        if place not in done
        and not any(_OUTER.search(each) for each in said)
        and not _holds_loop(texts[place[0]], place[1])
        and not _INTRINSIC.search(_body(texts[place[0]], place[1]))  # vector code by hand
    ]
    return VectorisationReport(compiler, tuple(scalar), len(done))


def diagnoses(
    found: VectorisationReport, candidate: Candidate, problem: Problem, evaluation: Evaluation
) -> Iterator[Diagnosis]:
    """Single-threaded code and scalar loops; nothing if the kernel is near its limit or the work is tiny."""
    result = longest_workload(evaluation)
    share = result.share_of_floor
    if share >= NEAR or workload_zone(problem, result.workload) == Zone.LATENCY:
        return
    reached = f"{whole_percent(share)} of the hardware limit"
    threads = evaluation.environment.threads
    if threads > 1 and not any(_PARALLEL.search(file.text) for file in candidate.files):
        yield Diagnosis(
            Bottleneck.ONE_THREAD,
            "Nothing in the source starts threads, so that all but one processor are idle.",
            (f"1 of {threads} threads", reached),
            CPU_STRATEGIES[Bottleneck.ONE_THREAD],
            Rank.WASTE,
            1.0 - 1.0 / threads,
        )
    if found.scalar:
        shown = found.scalar[:_MOST_LOOPS]
        names = dict.fromkeys(name for loop in shown for name in loop.strategies)
        more = len(found.scalar) - len(shown)
        yield Diagnosis(
            Bottleneck.NOT_VECTORISED,
            f"The compiler ({found.compiler}) left {_loops(len(found.scalar))} scalar.",
            (*(f"the loop at {loop.file}:{loop.line}: {loop.reason}" for loop in shown), _rest(more, reached)),
            tuple(names),
            Rank.WASTE,
            0.5,
        )


def _rest(more: int, reached: str) -> str:
    return f"{_loops(more)} more; {reached}" if more else reached


def _loops(count: int) -> str:
    return f"{count} loop{'s' if count != 1 else ''}"


def _loop(place: tuple[str, int], said: Sequence[str], lines: Sequence[str]) -> ScalarLoop:
    for pattern, words, names in _REASONS:
        if any(pattern.search(each) for each in said):
            return ScalarLoop(*place, words, names)
    # The compiler reports only the reason for the last vector size it tried, which is often another one.
    body = _body(lines, place[1])
    called = _CALL.search(body)
    if called:
        return ScalarLoop(
            *place, f"it calls {called[1]}, for which the compiler has no vector form", ("vector-exp", "simd")
        )
    if _BACKWARD.search(body):
        return ScalarLoop(*place, "an iteration needs the result of the one before", ("loop-interchange",))
    return ScalarLoop(*place, "the compiler gives no reason", CPU_STRATEGIES[Bottleneck.NOT_VECTORISED])


def _loop_line(lines: Sequence[str], number: int) -> int:
    """The first line of the loop around a line; 0 if there is none. Remarks often name the exit of a loop."""
    for line in range(min(number, len(lines)), max(0, number - _BODY_LINES), -1):
        if _LOOP.search(_code(lines[line - 1])):
            return line
    return 0


def _code(line: str) -> str:
    return line.partition("//")[0]


def _holds_loop(lines: Sequence[str], number: int) -> bool:
    """Whether another loop begins inside of the loop that begins in a line."""
    return sum(len(_LOOP_WORD.findall(line)) for line in _statement(lines, number, len(lines))) > 1


def _body(lines: Sequence[str], number: int) -> str:
    """The first lines of a loop."""
    return "\n".join(_statement(lines, number, _BODY_LINES))


def _statement(lines: Sequence[str], number: int, most: int) -> list[str]:
    """The lines of a loop without comments, up to its closing brace or the end of its only statement."""
    depth, taken = 0, []
    for line in map(_code, lines[number - 1 : number - 1 + most]):
        taken.append(line)
        depth += line.count("{") - line.count("}")
        if depth <= 0 and (";" in line.rpartition(")")[2] or "}" in line):
            break
    return taken
