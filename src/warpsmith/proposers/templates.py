"""The offline proposer: the collection's kernel for the form of a task first, then strategies written by templates.

It plays every role of a method: its strategies are plans of the catalogue, templates translate them, and the strategy
of a kernel is read back from its code. Ways in which a form can write a task's kernel are strategies, too. It needs no
model, key or network. It uses the move of a brief, the plans of the kernels shown, and the seed: the same brief gets
the same reply. Its replies have the form of a model's. Among plans drawn at random it prefers those with the highest
`predicted_gain`, which is never used instead of a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from warpsmith.backends.c_contract import code_block
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel, last_kernel
from warpsmith.model.brief import Brief, Message, Problem, Prompt, Reply, Role, ShownCandidate
from warpsmith.model.errors import ProposerRefused
from warpsmith.model.evaluation import Status
from warpsmith.model.method import Move, Product
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice
from warpsmith.model.usage import TokenUsage
from warpsmith.proposers.template_ways import Ways
from warpsmith.strategies import plan_space

_DOUBT = 2  # a measured effect of n comparisons counts n / (n + 2)
_ADVISED = 0.05  # predicted gain of an unmeasured strategy that a parent's profile advises, in ln(speed)
_IN_ZONE = 0.02  # predicted gain of an unmeasured strategy for the task's zone, in ln(speed)


def predicted_gain(plan: Plan, brief: Brief, known: Mapping[str, Strategy]) -> float:
    """The expected gain of a plan, in ln(speed), from measured effects, profiles and the zone of the task."""
    measured = {each.strategy: each for each in brief.effects}
    advised = _advised(brief)
    total = 0.0
    for name in plan.names:
        effect = measured.get(name)
        if effect is not None:
            total += math.log(effect.factor) * effect.count / (effect.count + _DOUBT)
        elif name in advised:
            total += _ADVISED
        elif brief.roofline and name in known and brief.problem.zone in known[name].zones:
            total += _IN_ZONE
    return total


def _advised(brief: Brief) -> frozenset[str]:
    """The strategies that profiles of the parents advise: see `Digest.text`."""
    lines = (line for parent in brief.parents for line in parent.profile.splitlines() if line.startswith("Try: "))
    return frozenset(name.strip() for line in lines for name in line.removeprefix("Try: ").rstrip(".").split(","))


NAME = "template"

COLLECTED = "collection-kernel"
"""The strategy of a kernel that a form of the collection wrote: see `kernels.forms`."""

_FRESH = 0.25  # the chance that a new kernel, though a best one is shown, does not start from it
_SECOND_STEP = 0.3  # the chance that it goes two steps from the best
_DRAWN_PER_STRATEGY = 6  # plans drawn for each requested strategy; the one with the highest predicted gain is taken
_NEAR = 0.8  # the chance that one of several first strategies is a variant of the first, and not drawn anew
_REDRAWS = 200  # plans whose code turned out to be that of a plan tried before
_FENCES = {"cuda": "cuda", "cpu": "cpp"}
_ASKED = {
    Move.INIT: "a new kernel, started from the best one where there is one",
    Move.MUTATE: "the parent with one strategy more, less, exchanged or set otherwise",
    Move.CROSS: "a kernel with the strategies of both parents, as far as they go together",
    Move.TUNE: "the parent's strategies with other settings",
    Move.DIVERGE: "a kernel as unlike the parents as the catalogue allows",
    Move.REPAIR: "the failed kernel without the strategy that is most likely to blame",
    Move.WRITE: "the reference as text",
    Move.TRANSLATE: "the strategy given, as code",
    Move.ALIGN: "which strategies a kernel really contains",
}
_PRECISION = (
    "fast-intrinsics",
    "tensor-cores",
    "vector-exp",
    "online-softmax",
    "split-k",
    "atomic-reduction",
    "split-rows",
)
_ADDRESSES = ("vector-loads", "async-copy", "row-in-shared", "packed-panels", "shared-tile", "non-temporal-stores")
_SUSPECTS: Mapping[Status, tuple[str, ...]] = {
    Status.WRONG: (*_PRECISION, "async-copy", "double-buffer", "two-stage-reduction"),
    Status.REJECTED: _PRECISION,
    Status.BUILD_ERROR: ("tensor-cores", "async-copy", "non-temporal-stores", "simd"),
    Status.OUT_OF_BOUNDS: _ADDRESSES,
    Status.CRASHED: _ADDRESSES,
    Status.UNWRITTEN: ("split-k", "vector-loads", "grid-stride", "static-chunks"),
    Status.LAUNCH_FAILED: ("row-in-shared", "double-buffer", "shared-tile", "row-in-registers", "block-size"),
    Status.OUT_OF_MEMORY: ("split-k", "split-rows", "two-stage-reduction", "packed-panels", "row-in-shared"),
}
"""Strategies that often cause a failure, the most likely first."""


class Templates(Protocol):
    """Writes plans as code: `warpsmith.kernel_templates`, or a substitute in tests."""

    def abilities(self, problem: Problem) -> tuple[Strategy, ...]:
        """The strategies it can write for a problem; none if no template fits."""
        ...

    def expected_times(self, problem: Problem) -> Mapping[str, float | None]:
        """The ways of the task's form among the strategies, in the order in which to try them, with microseconds."""
        ...

    def risky_strategies(self, problem: Problem) -> frozenset[str]:
        """Strategies better left out of the first kernel of a search."""
        ...

    def translate(self, problem: Problem, plan: Plan) -> str:
        """The source."""
        ...

    def plan_in_source(self, problem: Problem, source: str) -> Plan | None:
        """The plan of a source that these templates wrote; None for another source."""
        ...


@dataclass(frozen=True)
class _Origin:
    """The origin of a plan, for the text of the reply."""

    words: str  # "a new kernel", "from 3f2a90c1d2e3"
    plans: tuple[Plan, ...] = ()


@dataclass(frozen=True)
class _Found:
    """An untried plan with its code."""

    plan: Plan
    truth: Plan  # what its code contains
    start: _Origin
    source: str


class TemplateProposer:
    """A `Proposer` that uses the catalogue and templates."""

    name = NAME
    concurrency = 1

    def __init__(self, templates: Templates | None = None) -> None:
        self._templates = templates or _own_templates()

    @classmethod
    def supports(cls, problem: Problem, templates: Templates | None = None) -> bool:
        """True if a form or a template fits the problem."""
        known = templates or _own_templates()
        return _collected(problem, known) is not None or bool(known.abilities(problem))

    @classmethod
    def check_supported(cls, problem: Problem) -> None:
        """Raise ProposerRefused if no form and no template fits the problem."""
        if not cls.supports(problem):
            raise ProposerRefused(_no_template(problem))

    def prompt(self, brief: Brief) -> Prompt:
        """The request in words, for readers of the run log."""
        problem = brief.problem
        lines = [
            f"To the catalogue of strategies, for {problem.task.name} in {problem.backend} on {problem.device}: "
            f"{_ASKED[brief.move]}.",
            *(f"Parent {exhibit.id}: {exhibit.strategy or plan_space.PLAIN}" for exhibit in brief.parents),
        ]
        if brief.best is not None:
            lines.append(f"Best so far {brief.best.id}: {brief.best.strategy or plan_space.PLAIN}")
        if brief.failure is not None:
            failed = brief.failure
            lines.append(
                f"Failed ({failed.status}) {failed.id}: {failed.strategy or plan_space.PLAIN}. {failed.reason}"
            )
        if brief.idea is not None:
            lines.append(f"Strategy {brief.idea.number}: {brief.idea.strategy}")
        if brief.subject is not None:
            lines.append(f"Kernel {brief.subject.id}, said to follow: {brief.subject.strategy or plan_space.PLAIN}")
        if brief.wanted:
            lines.append(f"Strategies wanted, not kernels: {brief.wanted}.")
        lines.append(f"Plans tried before: {len(set(brief.tried))}. Seed: {brief.seed}.")
        return Prompt((Message(Role.USER, "\n".join(lines)),))

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """The next plan as code, in the form of every reply."""
        if brief.move is Move.WRITE:
            return _reply(f"The reference as it is; templates need no other form.\n\n{_reference(brief.problem)}\n")
        if brief.product is Product.ALIGNMENT:
            return _reply(self._aligned(brief))
        abilities = self._templates.abilities(brief.problem)
        collected = _collected(brief.problem, self._templates)
        if not abilities and collected is None:
            raise ProposerRefused(_no_template(brief.problem))
        rng = Random(brief.seed)
        tried = {*brief.tried, *(e.strategy for e in _exhibits(brief) if e.strategy)}
        ways = self._ways(brief.problem, abilities, collected)
        tried |= ways.not_to_try()
        if brief.product is Product.STRATEGIES:
            return _reply(self._strategies(brief, abilities, ways, rng, tried))
        if brief.idea is not None and brief.failure is None:
            return _reply(self._translated(brief, abilities, ways, rng, tried))
        if collected is not None and brief.move is not Move.REPAIR and COLLECTED not in tried:
            return _reply(_collected_answer(brief.problem, collected, ways))
        found = self._untried(brief, abilities, ways, rng, tried)
        if found is None:
            raise ProposerRefused(_exhausted(brief.problem))
        return _reply(_answer(brief.problem, found.truth, found.start, abilities, ways, found.source))

    def _untried(
        self,
        brief: Brief,
        abilities: tuple[Strategy, ...],
        ways: Ways,
        rng: Random,
        tried: set[str],
        variant_of: Plan | None = None,
    ) -> _Found | None:
        """The next plan whose code is new; None if there is none."""
        for _ in range(_REDRAWS if abilities else 0):
            if variant_of is None:
                plan, start = self._next(brief, abilities, ways, rng, tried)
            else:
                step = plan_space.mutate(variant_of, abilities, rng, ()) or variant_of
                plan, start = plan_space.mutate(step, abilities, rng, tried), _Origin("a variant", (variant_of,))
            if plan is None:
                return None
            plan = ways.fastest_first(plan, tried)
            source = self._templates.translate(brief.problem, plan)
            truth = self._templates.plan_in_source(brief.problem, source)
            if truth is None or str(truth) == str(plan) or plan_space.text_of(truth) not in tried:
                return _Found(plan, plan if truth is None else truth, start, source)
            tried.add(plan_space.text_of(plan))  # its code was tried under another plan
        return None

    def _strategies(
        self, brief: Brief, abilities: tuple[Strategy, ...], ways: Ways, rng: Random, tried: set[str]
    ) -> str:
        """As the strategist: different plans with the highest predicted gain."""
        known = {each.name: each for each in abilities}
        collected = _collected(brief.problem, self._templates) if COLLECTED not in tried else None
        first = [f"strategy: {COLLECTED}\nthought: {_collected_thought(collected, ways)}\n"] if collected else []
        told: list[tuple[Plan, _Origin]] = []
        for precedent in brief.precedents if brief.move is Move.INIT else ():
            remembered = plan_space.plan_of(precedent.strategy, abilities) if precedent.measured else None
            if remembered is not None and remembered.choices and plan_space.text_of(remembered) not in tried:
                told.append((remembered, _Origin(f"what helped {precedent.task}")))
                tried.add(plan_space.text_of(remembered))
        while len(told) + len(first) < max(1, brief.wanted):
            way = ways.next(tried) if brief.move is Move.INIT else None
            if way is not None:
                told.append((way, _Origin("another way")))
                tried.add(plan_space.text_of(way))
                continue
            near = told[0][0] if brief.move is Move.INIT and told and rng.random() < _NEAR else None
            rivals = [self._untried(brief, abilities, ways, rng, tried, near) for _ in range(_DRAWN_PER_STRATEGY)]
            found = [each for each in rivals if each is not None]
            if not found:
                break
            best = max(found, key=lambda each: predicted_gain(each.truth, brief, known))
            told.append((best.plan, best.start))
            tried |= {plan_space.text_of(best.plan), plan_space.text_of(best.truth)}
        if not told and not first:
            raise ProposerRefused(_exhausted(brief.problem))
        others = [
            f"strategy: {plan_space.text_of(plan)}\nthought: {_thought(plan, start, known)}{ways.estimate(plan)}\n"
            for plan, start in told
        ]
        return "\n".join([*first, *others][: max(1, brief.wanted)])

    def _translated(
        self, brief: Brief, abilities: tuple[Strategy, ...], ways: Ways, rng: Random, tried: set[str]
    ) -> str:
        """As the translator: the code of a strategy.

        A template always writes the same code for a plan. If that code failed, a near plan without the most likely
        cause is tried for the same strategy.
        """
        assert brief.idea is not None, "a translation has a strategy"
        collected = _collected(brief.problem, self._templates)
        if collected is not None and brief.idea.strategy.strip() == COLLECTED and not brief.idea.failures:
            return _collected_answer(brief.problem, collected, ways)
        if not abilities:
            raise ProposerRefused(_exhausted(brief.problem))
        asked = plan_space.plan_of(brief.idea.strategy, abilities)
        plan = asked if asked is not None else Plan()
        if not plan.choices and ways.own is not None:  # prose, or the form's own kernel
            plan = ways.own
        start = _Origin(f"strategy {brief.idea.number}")
        if brief.idea.failures:
            other = plan_space.repair(plan, abilities, rng, tried)
            if other is None:
                raise ProposerRefused(_exhausted(brief.problem))
            other = ways.fastest_first(other, tried)
            plan, start = other, _Origin(f"strategy {brief.idea.number}, whose kernel failed", (plan,))
        return _answer(brief.problem, plan, start, abilities, ways, self._templates.translate(brief.problem, plan))

    def _aligned(self, brief: Brief) -> str:
        """As the aligner: the strategy that the code contains."""
        assert brief.subject is not None, "an alignment has a kernel"
        subject = brief.subject
        collected = _collected(brief.problem, self._templates)
        if collected is not None and subject.files and subject.files[0].text.strip() == collected.source.strip():
            return f"strategy: {COLLECTED}\nthought: none\n"
        truth = self._templates.plan_in_source(brief.problem, subject.files[0].text) if subject.files else None
        said = plan_space.text_of(truth) if truth is not None else subject.strategy or plan_space.PLAIN
        same = said == (subject.strategy or plan_space.PLAIN)
        return f"strategy: {said}\nthought: {'none' if same else f'it was said to be {subject.strategy}'}\n"

    def close(self) -> None:
        """Nothing to close."""

    def _next(
        self, brief: Brief, abilities: tuple[Strategy, ...], ways: Ways, rng: Random, tried: set[str]
    ) -> tuple[Plan | None, _Origin]:
        """An untried plan for the move of a brief, and its origin."""
        parents = [(each, self._plan(brief.problem, each, abilities)) for each in brief.parents]
        if not parents and brief.best is not None:
            parents = [(brief.best, self._plan(brief.problem, brief.best, abilities))]
        plans = tuple(plan for _, plan in parents)
        ids = " and ".join(exhibit.id for exhibit, _ in parents)
        if brief.move in (Move.INIT, Move.DIVERGE):
            way = ways.next(tried)
            if way is not None:
                return way, _Origin(f"another way than {ids}" if ids else "a new kernel", plans)
        if brief.move is Move.REPAIR and brief.failure is not None:
            failed = self._plan(brief.problem, brief.failure, abilities)
            if brief.failure.status is Status.OK:
                changed = plan_space.mutate(failed, abilities, rng, tried)
                return changed, _Origin(f"from {brief.failure.id}, which is slow", (failed,))
            suspects = _SUSPECTS.get(brief.failure.status, ())
            mended = plan_space.repair(failed, abilities, rng, tried, sound=plans, suspects=suspects)
            return mended, _Origin(f"from {brief.failure.id}, which failed ({brief.failure.status})", (failed,))
        if not plans or (brief.move is Move.INIT and rng.random() < _FRESH):
            risky = self._templates.risky_strategies(brief.problem)
            return plan_space.initial(abilities, rng, tried, risky=risky), _Origin("a new kernel")
        if brief.move is Move.DIVERGE:
            return plan_space.diverge(plans, abilities, rng, tried), _Origin(f"unlike {ids}", plans)
        if brief.move is Move.CROSS and len(plans) > 1:
            return plan_space.cross(plans[0], plans[1], abilities, rng, tried), _Origin(f"from {ids}", plans[:2])
        one = _Origin(f"from {parents[0][0].id}", plans[:1])
        if brief.move is Move.TUNE:
            tuned = plan_space.tune(plans[0], abilities, rng, tried)
            if tuned is not None:
                return tuned, one
        further = brief.move is Move.INIT and rng.random() < _SECOND_STEP
        base = plan_space.mutate(plans[0], abilities, rng, ()) if further else plans[0]
        return plan_space.mutate(base or plans[0], abilities, rng, tried), one

    def _plan(self, problem: Problem, exhibit: ShownCandidate, abilities: tuple[Strategy, ...]) -> Plan:
        """The plan of a kernel: from its strategy, else from its code, else an empty plan."""
        said = plan_space.plan_of(exhibit.strategy, abilities) if exhibit.strategy.strip() else None
        named = exhibit.strategy.strip() != COLLECTED or not self._templates.expected_times(problem)
        if said is not None and named:
            return said
        found = self._templates.plan_in_source(problem, exhibit.files[0].text) if exhibit.files else None
        return plan_space.fit(found, abilities) if found is not None else Plan()

    def _ways(self, problem: Problem, abilities: tuple[Strategy, ...], collected: FormKernel | None) -> Ways:
        times = self._templates.expected_times(problem)
        own = self._templates.plan_in_source(problem, collected.source) if times and collected is not None else None
        return Ways(times, abilities, own)


def _collected(problem: Problem, templates: Templates) -> FormKernel | None:
    """The collection's kernel for a problem, of one form or in parts; None where none fits, or templates do better."""
    if problem.backend != problem.contract.backend or problem.outline is None:
        return None
    from warpsmith.kernel_templates.in_parts import in_parts

    found = form_kernel(problem.task, problem.contract, problem.outline, problem.arch)
    if problem.backend == "cuda":
        found = found or in_parts(problem)
    if found is not None or templates.abilities(problem):
        return found
    return last_kernel(problem.task, problem.contract, problem.outline) or in_parts(problem)


def _collected_answer(problem: Problem, collected: FormKernel, ways: Ways) -> str:
    lines = (
        f"name: {collected.form}",
        f"strategy: {COLLECTED}",
        f"thought: {_collected_thought(collected, ways)}",
        "code:",
        code_block(_FENCES[problem.backend], collected.source.rstrip("\n")),
    )
    return "\n".join(lines) + "\n"


def _collected_thought(collected: FormKernel, ways: Ways) -> str:
    said = f"The kernel of the collection for this form ({collected.form}), with the options of this task."
    return said + ways.overview()


def _own_templates() -> Templates:
    from warpsmith import kernel_templates as templates

    return templates


def _exhibits(brief: Brief) -> tuple[ShownCandidate, ...]:
    shown = (brief.best, brief.failure, *brief.parents)
    return tuple(exhibit for exhibit in shown if exhibit is not None)


def _reference(problem: Problem) -> str:
    return code_block("python", problem.task.source.strip())


def _no_template(problem: Problem) -> str:
    from warpsmith.kernel_templates.in_parts import obstacle

    return (
        f"no template fits {problem.task.name} in {problem.backend}: {obstacle(problem)}; "
        "connect a model with --proposer openai:MODEL, anthropic:MODEL or command:CMD, "
        "or write the kernels yourself with `warpsmith ask TASK`."
    )


def _exhausted(problem: Problem) -> str:
    return (
        f"every plan of the catalogue for {problem.task.name} was tried; "
        "end the run here, or go on with a model (--proposer openai:MODEL, anthropic:MODEL or command:CMD)."
    )


def _reply(text: str) -> Reply:
    return Reply(text, NAME, TokenUsage(cost_usd=0.0, requests=0))


def _answer(
    problem: Problem, plan: Plan, start: _Origin, abilities: Sequence[Strategy], ways: Ways, source: str
) -> str:
    thought = _thought(plan, start, {each.name: each for each in abilities}) + ways.estimate(plan)
    lines = (
        f"name: {_short(plan)}",
        f"strategy: {plan_space.text_of(plan)}",
        f"thought: {thought}",
        "code:",
        code_block(_FENCES.get(problem.backend, "cpp"), source.rstrip("\n")),
    )
    return "\n".join(lines) + "\n"


def _short(plan: Plan) -> str:
    names = plan.names
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more or plan_space.PLAIN


def _thought(plan: Plan, start: _Origin, known: Mapping[str, Strategy]) -> str:
    """The changes against the origin, and the effect that the catalogue expects."""
    before = {choice.strategy: choice for each in start.plans for choice in each.choices}
    after = {choice.strategy: choice for choice in plan.choices}
    added = [name for name in plan.names if name not in before]
    dropped = [name for name in sorted(before) if name not in after]
    changed = [name for name in plan.names if name in before and not _same(name, after[name], start.plans)]
    parts = []
    if added:
        parts.append(f"{'added' if start.plans else 'with'} {', '.join(str(after[name]) for name in added)}")
    if dropped:
        parts.append(f"dropped {', '.join(dropped)}")
    if changed:
        parts.append(f"set {', '.join(str(after[name]) for name in changed)}")
    if len(start.plans) > 1 and not added and not changed:
        parts.append("combined their strategies")
    said = f"{start.words[0].upper()}{start.words[1:]}: {'; '.join(parts) or 'plain code'}."
    effects = [f"{name}: {known[name].effect}" for name in [*added, *changed][:2] if name in known]
    return " ".join([said, *(["Expected of"] if effects else []), *effects]).replace("\n", " ")


def _same(name: str, choice: StrategyChoice, plans: Sequence[Plan]) -> bool:
    """True if one of the origin's plans has the strategy with the same settings."""
    return any(str(choice) == str(old) for plan in plans for old in plan.choices if old.strategy == name)
