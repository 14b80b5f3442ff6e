"""Certificates for people: a line for each check, and the outcome.

The word VERIFIED appears only here, and only for a certificate that says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.terminal import Sentence, indented
from warpsmith.model import numbers
from warpsmith.model.certificate import (
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
    CheckStatus,
)
from warpsmith.model.evaluation import Interval

_MARKS = {
    CheckStatus.PASSED: ("✓", "green"),
    CheckStatus.FAILED: ("✗", "bold red"),
    CheckStatus.UNAVAILABLE: ("?", "bold magenta"),
    CheckStatus.NOT_APPLICABLE: ("–", "dim"),
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


def check_name(name: str) -> str:
    """The name of a check, for people."""
    return _WORDS.get(name, name)


def check_mark(check: CheckOutcome) -> Text:
    """The outcome of a check as one character."""
    return Text(*_MARKS[check.outcome])


SAME = "same reason as above"


def check_text_once(check: CheckOutcome, before: Collection[str]) -> str:
    """What a check found, in one line; a reason that is in `before` is not repeated."""
    if check.outcome in (CheckStatus.FAILED, CheckStatus.UNAVAILABLE) and check.detail in before:
        return SAME
    return check_text(check)


def check_text(check: CheckOutcome) -> str:
    """What a check found, in one line."""
    parts: list[str] = [check.detail] if check.detail else []
    if check.outcome is CheckStatus.PASSED:
        figures = dict(check.figures)
        error, limit = figures.pop("error", None), figures.pop("error limit", None)
        parts += [_figure(name, value) for name, value in figures.items()]
        if isinstance(error, int | float) and isinstance(limit, int | float) and limit > 0:
            parts.append(f"error {numbers.percent(error / limit)} of its limit")
    return "; ".join(part.rstrip(".") for part in parts if part)


def _figure(name: str, value: float | int | str) -> str:
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARS else f"{value[: _MOST_CHARS - 1]}…"
    if isinstance(value, int):
        return f"{value} {name}" if value != 1 else f"1 {name.removesuffix('s')}"
    return f"{name} {numbers.number(value)}"


def card(certificate: Certificate, file: str, path: str) -> RenderableType:
    """Everything about one certificate."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(justify="right", no_wrap=True, style="dim")
    before: set[str] = set()
    for check in certificate.checks:
        took = f"{numbers.number(check.seconds, 2)} s" if check.seconds >= 0.05 else ""
        grid.add_row(
            check_mark(check),
            check_name(check.name),
            Text(check_text_once(check, before), "" if check.detail else "dim"),
            took,
        )
        before.add(check.detail)
    parts: list[RenderableType] = [Sentence(_title(certificate, file)), Text()]
    for line in _speedups(certificate):
        parts.append(indented(line))
    if certificate.measurement is not None and certificate.measurement.speedups:
        parts.append(Text())
    parts += [indented(grid), Text()]
    if not certificate.verified:
        said = "Correct, but the speed was not repeated" if certificate.correct else "Not verified"
        parts += [indented(Text(f"{said}: {certificate.reason}")), Text()]
    # Outside the table, which would break the path: it must be possible to copy it.
    kept = Text.assemble("  ", ("certificate", "dim"), f"  {path}", no_wrap=True, overflow="ignore")
    return Group(*parts, indented(_environment(certificate)), kept)


def _title(certificate: Certificate, file: str) -> Text:
    outcome = Text(*_outcome(certificate))
    about = f"{certificate.task}, {certificate.precision}, {certificate.environment.backend}"
    return Text.assemble(outcome, "  ", (file, "bold"), "  ", (about, "dim"))


def _speedups(certificate: Certificate) -> list[Text]:
    if certificate.measurement is None:
        return []
    return [cards.compared(s.baseline, s.value, Interval(s.low, s.high)) for s in certificate.measurement.speedups]


def _environment(certificate: Certificate) -> Table:
    env = certificate.environment
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=len("certificate"))
    grid.add_column(overflow="fold")
    driver = f", driver {env.driver}" if env.driver else ""
    grid.add_row("device", f"{env.device}{driver}")
    grid.add_row("tools", ", ".join(tool for tool in (env.compiler, f"torch {env.torch}" if env.torch else "") if tool))
    grid.add_row("time", f"{numbers.number(certificate.seconds)} s")
    return grid


def overview(certificates: Sequence[tuple[str, Certificate, str]]) -> RenderableType:
    """A line for each (file, certificate, path of the certificate)."""
    widest = max(len(file) for file, _, _ in certificates)
    broad = max(len(_outcome(certificate)[0]) for _, certificate, _ in certificates)
    lines = []
    for file, certificate, path in certificates:
        words, style = _outcome(certificate)
        shown = path if certificate.verified else cards.short(certificate.reason)
        lines.append(Sentence(Text.assemble("  ", (f"{words:<{broad}}", style), f"  {file:<{widest}}  {shown}")))
    return Group(*lines)


def _outcome(certificate: Certificate) -> tuple[str, str]:
    """The outcome in words, with its style. A kernel that is right and whose speed varies is not called wrong."""
    if certificate.verified:
        return "✓ VERIFIED", "bold green"
    if certificate.correct:
        return "✓ CORRECT, SPEED NOT REPEATED", "bold yellow"
    return "✗ NOT VERIFIED", "bold red"
