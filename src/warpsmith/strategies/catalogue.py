"""Finds the strategies that apply to a problem, the most relevant first.

The catalogue is `cpu.toml`, `cuda.toml` and `shared.toml`, and plugins of other packages.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Strategy, StrategyParameter, arch_number
from warpsmith.model.task import Family, Operation, Outline
from warpsmith.system.plugins import plugins

# What an operation's name says about the work, finer than `Family`: the word is searched for in ATen names such as
# "aten.convolution.default" and, where no outline was recorded, in the reference's source.
_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("attention", re.compile(r"attention")),
    ("convolution", re.compile(r"conv(?:olution|_?(?:transpose)?[123]d)", re.IGNORECASE)),
    ("gather", re.compile(r"\b(?:gather|index_select|embedding|index\.Tensor|scatter\w*|index_add)\b")),
    ("normalisation", re.compile(r"(?:layer|batch|group|instance|rms)_?norm", re.IGNORECASE)),
    ("pooling", re.compile(r"pool", re.IGNORECASE)),
    ("scan", re.compile(r"\b(?:cumsum|cumprod|cummax|cummin|logcumsumexp)\b")),
    ("softmax", re.compile(r"softmax|logsumexp|\bexp\b")),
    ("selection", re.compile(r"\b(?:topk|kthvalue|sort|argsort|median|unique)\b")),
    ("structured", re.compile(r"\b(?:tril|triu|diag|diag_embed|diagonal|eye)\b")),
    ("transpose", re.compile(r"\b(?:clone|contiguous)\b")),
)
_PRODUCTS = re.compile(r"\b(?:b?mm|baddbmm|addmm|matmul|einsum|linear)\b")
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MOST_MEASURED = 1.0  # of the score, for a measured speedup; less than a closer family counts
_MIDDLE = "middle"
_SIDES = {"memory", "compute"}  # between the ridges, what helps on either side helps


def strategies() -> dict[str, Strategy]:
    """All strategies by name, including those of other packages."""
    return dict(_strategies())


@cache
def _strategies() -> tuple[tuple[str, Strategy], ...]:
    own = {each.name: each for file in sorted(Path(__file__).parent.glob("*.toml")) for each in _read(file)}
    return tuple(sorted({**plugins("warpsmith.strategies"), **own}.items()))


def _read(file: Path) -> Iterator[Strategy]:
    entries: dict[str, dict[str, Any]] = tomllib.loads(file.read_text(encoding="utf-8"))
    for name, entry in entries.items():
        fields: dict[str, Any] = {
            field: tuple(value) if isinstance(value, list) else value for field, value in entry.items()
        }
        for text in ("advice", "effect"):
            fields[text] = " ".join(fields[text].split())
        parameters = fields.pop("parameters", {})
        fields["parameters"] = tuple(StrategyParameter(key, tuple(values)) for key, values in parameters.items())
        yield Strategy(name=name, **fields)


def relevant_strategies(
    problem: Problem, limit: int, measured: Mapping[str, float] | None = None
) -> tuple[Strategy, ...]:
    """The strategies for the backend, device, zone, family and precision of a problem, the most relevant first.

    `measured`: speedups of kernels for similar tasks that follow a strategy, by its name; a higher one ranks higher.
    """
    words = work_families(problem)
    known = measured or {}

    def rank(strategy: Strategy) -> float:
        gain = math.log(max(1.0, known.get(strategy.name, 1.0)))
        return _relevance(strategy, problem, words) + min(_MOST_MEASURED, gain)

    fitting = [each for each in strategies().values() if _applies(each, problem, words)]
    fitting.sort(key=lambda each: (-rank(each), each.name))
    closest = next((each for each in fitting if each.families and set(each.families) <= words - set(Family)), None)
    if closest:  # made for this kind of work alone
        fitting.remove(closest)
        fitting.insert(0, closest)
    return tuple(fitting[:limit])


def named_strategies(text: str) -> frozenset[str]:
    """The strategies of the catalogue whose names stand in a text."""
    return frozenset(_NAME.findall(text)) & frozenset(strategies())


def work_families(problem: Problem) -> frozenset[str]:
    """The family of the problem's work and the finer words for it; empty where nothing is known."""
    outline = problem.outline
    text = " ".join(node.op for node in outline.nodes) if outline and outline.nodes else problem.task.source
    found = {word for word, pattern in _WORDS if pattern.search(text)}
    if outline is not None:
        found.add(outline.family.value)
    if _PRODUCTS.search(text):
        found.add("matmul")
        if "softmax" in text and len(_PRODUCTS.findall(text)) > 1:
            found.add("attention")
    if "attention" in found:
        found.discard("softmax")  # it is a part of it
    windows = [window for node in outline.nodes if (window := _window(node, outline))] if outline else []
    if any(window.is_3x3 for window in windows):
        found.add("convolution-3x3")
    if windows and all(set(window.taps) == {1} for window in windows):
        found.discard("convolution")  # no window to slide: a product over the channels
        found.add("matmul")
    return frozenset(found)


@dataclass(frozen=True)
class _Window:
    """The filters of a convolution."""

    taps: tuple[int | str, ...]  # by axis; a name where any size is meant
    step: frozenset[int]  # strides and dilations
    groups: int

    @property
    def is_3x3(self) -> bool:
        """Whether they are 3 x 3 (x 1 or x 3) over all channels, with stride 1 and dilation 1."""
        return self.taps.count(3) >= 2 and {*self.taps} <= {1, 3} and self.step == {1} and self.groups == 1


def _window(node: Operation, outline: Outline) -> _Window | None:
    """The filters of a node; None if it is no convolution."""
    if not node.op.startswith("aten.convolution."):
        return None
    match json.loads(node.arguments):
        case [_, {"$": str(weight)}, _, list(stride), _, list(dilation), _, _, int(groups)]:
            values = (*outline.inputs, *(value for each in outline.nodes for value in each.results))
            taps = next((value.dims[2:] for value in values if value.name == weight), ())
            return _Window(taps, frozenset((*stride, *dilation)), groups)
    return None


def unfit_strategies(problem: Problem) -> frozenset[str]:
    """The names of strategies that the backend, device, family or precision of a problem rules out."""
    words = work_families(problem)
    return frozenset(name for name, each in strategies().items() if not _fits(each, problem, words))


def _applies(strategy: Strategy, problem: Problem, words: frozenset[str]) -> bool:
    near = not strategy.zones or not problem.zone or _zone_hit(strategy, problem.zone)
    return near and _fits(strategy, problem, words)


def _fits(strategy: Strategy, problem: Problem, words: frozenset[str]) -> bool:
    return (
        fits_backend(strategy, problem)
        and (not strategy.families or not words or bool(words & set(strategy.families)))
        and (not strategy.precisions or problem.task.precision.value in strategy.precisions)
        and (not strategy.least_arch or arch_number(problem.arch) >= strategy.least_arch)
    )


def fits_backend(strategy: Strategy, problem: Problem) -> bool:
    """Whether the strategy can be written for the backend; a torch module may hold C++ or CUDA sources."""
    language = problem.kind if problem.backend == "torch_module" else problem.backend
    return not strategy.backends or language in strategy.backends


def _zone_hit(strategy: Strategy, zone: str) -> bool:
    return zone in strategy.zones or (zone == _MIDDLE and bool(_SIDES & set(strategy.zones)))


def _relevance(strategy: Strategy, problem: Problem, words: frozenset[str]) -> float:
    """A score: a strategy for this kind of work and few others is more relevant than one for any work."""
    hits = words & set(strategy.families)
    general = problem.outline.family.value if problem.outline else ""
    score = 0.0
    if hits:
        closest = 5.0 if hits - set(Family) else 4.0 if hits - {general} else 3.0
        score += closest - 0.25 * len(strategy.families)
    if strategy.zones and problem.zone and _zone_hit(strategy, problem.zone):
        score += 2.0 - 0.25 * len(strategy.zones)
    if strategy.precisions:  # made for precisions of which the task has one
        score += 1.0
    # Strategies for new devices only are the hardest to get right.
    return score - (0.5 if strategy.least_arch else 0.0)
