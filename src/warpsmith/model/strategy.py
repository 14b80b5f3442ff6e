"""A strategy: one idea that makes kernels faster, as words a model can follow and as a switch a template can throw.

A `Plan` is a set of strategies with their parameters chosen; it is what the offline proposer mutates and crosses, and
its text form is what a candidate carries as `strategy`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CHOICE = re.compile(r"\s*([a-z][a-z0-9-]*)\s*(?:\(([^()]*)\))?\s*")


@dataclass(frozen=True)
class StrategyParameter:
    """A number or word a strategy leaves open."""

    name: str  # "width"
    values: tuple[str, ...]  # what it may be, in order; the first is the usual one


@dataclass(frozen=True)
class Strategy:
    """One idea. Empty tuples mean "any"."""

    name: str  # "vector-loads": lower case and hyphens
    title: str  # a few words
    backends: tuple[str, ...]  # "cuda", "cpu"
    zones: tuple[str, ...]  # values of `hardware.roofline.Zone`
    families: tuple[str, ...]  # values of `model.task.Family`, or finer words such as "convolution"
    advice: str  # what to do, in the imperative
    effect: str  # what to expect and when not to expect it
    example: str  # a few lines of code
    parameters: tuple[StrategyParameter, ...] = ()
    needs: tuple[str, ...] = ()  # strategies it builds on
    excludes: tuple[str, ...] = ()  # strategies it cannot be combined with
    precisions: tuple[str, ...] = ()  # values of `model.task.Precision` whose tolerance allows it
    least_arch: int = 0  # the oldest GPU that has what it uses: 80 for sm_80


def arch_number(arch: str) -> int:
    """90 for "sm_90a", to be compared with `least_arch`; 0 for a CPU."""
    digits = re.search(r"\d+", arch)
    return int(digits[0]) if digits else 0


@dataclass(frozen=True)
class StrategyChoice:
    """A strategy in a plan."""

    strategy: str
    settings: tuple[tuple[str, str], ...] = ()  # parameter and value, by name

    def __str__(self) -> str:
        if not self.settings:
            return self.strategy
        return f"{self.strategy}({', '.join(f'{name}={value}' for name, value in sorted(self.settings))})"


@dataclass(frozen=True)
class Plan:
    """A set of strategies; equal plans have equal text."""

    choices: tuple[StrategyChoice, ...] = ()

    def __str__(self) -> str:
        return " + ".join(str(choice) for choice in sorted(self.choices, key=lambda c: c.strategy))

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies, sorted."""
        return tuple(sorted(choice.strategy for choice in self.choices))

    @staticmethod
    def read(text: str) -> Plan | None:
        """The plan that a text form stands for; None where it is prose."""
        choices = []
        for part in text.split("+") if text.strip() else ():
            found = _CHOICE.fullmatch(part)
            if found is None:
                return None
            pairs = [pair.partition("=") for pair in (found[2] or "").split(",") if pair.strip()]
            if any(not sign for _, sign, _ in pairs):
                return None
            choices.append(StrategyChoice(found[1], tuple(sorted((n.strip(), v.strip()) for n, _, v in pairs))))
        return Plan(tuple(choices))
