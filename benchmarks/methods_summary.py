"""The tables of the record of methods (`methods_record.py`): rates, speedups, errors, and which part helped.

    python -m benchmarks.methods_summary FOLDER --out benchmarks/h200/methods --model "NAME" --checksum SHA256
    python -m benchmarks.methods_summary FOLDER --out OUT --reproduce docs/reproduce.md

Writes `record.json` (one line for each proposal and the figures), `README.md` (tables) and `report.html` (the bench's
report). Intervals are 95 % bootstraps over tasks. A difference whose interval contains no effect is "no clear
difference".
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from benchmarks.methods_record import SERVER_FILE

from warpsmith.experiments.collect import collect, is_begun
from warpsmith.experiments.plan import BenchPlan, CellKey, cell_folder, read_plan
from warpsmith.experiments.results import BenchResults, Cell, write_results
from warpsmith.model.brief import TrialOutcome
from warpsmith.model.evaluation import Status
from warpsmith.report import page
from warpsmith.report.bench_page import bench_page
from warpsmith.run_log.events import BriefAsked, ProposalRead, ReplyReceived, TrialJudged
from warpsmith.run_log.log import RunLog

RESAMPLES, SEED = 2000, 20_261_118
BEGIN, END = "<!-- figures of the record: begin -->", "<!-- figures of the record: end -->"
NO_DIFFERENCE = "no clear difference"
FEWEST_TASKS = 5  # below that, an interval over tasks says nothing

CONTRASTS = (
    ("insights", "evoengineer-insight", "evoengineer-free", "thoughts of earlier kernels in the prompt"),
    ("history", "evoengineer-full", "evoengineer-insight", "parents with their code, crossover and mutation"),
    ("roles", "cupilot", "evoengineer-full", "strategist, translator and revisor in place of one role"),
    ("retrieval", "cupilot", "cupilot-no-retrieval", "precedents of the pool"),
    ("roofline", "cupilot", "cupilot-no-roofline", "zone, floor, advice and profile"),
    ("profile", "cupilot", "cupilot-no-profile", "the digest of a profile"),
    ("alignment", "cupilot", "cupilot-no-alignment", "the strategy rewritten to what the code does"),
    ("repair", "cupilot", "cupilot-no-repairs", "failed kernels sent back with their errors"),
)
"""A part of a method, a method with it and one without it."""

_BUILD_ERRORS = (
    ("an undefined name", r"identifier \"[^\"]+\" is undefined|was not declared|has not been declared|is not a member"),
    ("a missing header", r"No such file or directory|cannot open source file"),
    (
        "wrong types or arguments",
        r"incompatible|no (?:instance|matching|suitable)|cannot convert|invalid conversion"
        r"|too (?:few|many) arguments|more than one instance",
    ),
    ("another entry point", r"expected: extern|is defined with other parameters|no function named|undefined reference"),
    ("a second definition", r"redefin|already been (?:defined|declared)|shadows|conflict"),
    ("syntax", r"expected an?|expected [‘'\"]|expected |unqualified-id|unterminated|missing"),
)
_UNREADABLE = (
    ("cut off", "cut off|still thinking"),
    ("no code", "holds no code|is empty|The code is empty"),
    ("Python or a torch extension", "is Python|torch extension"),
    ("another entry point", "does not define|right parameters"),
    ("an edit that does not fit", "[Ee]dit |SEARCH|diff"),
)


@dataclass(frozen=True)
class ProposalRow:
    """One proposal of the model."""

    task: str
    method: str
    seed: int
    trial: int
    operator: str
    first_try: bool  # False for a repair
    outcome: str  # status of the evaluation, "unreadable", "duplicate" or "pending"
    kind: str  # of an error; "" for a valid kernel
    compiled: bool
    published: bool | None  # valid by the published rule
    speedup: float | None  # over PyTorch eager


@dataclass(frozen=True)
class Replies:
    """The replies of one cell, with strategies and alignments."""

    task: str
    method: str
    seed: int
    replies: int
    prompt_tokens: int
    completion_tokens: int
    cut_off: int
    seconds: float  # of waiting for replies, summed


@dataclass(frozen=True)
class Effect:
    """What a part of a method changed."""

    part: str
    with_it: str
    without_it: str
    what: str
    tasks: int
    validity: tuple[float, float, float] | None  # difference of the rates, with its interval
    compiled: tuple[float, float, float] | None
    speed: tuple[float, float, float] | None  # ratio of the speedups over the start

    @property
    def verdict(self) -> str:
        """Which figure differs beyond its interval."""
        if self.tasks < FEWEST_TASKS:
            return "too few tasks"
        found = []
        for name, figure, none in (
            ("validity", self.validity, 0.0),
            ("compile rate", self.compiled, 0.0),
            ("speed", self.speed, 1.0),
        ):
            if figure is not None and not figure[1] <= none <= figure[2]:
                found.append(f"{'higher' if figure[0] > none else 'lower'} {name}")
        return ", ".join(found) or NO_DIFFERENCE


def error_kind(outcome: str, reason: str) -> str:
    """The kind of an error, by the message that the model gets."""
    known = {"build_error": _BUILD_ERRORS, "unreadable": _UNREADABLE}.get(outcome)
    if known is None:
        return "" if outcome == Status.OK else outcome
    found = next((name for name, pattern in known if re.search(pattern, reason)), "another")
    return f"{outcome}: {found}"


def read_cell(folder: Path, key: CellKey) -> tuple[list[ProposalRow], Replies]:
    """All proposals of a cell, and its replies."""
    briefs: dict[int, BriefAsked] = {}
    proposals: dict[int, ProposalRead] = {}
    verdicts: dict[int, TrialJudged] = {}
    count = prompt = completion = cut = 0
    seconds = 0.0
    with RunLog.read(folder) as log:
        for entry in log.entries():
            event = entry.event
            if isinstance(event, BriefAsked):
                briefs[event.brief] = event
            elif isinstance(event, ReplyReceived):
                count += 1
                prompt += event.reply.usage.prompt_tokens
                completion += event.reply.usage.completion_tokens
                seconds += event.reply.usage.seconds
                cut += event.reply.finish == "length"
            elif isinstance(event, ProposalRead) and event.trial:
                proposals[event.trial] = event
            elif isinstance(event, TrialJudged):
                verdicts.setdefault(event.trial, event)
    rows = []
    for trial, proposal in proposals.items():
        brief = briefs.get(proposal.brief)
        if brief is None or brief.is_free:
            continue
        verdict = verdicts.get(trial)
        evaluation = verdict.evaluation if verdict else None
        outcome = str(evaluation.status if evaluation else proposal.outcome)
        reason = evaluation.reason if evaluation else proposal.failure
        compiled = evaluation is not None and evaluation.status not in (Status.BUILD_ERROR, Status.NOT_JUDGED)
        score = evaluation.speedup() if evaluation is not None and evaluation.ok else None
        rows.append(
            ProposalRow(
                key.task, key.method, key.seed, trial, brief.operator, brief.repaired_trial is None, outcome,
                error_kind(outcome, reason), compiled, evaluation.published if evaluation else None, score,
            )
        )  # fmt: skip
    return rows, Replies(key.task, key.method, key.seed, count, prompt, completion, cut, seconds)


def settled(rows: Iterable[ProposalRow]) -> list[ProposalRow]:
    """The proposals with a result."""
    return [row for row in rows if row.outcome not in (TrialOutcome.PENDING, str(Status.NOT_JUDGED))]


def interval_of(
    by_task: dict[str, list[float]], statistic: Callable[[list[float]], float]
) -> tuple[float, float, float]:
    """A statistic of all values with its interval, resampled by task."""
    random = np.random.default_rng(SEED)
    tasks = sorted(by_task)
    found = []
    for _ in range(RESAMPLES):
        drawn = random.integers(0, len(tasks), len(tasks))
        found.append(statistic([value for index in drawn for value in by_task[tasks[index]]]))
    low, high = np.percentile(found, [2.5, 97.5])
    return statistic([value for values in by_task.values() for value in values]), float(low), float(high)


def rate(rows: Sequence[ProposalRow], good: Callable[[ProposalRow], bool]) -> tuple[float, float, float] | None:
    """The share of good proposals, with its interval."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(float(good(row)))
    return interval_of(by_task, _mean) if by_task else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(_mean([math.log(value) for value in values]))


def over_start(cell: Cell) -> float:
    """The speed of a cell's best kernel over the starting kernel; 1 without a better one."""
    return max(cell.best.start.value, 1.0) if cell.best is not None and cell.best.start is not None else 1.0


def effect_of(contrast: tuple[str, str, str, str], rows: Sequence[ProposalRow], bench: BenchResults) -> Effect | None:
    """A part's effect on the tasks that both methods have done; None without one."""
    part, one, other, what = contrast
    done = {name: [c for c in bench.cells if c.method == name and c.trials] for name in (one, other)}
    tasks = sorted({cell.task for cell in done[one]} & {cell.task for cell in done[other]})
    if not tasks:
        return None

    def difference(good: Callable[[ProposalRow], bool]) -> tuple[float, float, float] | None:
        by_task: dict[str, list[float]] = {}
        for task in tasks:
            shares = []
            for name in (one, other):
                own = [float(good(row)) for row in rows if row.task == task and row.method == name]
                shares.append(_mean(own) if own else None)
            if shares[0] is not None and shares[1] is not None:
                by_task[task] = [shares[0] - shares[1]]
        return interval_of(by_task, _mean) if by_task else None

    speeds: dict[str, list[float]] = {}
    for task in tasks:
        sides = [[over_start(c) for c in done[name] if c.task == task and c.done] for name in (one, other)]
        if all(sides):
            speeds[task] = [_geometric(sides[0]) / _geometric(sides[1])]
    return Effect(
        part,
        one,
        other,
        what,
        len(tasks),
        difference(lambda row: row.outcome == Status.OK),
        difference(lambda row: row.compiled),
        interval_of(speeds, _geometric) if speeds else None,
    )


def _percent(figure: tuple[float, float, float] | None, sign: bool = False) -> str:
    if figure is None:
        return "-"
    form = "{:+.1f}" if sign else "{:.1f}"
    value, low, high = (form.format(100 * each) for each in figure)
    return f"{value} % ({low} to {high})"


def _times(figure: tuple[float, float, float] | None) -> str:
    return "-" if figure is None else f"{figure[0]:.2f}x ({figure[1]:.2f} to {figure[2]:.2f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def methods_table(rows: Sequence[ProposalRow], replies: Sequence[Replies], bench: BenchResults) -> str:
    """One line for each method."""
    lines = []
    for method in bench.methods:
        own = [row for row in rows if row.method == method]
        cells = [cell for cell in bench.cells if cell.method == method and cell.done]
        said = [each for each in replies if each.method == method and each.replies]
        start: dict[str, list[float]] = {}
        eager: dict[str, list[float]] = {}
        for cell in cells:
            start.setdefault(cell.task, []).append(over_start(cell))
            if cell.best:
                eager.setdefault(cell.task, []).append(cell.best.eager.value)
        tokens = [each.prompt_tokens + each.completion_tokens for each in said]
        lines.append(
            (
                method,
                len(cells),
                len(own),
                _percent(rate(own, lambda row: row.compiled)),
                _percent(rate(own, lambda row: row.outcome == Status.OK)),
                _times(interval_of(start, _geometric) if start else None),
                _times(interval_of(eager, _geometric) if eager else None),
                sum(any(value > 1.02 for value in values) for values in start.values()),
                f"{_mean(tokens):.0f}" if tokens else "-",
                f"{_mean([each.replies for each in said]):.1f}" if said else "-",
            )
        )
    head = ("method", "cells", "proposals", "compile", "valid", "best over start", "best over eager",
            "tasks improved", "tokens a cell", "replies a cell")  # fmt: skip
    return _table(head, lines)


def errors_table(rows: Sequence[ProposalRow]) -> str:
    """How often each kind of error occurs."""
    failed = Counter(row.kind for row in rows if row.kind)
    first = Counter(row.kind for row in rows if row.kind and row.first_try)
    total = max(len(rows), 1)
    return _table(
        ("what failed", "proposals", "share", "of these at the first try"),
        ((kind, count, f"{100 * count / total:.1f} %", first[kind]) for kind, count in failed.most_common()),
    )


def effects_table(effects: Sequence[Effect]) -> str:
    """Which part helped."""
    return _table(
        ("part", "with", "without", "tasks", "validity", "compile rate", "best over start", "what can be said"),
        (
            (e.part, e.with_it, e.without_it, e.tasks, _percent(e.validity, True), _percent(e.compiled, True),
             _times(e.speed), e.verdict)
            for e in effects
        ),
    )  # fmt: skip


def first_tries_table(rows: Sequence[ProposalRow]) -> str:
    """Rates at the first try and in repairs."""
    lines = []
    for name, own in (
        ("first tries", [row for row in rows if row.first_try]),
        ("repairs", [row for row in rows if not row.first_try]),
    ):
        readable = rate(own, lambda row: not row.outcome.startswith("unreadable"))
        compiled, valid = rate(own, lambda row: row.compiled), rate(own, lambda row: row.outcome == Status.OK)
        lines.append((name, len(own), _percent(readable), _percent(compiled), _percent(valid)))
    return _table(("", "proposals", "readable", "compile", "valid"), lines)


def tasks_table(rows: Sequence[ProposalRow], bench: BenchResults) -> str:
    """One line for each task."""
    lines = []
    for task in bench.tasks:
        own = [row for row in rows if row.task == task.name]
        best = max((over_start(cell) for cell in bench.of_task(task.name)), default=1.0)
        eager = max((cell.best.eager.value for cell in bench.of_task(task.name) if cell.best), default=None)
        valid, compiled = sum(row.outcome == Status.OK for row in own), sum(row.compiled for row in own)
        figures = (f"{best:.2f}x", f"{eager:.2f}x" if eager else "-")
        lines.append((task.name, task.family, task.zone or "-", len(own), compiled, valid, *figures))
    head = ("task", "family", "zone", "proposals", "compile", "valid", "best over start", "best over eager")
    return _table(head, lines)


def double_scoring(rows: Sequence[ProposalRow]) -> str:
    """What the published rule calls valid and this evaluator does not."""
    asked = [row for row in rows if row.published is not None]
    accepted = [row for row in asked if row.published]
    refused = Counter(row.outcome for row in accepted if row.outcome != Status.OK)
    words = ", ".join(f"{count} {status}" for status, count in refused.most_common()) or "none"
    return (
        f"Of {len(asked)} proposals that ran, the published rule (5 inputs, tolerance 1e-2) calls {len(accepted)} "
        f"valid; {sum(refused.values())} of these are refused here ({words})."
    )


def reproduce_text(replies: Sequence[Replies], bench: BenchResults) -> str:
    """The token figures for the guide, per cell and by method."""
    lines = []
    for method in bench.methods:
        said = [each for each in replies if each.method == method and each.replies]
        trials = sum(cell.trials for cell in bench.cells if cell.method == method)
        if not said or not trials:
            continue
        prompt, completion = (
            sum(getattr(each, name) for each in said) for name in ("prompt_tokens", "completion_tokens")
        )
        each = (prompt / trials, completion / trials)
        lines.append((method, trials, *(f"{value:.0f}" for value in each), *(f"{value * 45:.0f}" for value in each)))
    head = (
        "method",
        "trials measured",
        "input a trial",
        "output a trial",
        "input for 45 trials",
        "output for 45 trials",
    )
    note = f"Measured with {', '.join(bench.proposers)} on {len(bench.tasks)} tasks; other models write longer replies."
    return f"{_table(head, lines)}\n\n{note}"


def summarise(folder: Path, out: Path, *, model: str, checksum: str, reproduce: Path | None = None) -> str:
    """Write the record of a bench's folder; returns the page."""
    plan: BenchPlan = read_plan(folder)
    bench = collect(folder)
    everything: list[ProposalRow] = []
    replies: list[Replies] = []
    for key in plan.cells:
        where = cell_folder(folder, key)
        if is_begun(where):
            found, said = read_cell(where, key)
            everything += found
            replies.append(said)
    rows = settled(everything)
    effects = [each for each in (effect_of(contrast, rows, bench) for contrast in CONTRASTS) if each is not None]
    server = folder / SERVER_FILE
    said_by_server = json.loads(server.read_text(encoding="utf-8")) if server.exists() else []
    done = sum(cell.done for cell in bench.cells)
    text = "\n\n".join(
        (
            "# The methods with a language model",
            f"Made by `benchmarks/methods_record.py`, this page by `benchmarks/methods_summary.py`; do not edit it. "
            f"Model: {model or ', '.join(bench.proposers)}{f' (SHA-256 `{checksum}`)' if checksum else ''}. Device: "
            f"{', '.join(bench.devices) or 'unknown'}. {done} of {len(bench.cells)} cells are finished; "
            f"{len(rows)} proposals were judged, {sum(each.replies for each in replies)} replies are in the logs. Each "
            f"cell has {bench.budget.trials} trials and at most {bench.budget.tokens} tokens; seeds: {bench.repeats}. "
            "Best kernels were measured twice and not verified on held-out inputs. Intervals: 95 %, over tasks.",
            "## Methods",
            methods_table(rows, replies, bench),
            "## Who helped",
            effects_table(effects),
            f"{3 * len(effects)} figures are compared: about one of 20 is beyond its interval by chance.",
            "## First tries and repairs",
            first_tries_table(rows),
            "## What failed",
            errors_table(rows),
            "## Double scoring",
            double_scoring(rows),
            "## Tasks",
            tasks_table(rows, bench),
        )
    )
    if said_by_server:
        tokens, seconds = (sum(each[name] for each in said_by_server) for name in ("generated_tokens", "device_s"))
        text += (
            f"\n\n## The server\n\n{tokens} tokens in {seconds:.0f} s of device time "
            f"({tokens / max(seconds, 1e-9):.0f} tokens a second), while no kernel was judged."
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(text + "\n", encoding="utf-8")
    document = {
        "model": model,
        "checksum": checksum,
        "devices": bench.devices,
        "versions": asdict(bench.versions),
        "effects": [asdict(each) | {"verdict": each.verdict} for each in effects],
        "replies": [asdict(each) for each in replies],
        "server": said_by_server,
        "proposals": [asdict(row) for row in everything],
    }
    (out / "record.json").write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    write_results(bench, out / "results.json")
    page.write(bench_page(bench, {}), out / "report.html")
    if reproduce is not None:
        page_text = reproduce.read_text(encoding="utf-8")
        before, after = page_text.split(BEGIN)[0], page_text.split(END)[1]
        filled = f"{before}{BEGIN}\n\n{reproduce_text(replies, bench)}\n\n{END}{after}"
        reproduce.write_text(filled, encoding="utf-8")
    return text


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the bench")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="", help="the model's full name")
    parser.add_argument("--checksum", default="")
    parser.add_argument("--reproduce", type=Path, help="the guide whose marked place gets the token figures")
    options = parser.parse_args()
    print(
        summarise(
            options.folder, options.out, model=options.model, checksum=options.checksum, reproduce=options.reproduce
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
