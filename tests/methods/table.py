"""The table of docs/methods.md, from the methods themselves: python -m tests.methods.table writes it there."""

from __future__ import annotations

from pathlib import Path

from warpsmith.methods.load import methods
from warpsmith.model.method import KernelFact, Method, MethodOperator, Show, Until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
BEGIN = "<!-- table: written by python -m tests.methods.table -->\n"
END = "<!-- end of table -->\n"


def table() -> str:
    """One row per method."""
    rows = [
        "| method | shown to the proposer | of each kernel | operators | population |",
        "|---|---|---|---|---|",
        *map(_row, methods().values()),
    ]
    return "\n".join(rows) + "\n"


def deviations() -> str:
    """What each method does otherwise than its paper."""
    said: dict[str, list[str]] = {}
    for method in methods().values():
        for deviation in method.deviations:
            said.setdefault(deviation, []).append(method.name)
    every = len(methods())
    lines = (f"- {text} ({'all' if len(names) == every else ', '.join(names)})" for text, names in said.items())
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with both parts brought up to date."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    made = f"{table()}\nWhere they do otherwise than their papers, and why:\n\n{deviations()}"
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def _row(method: Method) -> str:
    shown = {show for operator in method.operators for show in operator.shows}
    information = ", ".join(show.value for show in Show if show in shown)
    kernels = [operator for operator in method.operators if operator.shows & {Show.BEST, Show.PARENTS}]
    facts = {fact for operator in kernels for fact in operator.facts}
    said = ", ".join(["code", *(fact.value for fact in KernelFact if fact in facts)])
    stages = "; then ".join(", ".join(map(_operator, stage.operators)) + _until(stage.until) for stage in method.stages)
    options = ", ".join(f"{name} {value:g}" for name, value in method.population.options)
    kept = f"{method.population.name}{options and f' ({options})'}"
    return f"| `{method.name}` | {information} | {said} | {stages}{_following(method)} | {kept} |"


def _operator(operator: MethodOperator) -> str:
    parents = {0: "", 1: " of 1 parent"}.get(operator.parents, f" of {operator.parents} parents")
    order = ", worst first" if operator.order == "worst_first" else ""
    times = f"{operator.times} × " if operator.times > 1 else ""
    return f"{times}{operator.name}{f' ({parents.strip()}{order})' if parents else ''}"


def _following(method: Method) -> str:
    """What follows on strategies and kernels, said once for all stages."""
    first = [operator for stage in method.stages for operator in stage.operators if operator.then]
    chains = dict.fromkeys(" → ".join(each.name for each in operator.chain[1:]) for operator in first)
    followed = "".join(f"; on each strategy {chain}" for chain in chains)
    return followed + (f"; on failures {method.revise.name}" if method.revise else "")


def _until(until: Until) -> str:
    ends = [
        *([f"{until.valid} valid"] if until.valid else []),
        *([f"{until.proposals} written"] if until.proposals else []),
        *([f"{until.share:.0%} of the trials"] if until.share else []),
    ]
    return f" until {' or '.join(ends)}" if ends else ""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
