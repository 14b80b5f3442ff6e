"""Chooses the proposer that a user names with `--proposer`, with a sentence that says which one and why.

A missing key, SDK or recording, which would stop a proposer at its first brief, is reported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.evaluator.sandbox.landlock import kernel_abi
from warpsmith.llm import spec as models
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.model.brief import Problem, Proposer
from warpsmith.model.errors import UsageError
from warpsmith.proposers.agent import AgentProposer
from warpsmith.proposers.command import CommandProposer
from warpsmith.proposers.model_agent import ModelAgent
from warpsmith.proposers.models import connect
from warpsmith.proposers.recorded import RecordedProposer, is_recording
from warpsmith.proposers.step import StepBudget
from warpsmith.proposers.templates import TemplateProposer

_IN_BATCHES = 64  # requests under way at once
_CATALOGUE = "the offline catalogue of strategies"


@dataclass(frozen=True)
class ProposerOptions:
    """The options of a proposer on the command line; of a key only the name of its file."""

    base_url: str = ""
    key_file: str = ""
    prices: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    effort: str = ""
    structured: bool = False
    batch: bool = False
    request_s: float | None = None
    choice: str = "weighted"
    models: tuple[str, ...] = ()  # "ROLE=PROVIDER:MODEL": another model for one role of a method
    step_trials: int | None = None  # of one step of an agent
    step_s: float | None = None
    step_tokens: int | None = None

    def for_steps(self) -> StepBudget:
        """The limits of one step of an agent: those given here, else the defaults."""
        given = {"trials": self.step_trials, "seconds": self.step_s, "tokens": self.step_tokens}
        known = {name: value for name, value in given.items() if value is not None}
        if any(value < (name != "trials") for name, value in known.items()):
            raise UsageError("a step needs some time and tokens; give --step-time and --step-tokens of 1 or more.")
        return replace(StepBudget(), **known)  # type: ignore[arg-type]

    def for_models(self) -> ModelOptions:
        known = RetryPolicy()
        retries = known if self.request_s is None else replace(known, request_s=self.request_s)
        return ModelOptions(
            base_url=self.base_url,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            effort=self.effort,
            structured=self.structured,
            batch=self.batch,
            concurrency=_IN_BATCHES if self.batch else ModelOptions().concurrency,
            retries=retries,
        )


@dataclass(frozen=True)
class ChosenProposer:
    """A proposer that is ready to be opened."""

    spec: str  # names the same proposer on the command line
    sentence: str  # for users: which proposer, and why
    open: Callable[[], Proposer]
    unpriced: tuple[str, ...] = ()  # models without a known price
    uncounted: bool = False  # whether it reports neither tokens nor cost
    check: Callable[[Problem], None] = lambda _: None  # raises ProposerRefused for a problem that it cannot solve


def choose(
    spec: str,
    options: ProposerOptions,
    *,
    skip: int = 0,
    roles: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ChosenProposer:
    """The proposer that a user names. `skip`: programs of a recording already used; `roles`: of the method."""
    text = spec.strip()
    given = _roles(options, roles)
    if given and text != "auto" and not models.is_spec(text):
        raise UsageError(f"--model is for language models; leave it out with --proposer {text}.")
    kind, _, rest = text.partition(":")
    if text == "auto":
        return _auto(options, given, os.environ if environ is None else environ)
    if text == "template":
        return _catalogue(f"{_CATALOGUE}.")
    if kind == "command":
        if not rest.strip():
            raise UsageError("command: names no command; write e.g. --proposer 'command:my-agent --print'.")
        return ChosenProposer(
            text, f"the command {rest.strip()!r}.", lambda: CommandProposer(rest.strip()), uncounted=True
        )
    if kind == "agent":
        return _agent(text, rest.strip(), options, os.environ if environ is None else environ)
    if is_recording(text):
        recorded = RecordedProposer(Path(rest), skip)  # opened now, so that a folder that is no run is reported at once
        return ChosenProposer(text, f"the programs recorded in {rest}.", lambda: recorded)
    if models.is_spec(text):
        return _models(text, models.parse(text), given, options, os.environ if environ is None else environ)
    offered = (f"{name}:MODEL" for name in models.providers())
    known = ", ".join(["auto", "template", *offered, "command:CMD", "agent:CMD", "recorded:RUN"])
    raise UsageError(f"unknown proposer {spec!r}; known: {known}.")


def _catalogue(sentence: str) -> ChosenProposer:
    return ChosenProposer("template", sentence, TemplateProposer, check=TemplateProposer.check_supported)


def _roles(options: ProposerOptions, known: Sequence[str]) -> dict[str, models.ModelSpec]:
    found: dict[str, models.ModelSpec] = {}
    for text in options.models:
        role, sign, model = text.partition("=")
        if not sign or role not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(f"--model {text!r}: write ROLE=PROVIDER:MODEL; the roles of this method: {listed}.")
        (found[role],) = models.parse(model)[:1]
    return found


def _models(
    text: str,
    specs: tuple[models.ModelSpec, ...],
    roles: Mapping[str, models.ModelSpec],
    options: ProposerOptions,
    environ: Mapping[str, str],
    why: str = "",
) -> ChosenProposer:
    context = _context(options, environ)
    proposer = connect(specs, options.for_models(), context, options.choice, roles)
    played = (f"{role}: {each.name}" for role, each in sorted(roles.items()))
    names = ", ".join([*(each.name for each in specs), *played])
    asked = dict.fromkeys([*specs, *roles.values()])
    unpriced = tuple(each.name for each in asked if context.prices.of(each.provider, each.model) is None)
    return ChosenProposer(text, f"{names}{f' ({why})' if why else ''}.", lambda: proposer, unpriced)


def _agent(text: str, rest: str, options: ProposerOptions, environ: Mapping[str, str]) -> ChosenProposer:
    """The agent that a user names: a command, or the reference agent over a model."""
    budget = options.for_steps()
    if not rest:
        raise UsageError(
            "agent: names no command; write e.g. --proposer 'agent:my-agent --print' or agent:openai:MODEL."
        )
    if not models.is_spec(rest):
        confined = "" if kernel_abi() else "; this kernel has no Landlock, so that it can write wherever you can"
        return ChosenProposer(
            text, f"the agent {rest!r}{confined}.", lambda: AgentProposer(rest, budget, environ), uncounted=True
        )
    spec, *more = models.parse(rest)
    if more:
        raise UsageError(f"{text} names several models; an agent has one.")
    context = _context(options, environ)
    (model,) = models.connect([spec], options.for_models(), context)
    unpriced = (spec.name,) if context.prices.of(spec.provider, spec.model) is None else ()
    return ChosenProposer(
        text, f"the reference agent over {spec.name}.", lambda: ModelAgent(model, budget), unpriced=unpriced
    )


def _auto(
    options: ProposerOptions, roles: Mapping[str, models.ModelSpec], environ: Mapping[str, str]
) -> ChosenProposer:
    found = models.detect_models(options.for_models(), _context(options, environ))
    why = found.why.rstrip(".")
    if not found.models and options.base_url:  # the user asked for a model
        raise UsageError(f"{why}; check that the endpoint answers, or name a model with --proposer openai:MODEL.")
    if not found.models:
        sentence = f"{_CATALOGUE} ({why}; connect one with --proposer openai:MODEL, anthropic:MODEL or command:CMD)."
        return _catalogue(sentence)
    text = ",".join(each.name for each in found.models)
    return _models(text, found.models, roles, options, environ, why)


def _context(options: ProposerOptions, environ: Mapping[str, str]) -> ModelContext:
    key_file = Path(options.key_file) if options.key_file else None
    prices = Path(options.prices) if options.prices else None
    return ModelContext.load(environ, key_file, prices)
