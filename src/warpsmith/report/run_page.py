"""Makes the document of a run's page from the history of the run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from warpsmith.evaluator.judge.timing.statistics import classify
from warpsmith.hardware.roofline import Ceilings, Peaks, ceilings
from warpsmith.model import numbers
from warpsmith.model.brief import TrialOutcome, WorkloadBound
from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation, WorkloadResult
from warpsmith.report import run_history
from warpsmith.report.document import (
    EffectView,
    Fact,
    Figure,
    FileView,
    LimitView,
    MessageView,
    OpenBrief,
    OpenTrial,
    OtherReply,
    ReplyCost,
    RooflinePoint,
    RooflineView,
    RunPage,
    T,
    TallyView,
    TrialRow,
    TrialView,
    WorkloadView,
)
from warpsmith.report.page import Texts
from warpsmith.report.roofline import (
    EAGER,
    DrawnCandidate,
    Point,
    RooflinePicture,
    axis_ranges,
    picture_of,
    point_positions,
)
from warpsmith.report.run_history import RunHistory
from warpsmith.run_log.events import BriefAsked
from warpsmith.runtime.bundle import read_bundle
from warpsmith.search.best_kernel import BUNDLE
from warpsmith.search.options import BY_HAND
from warpsmith.search.trials import Trial

_OVER = {"eager": "over PyTorch eager", "compile": "over torch.compile", "start": "over the starting kernel"}


def figures(history: RunHistory) -> Iterator[Figure]:
    """The figures of the headline."""
    state = history.state
    judged = history.judged.get(state.best)
    if judged is not None and judged.evaluation.ok:
        yield from _measured(judged.evaluation)
    else:
        found = state.totals.valid
        yield Figure("–", "speedup", f"{found} valid, none measured twice yet" if found else "no valid kernel yet")
    totals = state.totals
    settled = totals.settled
    share = numbers.percent(totals.valid / settled) if settled else "–"
    built = f"{totals.compiled} of {totals.judged} judged compiled" if totals.judged else "nothing judged"
    yield Figure(share, "valid", f"{totals.valid} of {settled} trials, {built}")
    yield _price(history)
    yield Figure(numbers.elapsed(totals.seconds), "in all", f"{numbers.elapsed(totals.device_seconds)} on the device")


def _measured(evaluation: Evaluation) -> Iterator[Figure]:
    names = dict.fromkeys(base.name for each in evaluation.workloads for base in each.baselines)
    for name in names:
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)
        if speedup is not None and interval is not None:
            bounds = f"{numbers.ratio(interval.low)}× to {numbers.ratio(interval.high)}×, 95 % interval"
            label = _OVER.get(name, f"over {name}")
            yield Figure(f"{numbers.ratio(speedup)}×", label, bounds, classify(interval))
    largest = max(evaluation.workloads, key=lambda each: each.floor_ms)
    eager = next((base for base in largest.baselines if base.name == "eager"), None)
    against = f"PyTorch takes {numbers.duration(eager.latency_ms, 3)}" if eager else ""
    if len(evaluation.workloads) > 1 or not against:  # with several workloads this one differs from the mean
        against = f"{largest.workload}{'; ' if against else ''}{against}"
    latency = eager.candidate_ms if eager else largest.latency_ms
    yield Figure(numbers.duration(latency, 3), "per call", against)
    share = min(each.share_of_floor for each in evaluation.workloads)
    where = (
        "in the worst workload"
        if len(evaluation.workloads) > 1
        else f"which is {numbers.duration(largest.floor_ms, 3)}"
    )
    if share > 1:
        where = "more than the peaks allow: measured on a busy machine, or the data fit in a cache"
    yield Figure(numbers.percent(share), "of roofline", where)


def _price(history: RunHistory) -> Figure:
    totals = history.state.totals
    if not totals.tokens:
        return Figure(numbers.dollars(0), "spent", "no model was used")
    tokens = f"{numbers.count(totals.tokens)} tokens"
    if totals.unpriced:
        return Figure(numbers.count(totals.tokens), "tokens", "the price is not known")
    return Figure(numbers.dollars(totals.cost_usd), "spent", tokens)


def remarks(history: RunHistory, certificate: Certificate | None, *, live: bool = False) -> Iterator[str]:
    """Sentences below the headline: why the run stopped, and whether the best kernel is verified.

    A live page shows what is under way by itself.
    """
    state = history.state
    if state.closed is not None:
        yield f"The run stopped after {state.totals.trials} trials: {state.closed.words}."
    elif not live:
        yield f"The run was not finished when this was written, at {state.totals.trials} trials."
    if state.pending and not live:
        count = len(state.pending)
        yield "1 verdict was still pending." if count == 1 else f"{count} verdicts were still pending."
    judged = history.judged.get(state.best)
    if judged is not None and judged.evaluation.warning:
        yield f"The best kernel: {judged.evaluation.warning}"
    elif state.best and certificate is None:
        yield "The best kernel was measured twice and is not verified; warpsmith verify verifies it."
    elif certificate is not None and certificate.verified:
        yield "The best kernel is verified: other inputs and shapes, sanitizers and a second measurement."
    elif certificate is not None:
        yield f"The best kernel failed verification: {certificate.reason}"


def run_page(folder: Path, peaks: Peaks | None = None) -> tuple[RunPage[TrialView], Texts]:
    """The page of the run in a folder, and its long texts."""
    maker = RunPageMaker(run_history.read_history(folder), folder, peaks)
    return maker.page(), maker.texts


class RunPageMaker:
    """Makes the page of a run from its history; again after each event, with the trials that changed made anew."""

    def __init__(self, history: RunHistory, folder: Path, peaks: Peaks | None = None) -> None:
        self.history = history
        self.texts = Texts()
        self._folder = folder
        self._peaks = peaks
        self._rows: dict[int, tuple[tuple[object, ...], TrialRow]] = {}
        self._certified: tuple[int, Certificate | None] = (0, None)

    def page(self) -> RunPage[TrialView]:
        """The page of a file as of the last event of the history."""
        return self._page([self.trial(number) for number in self.history.state.trials])

    def live_page(self) -> RunPage[TrialRow]:
        """The page of a server as of the last event; a trial whose row is another object has changed."""
        return self._page([self._row(number) for number in self.history.state.trials], live=True)

    def trial(self, number: int) -> TrialView:
        """One trial in full."""
        return _trial(self.history, number, self.texts)

    def _page(self, trials: Sequence[T], *, live: bool = False) -> RunPage[T]:
        history, texts = self.history, self.texts
        state = history.state
        setup = state.setup
        problem = setup.problem
        by = "by hand" if history.proposer == BY_HAND else f"with {history.proposer}"
        return RunPage(
            title=problem.task.name,
            subtitle=f"{setup.method.name} {by} on {problem.device}",
            figures=tuple(figures(history)),
            remarks=tuple(remarks(history, self._certificate(), live=live)),
            facts=tuple(_facts(history)),
            best=state.best,
            roofline_speedup=_roofline_speedup(history),
            steps=tuple(history.steps),
            trials=tuple(trials),
            other_replies=tuple(_other_replies(history, texts)),
            totals=tuple(history.totals),
            roofline=roofline_view(history, self._peaks),
            effects=tuple(EffectView(each.strategy, each.factor, each.count) for each in state.effects),
            models=tuple(_tallies(history, trials, lambda trial: trial.model)),
            operators=tuple(_tallies(history, trials, lambda trial: trial.operator)),
            notes=tuple(history.noted),
            limits=tuple(_limits(history)),
        )

    def open_briefs(self) -> tuple[OpenBrief, ...]:
        """The briefs without a reply."""
        history = self.history
        return tuple(
            OpenBrief(
                brief,
                asked.operator,
                round(history.asked_at[brief]),
                tuple(_shown(asked, history)),
                _prompt(history, brief, self.texts),
            )
            for brief, asked in history.state.in_flight.items()
        )

    def open_trials(self) -> tuple[OpenTrial, ...]:
        """The trials without a verdict, or without the second one that the best needs."""
        since = self.history.waiting_since
        return tuple(
            OpenTrial(n, round(since.get(n, 0.0)), again) for n, again in sorted(self.history.state.pending.items())
        )

    def _row(self, number: int) -> TrialRow:
        history = self.history
        key = (history.state.trials[number], history.judged.get(number), history.profiled.get(number))
        known = self._rows.get(number)
        if known is None or any(one is not other for one, other in zip(known[0], key, strict=True)):
            known = self._rows[number] = key, _row(history, number)
        return known[1]

    def _certificate(self) -> Certificate | None:
        """The certificate of the best kernel, looked for once for each best kernel, and at the end."""
        state = self.history.state
        if self._certified[0] != state.best or state.closed is not None:
            self._certified = state.best, _certificate(self._folder, self.history)
        return self._certified[1]


def _limits(history: RunHistory) -> Iterator[LimitView]:
    state = history.state
    budget, used = state.opened.budget if state.opened else state.setup.config.budget, state.totals
    for name, spent, limit, unit in (
        ("trials", used.trials, budget.trials, ""),
        ("time", used.seconds, budget.seconds, "s"),
        ("device time", used.device_seconds, budget.device_seconds, "s"),
        ("tokens", used.tokens, budget.tokens, ""),
        ("cost", used.cost_usd, budget.usd, "usd"),
    ):
        if limit is not None:
            yield LimitView(name, spent, limit, unit)


def _certificate(folder: Path, history: RunHistory) -> Certificate | None:
    """The certificate in the bundle of the best kernel, if there is one."""
    best = history.state.trials.get(history.state.best)
    try:
        bundle = read_bundle(folder / BUNDLE)
    except UsageError:
        return None  # no bundle, or a damaged one
    return bundle.certificate if best and bundle.manifest.candidate == best.candidate else None


def _facts(history: RunHistory) -> Iterator[Fact]:
    setup = history.state.setup
    problem, method = setup.problem, setup.method
    yield Fact("Task", f"{problem.task.name}, {problem.task.precision.value}")
    yield Fact("Device", problem.device)
    yield Fact("Language", problem.backend)
    if problem.zone:
        yield Fact("Roofline zone", f"{problem.zone}-bound")
    yield Fact("Method", f"{method.title} ({method.paper})" if method.paper else method.title)
    yield Fact("Proposer", history.proposer if history.proposer != BY_HAND else "by hand")
    yield Fact(
        "Budget", f"{(history.state.opened.budget if history.state.opened else setup.config.budget).trials} trials"
    )
    yield Fact("Seed", str(setup.config.seed))
    if history.began_at:
        yield Fact("Begun", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(history.began_at)))
    judged = history.judged.get(history.state.best)
    if judged is not None:
        used = judged.evaluation.environment
        yield Fact("Measured with", ", ".join(filter(None, (used.compiler, f"torch {used.torch}", used.driver))))
    yield Fact("Written by", f"Warpsmith {setup.version}")


def _roofline_speedup(history: RunHistory) -> float | None:
    """The speedup of a kernel at the roofline: geometric mean over the best kernel's workloads."""
    judged = history.judged.get(history.state.best)
    if judged is None or not judged.evaluation.ok:
        return None
    logs = []
    for each in judged.evaluation.workloads:
        eager = next((base for base in each.baselines if base.name == EAGER), None)
        if eager is None or each.floor_ms <= 0 or each.latency_ms <= 0:
            return None
        logs.append(math.log(eager.speedup * each.latency_ms / each.floor_ms))
    return math.exp(sum(logs) / len(logs))


def _row(history: RunHistory, number: int) -> TrialRow:
    known = history.state.trials[number]
    judged, replied = history.judged.get(number), history.replied.get(known.brief)
    usage = replied.reply.usage if replied else None
    return TrialRow(
        number=number,
        id=known.candidate,
        name=history.proposed[known.brief].name,
        status=_status(known),
        operator=known.operator,
        model=known.model,
        parents=tuple(each for each in known.parents if each in history.state.trials),
        repairs=history.asked[known.brief].repaired_trial or 0,
        free=known.free,
        strategy=known.strategy,
        speedup=known.score,
        share=known.share,
        latency_ms=_latency(judged.evaluation if judged else None),
        tokens=usage.prompt_tokens + usage.completion_tokens if usage else 0,
    )


def _trial(history: RunHistory, number: int, texts: Texts) -> TrialView:
    known = history.state.trials[number]
    proposed = history.proposed[known.brief]
    judged, asked = history.judged.get(number), history.asked[known.brief]
    evaluation = judged.evaluation if judged else None
    interval = evaluation.interval() if evaluation else None
    candidate, profiled = proposed.candidate, history.profiled.get(number)
    return TrialView(
        **vars(_row(history, number)),
        twin=proposed.twin,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        effect=known.effect,
        measured=known.measured,
        reason=texts.add((evaluation.reason if evaluation else "") or proposed.failure),
        thought=texts.add(candidate.thought if candidate else ""),
        profile=texts.add(profiled.digest if profiled else ""),
        files=tuple(FileView(file.name, texts.add(file.text)) for file in candidate.files) if candidate else (),
        defines=candidate.defines if candidate else (),
        shown=tuple(_shown(asked, history)),
        prompt=_prompt(history, known.brief, texts),
        reply=_reply(history, known.brief, texts),
        spent=_spent(history, known.brief),
        at_s=history.proposed_s[known.brief],
        workloads=tuple(_workload(each) for each in evaluation.workloads) if evaluation else (),
        resources=tuple(_resources(evaluation)) if evaluation else (),
        notes=(*filter(None, (evaluation.warning,)), *evaluation.notes) if evaluation else (),
    )


def _status(trial: Trial) -> str:
    if trial.status is not None:
        return trial.status.value
    return trial.outcome.value


def _latency(evaluation: Evaluation | None) -> float | None:
    """The latency of the largest workload in milliseconds; None if it was not measured."""
    if evaluation is None or not evaluation.workloads:
        return None
    return max(evaluation.workloads, key=lambda each: each.floor_ms).latency_ms


def _workload(result: WorkloadResult) -> WorkloadView:
    bases = tuple((b.name, b.latency_ms, b.speedup, b.interval.low, b.interval.high) for b in result.baselines)
    return WorkloadView(
        name=result.workload,
        axes=", ".join(f"{name} = {value}" for name, value in result.axes),
        latency_ms=result.latency_ms,
        baselines=bases,
        share=result.share_of_floor,
        floor_ms=result.floor_ms,
        error=result.error,
        error_limit=result.error_limit,
        checks=result.checks,
    )


def _resources(evaluation: Evaluation) -> Iterator[str]:
    for each in evaluation.resources:
        used = [
            f"{each.registers} registers" if each.registers else "",
            f"{each.shared_bytes} bytes of shared memory" if each.shared_bytes else "",
            f"{each.stack_bytes} bytes of stack" if each.stack_bytes else "",
            f"{each.spill_bytes} bytes spilled" if each.spill_bytes else "",
        ]
        if any(used):
            yield f"{each.kernel}: {', '.join(filter(None, used))}"


def _shown(asked: BriefAsked, history: RunHistory) -> Iterator[Fact]:
    ideas = history.state.ideas.known
    for name, trials in (
        ("to repair", (asked.repaired_trial,)),
        ("strategy of", (asked.aligned_trial,)),
        ("parents", asked.parents),
        ("best so far", (asked.best,)),
        ("insights of", asked.insights),
        ("recent failures", asked.failures),
        ("similar kernels", asked.retrieved),
    ):
        if any(trials):
            yield Fact(name, ", ".join(f"trial {trial}" for trial in trials if trial))
    if asked.idea in ideas:
        yield Fact("strategy to carry out", ideas[asked.idea].strategy)
    if asked.attempt:
        yield Fact("attempt", str(asked.attempt))


def _prompt(history: RunHistory, brief: int, texts: Texts) -> tuple[MessageView, ...]:
    prompted = history.prompted.get(brief)
    if prompted is None:
        return ()
    return tuple(MessageView(each.role.value, texts.add(each.text)) for each in prompted.prompt.messages)


def _reply(history: RunHistory, brief: int, texts: Texts) -> int:
    replied = history.replied.get(brief)
    return texts.add(replied.reply.text) if replied else 0


def _spent(history: RunHistory, brief: int) -> ReplyCost | None:
    replied = history.replied.get(brief)
    if replied is None:
        return None
    usage = replied.reply.usage
    return ReplyCost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.cost_usd, usage.seconds)


def _other_replies(history: RunHistory, texts: Texts) -> Iterator[OtherReply]:
    for brief, proposed in history.proposed.items():
        if proposed.trial:
            continue
        outcome = "could not be read" if proposed.outcome is TrialOutcome.UNREADABLE else "kept"
        if proposed.drafts:
            outcome = f"{len(proposed.drafts)} strategies"
        prompt, reply = _prompt(history, brief, texts), _reply(history, brief, texts)
        yield OtherReply(brief, history.asked[brief].operator, outcome, prompt, reply)


def _tallies(
    history: RunHistory, trials: Sequence[TrialRow], name_of: Callable[[TrialRow], str]
) -> Iterator[TallyView]:
    """Counts of trials by name, in the order of first appearance."""
    groups: dict[str, list[TrialRow]] = {}
    for trial in trials:
        groups.setdefault(name_of(trial), []).append(trial)
    for name, own in groups.items():
        replies = [history.replied.get(history.state.trials[trial.number].brief) for trial in own]
        prices = [each.reply.usage.cost_usd for each in replies if each]
        known = [price for price in prices if price is not None]
        yield TallyView(
            name=name,
            replies=len(own),
            valid=sum(trial.status == "ok" for trial in own),
            best=max((trial.speedup for trial in own if trial.speedup), default=None),
            tokens=sum(trial.tokens for trial in own),
            usd=sum(known) if known else None,
        )


# --- roofline ---


def roofline_view(history: RunHistory, peaks: Peaks | None) -> RooflineView | None:
    """The roofline of the run; None if nothing was measured or the task's floor is not known."""
    state, problem = history.state, history.state.setup.problem
    if not problem.bounds:
        return None
    largest = max(problem.bounds, key=lambda bound: bound.floor_ms)
    known = ceilings(problem, peaks)
    roof = known if known.bandwidth_bytes_s else _ceilings_of_floor(known, largest)
    if roof is None:
        return None
    picture = picture_of(
        problem, roof, [_drawn(history, number) for number in state.found if history.judged[number].evaluation.ok]
    )
    if picture is None or not picture.points:
        return None
    x, y = axis_ranges(picture)
    return RooflineView(
        title=picture.title,
        intensity=picture.points[0].x,
        bandwidth_bytes_s=picture.roof.bandwidth_bytes_s,
        heights=picture.roof.heights,
        slope_known=bool(known.bandwidth_bytes_s),
        x=x,
        y=y,
        points=tuple(_roofline_points(picture)),
        undrawn=len(state.trials) - sum(not point.baseline for point in picture.points),
    )


def _drawn(history: RunHistory, number: int) -> DrawnCandidate:
    trial = history.state.trials[number]
    parents = tuple(str(parent) for parent in trial.parents)
    best = number == history.state.best
    return DrawnCandidate(str(number), "", history.judged[number].evaluation, parents, number, best)


def _ceilings_of_floor(known: Ceilings, bound: WorkloadBound) -> Ceilings | None:
    """The ceilings of a device with unknown peaks: the least bandwidth that the floor of a workload implies."""
    if bound.floor_ms <= 0 or bound.bytes <= 0:
        return None
    return Ceilings(1e3 * bound.bytes / bound.floor_ms, known.plain_flops_s, known.best_flops_s)


def _roofline_points(picture: RooflinePicture) -> list[RooflinePoint]:
    at = point_positions(picture)
    return [
        RooflinePoint(_trial_number(point), *at[point.id], tuple(int(parent) for parent in point.parents))
        for point in picture.points
        if point.id in at
    ]


def _trial_number(point: Point) -> int:
    return 0 if point.id == EAGER else int(point.id)
