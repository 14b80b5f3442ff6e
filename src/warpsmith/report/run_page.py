"""From a run's story to the document of its page. Reads no files but the run's log, and nothing of the environment."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from warpsmith.archive.events import Asked
from warpsmith.core.certificate import Certificate
from warpsmith.core.errors import UsageError
from warpsmith.core.evaluation import Evaluation, WorkloadResult
from warpsmith.core.search import Outcome
from warpsmith.hardware.roofline import Peaks
from warpsmith.report import story
from warpsmith.report.document import (
    EffectView,
    Fact,
    FileView,
    RunPage,
    Spent,
    Spoken,
    TallyView,
    TrialView,
    WordsView,
    WorkloadView,
)
from warpsmith.report.headline import figures, remarks
from warpsmith.report.roofview import roof_view
from warpsmith.report.story import Story
from warpsmith.report.texts import Texts
from warpsmith.run.best import BUNDLE
from warpsmith.run.trials import Trial
from warpsmith.use.bundle import read_bundle

_EAGER = "eager"


def run_page(folder: Path, peaks: Peaks | None = None) -> tuple[RunPage, Texts]:
    """The page of the run in a folder, and its long texts."""
    told, texts = story.read(folder), Texts()
    ledger = told.ledger
    begun = ledger.begun
    problem = begun.problem
    trials = tuple(_trial(told, number, texts) for number in ledger.trials)
    page = RunPage(
        title=problem.task.name,
        subtitle=f"{begun.method.name} with {told.proposer} on {problem.device}",
        figures=tuple(figures(told)),
        remarks=tuple(remarks(told, _certificate(folder, told))),
        facts=tuple(_facts(told)),
        best=ledger.best,
        light=_light(told),
        steps=tuple(told.steps),
        trials=trials,
        words=tuple(_words(told, texts)),
        accounts=tuple(told.accounts),
        roofline=roof_view(told, peaks),
        effects=tuple(EffectView(each.strategy, each.factor, each.count) for each in ledger.effects),
        models=tuple(_tallies(trials, [trial.model for trial in trials])),
        operators=tuple(_tallies(trials, [trial.operator for trial in trials])),
        notes=tuple(told.noted),
    )
    return page, texts


def _certificate(folder: Path, told: Story) -> Certificate | None:
    """What verification said of the best kernel, where its bundle has that."""
    best = told.ledger.trials.get(told.ledger.best)
    try:
        bundle = read_bundle(folder / BUNDLE)
    except UsageError:
        return None  # there is none, or it was changed
    return bundle.certificate if best and bundle.manifest.candidate == best.candidate else None


def _facts(told: Story) -> Iterator[Fact]:
    begun = told.ledger.begun
    problem, method = begun.problem, begun.method
    yield Fact("Task", f"{problem.task.name}, {problem.task.precision.value}")
    yield Fact("Device", problem.device)
    yield Fact("Language", problem.backend)
    if problem.zone:
        yield Fact("Held back by", problem.zone)
    yield Fact("Method", f"{method.title} ({method.paper})" if method.paper else method.title)
    yield Fact("Proposer", told.proposer)
    yield Fact("Budget", f"{(told.ledger.opened.budget if told.ledger.opened else begun.config.budget).trials} trials")
    yield Fact("Seed", str(begun.config.seed))
    if told.began_at:
        yield Fact("Begun", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(told.began_at)))
    judged = told.judged.get(told.ledger.best)
    if judged is not None:
        used = judged.evaluation.environment
        yield Fact("Measured with", ", ".join(filter(None, (used.compiler, f"torch {used.torch}", used.driver))))
    yield Fact("Written by", f"Warpsmith {begun.version}")


def _light(told: Story) -> float | None:
    """The speedup that the speed of light would be: geometric mean over the best kernel's workloads."""
    judged = told.judged.get(told.ledger.best)
    if judged is None or not judged.evaluation.ok:
        return None
    logs = []
    for each in judged.evaluation.workloads:
        eager = next((base for base in each.baselines if base.name == _EAGER), None)
        if eager is None or each.floor_ms <= 0 or each.latency_ms <= 0:
            return None
        logs.append(math.log(eager.speedup * each.latency_ms / each.floor_ms))
    return math.exp(sum(logs) / len(logs))


def _trial(told: Story, number: int, texts: Texts) -> TrialView:
    known = told.ledger.trials[number]
    proposed = told.proposed[known.brief]
    judged, asked = told.judged.get(number), told.asked[known.brief]
    evaluation = judged.evaluation if judged else None
    interval = evaluation.interval() if evaluation else None
    candidate, profiled = proposed.candidate, told.profiled.get(number)
    return TrialView(
        number=number,
        id=known.candidate,
        name=proposed.name,
        status=_status(known),
        operator=known.operator,
        move=known.move.value,
        model=known.model,
        parents=tuple(each for each in known.parents if each in told.ledger.trials),
        repairs=asked.failure,
        twin=proposed.twin,
        free=known.free,
        strategy=known.strategy,
        speedup=known.score,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        share=known.share,
        latency_ms=_latency(evaluation),
        effect=known.effect,
        measured=known.measured,
        reason=texts.add((evaluation.reason if evaluation else "") or proposed.failure),
        thought=texts.add(candidate.thought if candidate else ""),
        profile=texts.add(profiled.digest if profiled else ""),
        files=tuple(FileView(file.name, texts.add(file.text)) for file in candidate.files) if candidate else (),
        defines=candidate.defines if candidate else (),
        shown=tuple(_shown(asked, told)),
        prompt=_prompt(told, known.brief, texts),
        reply=_reply(told, known.brief, texts),
        spent=_spent(told, known.brief),
        at_s=told.proposed_s[known.brief],
        workloads=tuple(_workload(each) for each in evaluation.workloads) if evaluation else (),
        resources=tuple(_resources(evaluation)) if evaluation else (),
        notes=evaluation.notes if evaluation else (),
    )


def _status(trial: Trial) -> str:
    if trial.status is not None:
        return trial.status.value
    return trial.outcome.value


def _latency(evaluation: Evaluation | None) -> float | None:
    """In the workload that takes longest at best."""
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


def _shown(asked: Asked, told: Story) -> Iterator[Fact]:
    """What the author of a reply was given, besides the task."""
    ideas = told.ledger.ideas.known
    for name, trials in (
        ("to repair", (asked.failure,)),
        ("strategy of", (asked.subject,)),
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


def _prompt(told: Story, brief: int, texts: Texts) -> tuple[Spoken, ...]:
    prompted = told.prompted.get(brief)
    if prompted is None:
        return ()
    return tuple(Spoken(each.role.value, texts.add(each.text)) for each in prompted.prompt.messages)


def _reply(told: Story, brief: int, texts: Texts) -> int:
    replied = told.replied.get(brief)
    return texts.add(replied.reply.text) if replied else 0


def _spent(told: Story, brief: int) -> Spent | None:
    replied = told.replied.get(brief)
    if replied is None:
        return None
    usage = replied.reply.usage
    return Spent(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.cost_usd, usage.seconds)


def _words(told: Story, texts: Texts) -> Iterator[WordsView]:
    for brief, proposed in told.proposed.items():
        if proposed.trial:
            continue
        outcome = "could not be read" if proposed.outcome is Outcome.UNREADABLE else "kept"
        if proposed.drafts:
            outcome = f"{len(proposed.drafts)} strategies"
        prompt, reply = _prompt(told, brief, texts), _reply(told, brief, texts)
        yield WordsView(brief, told.asked[brief].operator, outcome, prompt, reply)


def _tallies(trials: Sequence[TrialView], names: Sequence[str]) -> Iterator[TallyView]:
    """The trials by a name each, in the order the names first came."""
    for name in dict.fromkeys(names):
        own = [trial for trial, its in zip(trials, names, strict=True) if its == name]
        spent = [trial.spent for trial in own if trial.spent]
        prices = [each.usd for each in spent if each.usd is not None]
        yield TallyView(
            name=name,
            replies=len(own),
            valid=sum(trial.status == "ok" for trial in own),
            best=max((trial.speedup for trial in own if trial.speedup), default=None),
            tokens=sum(each.prompt_tokens + each.completion_tokens for each in spent),
            usd=sum(prices) if prices else None,
        )
