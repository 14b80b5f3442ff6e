"""What a person sees of a certificate: a line per check, and what they come to.

The word VERIFIED appears here and nowhere else, and only for a certificate that says so. Not for programs: for them
the certificate itself is JSON.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from warpsmith.cli import render
from warpsmith.cli.lines import Sentence
from warpsmith.core.certificate import (
    ADDRESS,
    DETERMINISM,
    DISTRIBUTIONS,
    EVALUATION,
    GUARDS,
    REMEASUREMENT,
    SEEDS,
    SHAPES,
    UNDEFINED,
    Certificate,
    CheckOutcome,
    Outcome,
)
from warpsmith.core.evaluation import Interval

_MARKS = {
    Outcome.PASSED: ("✓", "green"),
    Outcome.FAILED: ("✗", "bold red"),
    Outcome.UNAVAILABLE: ("?", "bold magenta"),
    Outcome.NOT_APPLICABLE: ("–", "dim"),
}
_WORDS: Mapping[str, str] = {
    EVALUATION: "evaluation",
    GUARDS: "guards",
    SEEDS: "fresh seeds",
    DISTRIBUTIONS: "distributions",
    SHAPES: "shapes",
    DETERMINISM: "repeated runs",
    ADDRESS: "AddressSanitizer",
    UNDEFINED: "UBSan",
    REMEASUREMENT: "measured again",
}
_MOST_CHARS = 150


def word(name: str) -> str:
    """A check, for people."""
    return _WORDS.get(name, name)


def mark(check: CheckOutcome) -> Text:
    """How it ended, as one character."""
    return Text(*_MARKS[check.outcome])


SAME = "the same reason"


def told(check: CheckOutcome, before: Collection[str]) -> str:
    """What a check found, in a line; `before` are the reasons that earlier lines gave, which are not said again."""
    if check.outcome in (Outcome.FAILED, Outcome.UNAVAILABLE) and check.detail in before:
        return SAME
    return said(check)


def said(check: CheckOutcome) -> str:
    """What a check found, in a line."""
    parts: list[str] = [check.detail] if check.detail else []
    if check.outcome is Outcome.PASSED:
        figures = dict(check.figures)
        error, limit = figures.pop("error", None), figures.pop("error limit", None)
        parts += [_figure(name, value) for name, value in figures.items()]
        if isinstance(error, int | float) and isinstance(limit, int | float) and limit > 0:
            parts.append(f"error {render.percent(error / limit)} of its limit")
    return "; ".join(part.rstrip(".") for part in parts if part)


def _figure(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARS else f"{value[: _MOST_CHARS - 1]}…"
    if isinstance(value, int):
        return f"{value} {name}" if value != 1 else f"1 {name.removesuffix('s')}"
    return f"{name} {render.number(value)}"


def card(certificate: Certificate, file: str, path: str) -> RenderableType:
    """Everything about one certificate."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(justify="right", no_wrap=True, style="dim")
    before: set[str] = set()
    for check in certificate.checks:
        took = f"{render.number(check.seconds, 2)} s" if check.seconds >= 0.05 else ""
        grid.add_row(mark(check), word(check.name), Text(told(check, before), "" if check.detail else "dim"), took)
        before.add(check.detail)
    parts: list[RenderableType] = [Sentence(_title(certificate, file)), Text()]
    for line in _speedups(certificate):
        parts.append(_indent(line))
    if certificate.measurement is not None and certificate.measurement.speedups:
        parts.append(Text())
    parts += [_indent(grid), Text()]
    if not certificate.verified:
        parts += [_indent(Text(f"Not verified: {certificate.reason}")), Text()]
    # In no table, which would break it: the path is there to be copied.
    kept = Text.assemble("  ", ("certificate", "dim"), f"  {path}", no_wrap=True, overflow="ignore")
    return Group(*parts, _indent(_circumstances(certificate)), kept)


def _title(certificate: Certificate, file: str) -> Text:
    style = "bold green" if certificate.verified else "bold red"
    seal = Text("✓ VERIFIED" if certificate.verified else "✗ NOT VERIFIED", style)
    about = f"{certificate.task}, {certificate.precision}, {certificate.environment.backend}"
    return Text.assemble(seal, "  ", (file, "bold"), "  ", (about, "dim"))


def _speedups(certificate: Certificate) -> list[Text]:
    if certificate.measurement is None:
        return []
    return [render.compared(s.baseline, s.value, Interval(s.low, s.high)) for s in certificate.measurement.speedups]


def _circumstances(certificate: Certificate) -> Table:
    env = certificate.environment
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=len("certificate"))
    grid.add_column(overflow="fold")
    driver = f", driver {env.driver}" if env.driver else ""
    grid.add_row("device", f"{env.device}{driver}")
    grid.add_row("tools", ", ".join(tool for tool in (env.compiler, f"torch {env.torch}" if env.torch else "") if tool))
    grid.add_row("time", f"{render.number(certificate.seconds)} s")
    return grid


def overview(certificates: Sequence[tuple[str, Certificate, str]]) -> RenderableType:
    """A line per file: (file, certificate, where it is kept)."""
    widest = max(len(file) for file, _, _ in certificates)
    lines = []
    for file, certificate, path in certificates:
        seal = ("✓ VERIFIED    ", "bold green") if certificate.verified else ("✗ NOT VERIFIED", "bold red")
        told = path if certificate.verified else render.short(certificate.reason)
        lines.append(Sentence(Text.assemble("  ", seal, f"  {file:<{widest}}  {told}")))
    return Group(*lines)


def _indent(body: RenderableType) -> Padding:
    return Padding(body, (0, 0, 0, 2), expand=False)
