"""From what a user writes after `--proposer` to a proposer, with a sentence that says which it is and why.

Whatever would stop it at the first brief (no key, no SDK, no such recording) stops it here, before anything is spent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.core.errors import UsageError
from warpsmith.core.search import Proposer
from warpsmith.llm import spec as models
from warpsmith.llm.model import Options as ModelOptions
from warpsmith.llm.model import Patience, Surroundings
from warpsmith.propose.chat import connect
from warpsmith.propose.command import CommandProposer
from warpsmith.propose.replay import ReplayProposer
from warpsmith.propose.template import TemplateProposer

_CATALOGUE = "the offline catalogue of strategies"


@dataclass(frozen=True)
class Options:
    """What goes with a proposer on the command line. Holds no key, only where one is."""

    base_url: str = ""
    key_file: str = ""
    prices: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    request_s: float | None = None
    choice: str = "weighted"
    models: tuple[str, ...] = ()  # "ROLE=PROVIDER:MODEL": another model for one role of a method

    def for_models(self) -> ModelOptions:
        """As a provider takes them."""
        known = Patience()
        patience = known if self.request_s is None else replace(known, request_s=self.request_s)
        return ModelOptions(
            base_url=self.base_url, temperature=self.temperature, max_tokens=self.max_tokens, patience=patience
        )


@dataclass(frozen=True)
class Choice:
    """A proposer that can be opened."""

    spec: str  # what to write to get the same again
    sentence: str  # which it is and why, for people
    open: Callable[[], Proposer]
    unpriced: tuple[str, ...] = ()  # models whose price is not known, so that their cost is not
    uncounted: bool = False  # it says neither how many tokens it takes nor what they cost


def choose(
    spec: str,
    options: Options,
    *,
    skip: int = 0,
    roles: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Choice:
    """The proposer a user means. `skip`: programs of a recording that were replayed before; `roles`: the method's."""
    text = spec.strip()
    given = _roles(options, roles)
    if given and text != "auto" and not models.is_spec(text):
        raise UsageError(f"--model is for language models; {text} takes no other for a role.")
    kind, _, rest = text.partition(":")
    if text == "auto":
        return _auto(options, given, os.environ if environ is None else environ)
    if text == "template":
        return Choice(text, f"{_CATALOGUE}.", TemplateProposer)
    if kind == "command":
        if not rest.strip():
            raise UsageError("command: names no command; write e.g. --proposer 'command:my-agent --print'.")
        return Choice(text, f"the command {rest.strip()!r}.", lambda: CommandProposer(rest.strip()), uncounted=True)
    if kind == "replay":
        replayed = ReplayProposer(Path(rest), skip)  # opened now, so that what is no run is said at once
        return Choice(text, f"the programs recorded in {rest}.", lambda: replayed)
    if models.is_spec(text):
        return _models(text, models.parse(text), given, options, os.environ if environ is None else environ)
    known = ", ".join(
        ["auto", "template", *(f"{name}:MODEL" for name in models.providers()), "command:CMD", "replay:RUN"]
    )
    raise UsageError(f"unknown proposer {spec!r}; known: {known}.")


def _roles(options: Options, known: Sequence[str]) -> dict[str, models.ModelSpec]:
    """Which model plays which role of the method."""
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
    options: Options,
    environ: Mapping[str, str],
    why: str = "",
) -> Choice:
    surroundings = _surroundings(options, environ)
    proposer = connect(specs, options.for_models(), surroundings, options.choice, roles)
    played = (f"{role}: {each.name}" for role, each in sorted(roles.items()))
    names = ", ".join([*(each.name for each in specs), *played])
    asked = dict.fromkeys([*specs, *roles.values()])
    unpriced = tuple(each.name for each in asked if surroundings.prices.of(each.provider, each.model) is None)
    return Choice(text, f"{names}{f' ({why})' if why else ''}.", lambda: proposer, unpriced)


def _auto(options: Options, roles: Mapping[str, models.ModelSpec], environ: Mapping[str, str]) -> Choice:
    found = models.auto(options.for_models(), _surroundings(options, environ))
    why = found.why.rstrip(".")
    if not found.models and options.base_url:  # a model is wanted: a run without one would surprise
        raise UsageError(f"{why}; see that the endpoint answers, or name a model with --proposer openai:MODEL.")
    if not found.models:
        sentence = f"{_CATALOGUE} ({why}; connect one with --proposer openai:MODEL, anthropic:MODEL or command:CMD)."
        return Choice("template", sentence, TemplateProposer)
    text = ",".join(each.name for each in found.models)
    return _models(text, found.models, roles, options, environ, why)


def _surroundings(options: Options, environ: Mapping[str, str]) -> Surroundings:
    key_file = Path(options.key_file) if options.key_file else None
    prices = Path(options.prices) if options.prices else None
    return Surroundings.gather(environ, key_file, prices)
