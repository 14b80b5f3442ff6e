"""Models by name: "openai:gpt-5", several with weights, or those that the environment offers.

`parse` and `detect_models` give `ModelSpec`s; `connect` gives `Model`s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import cast

from warpsmith.llm.endpoint import Provider
from warpsmith.llm.failures import safe_url
from warpsmith.llm.model import Model, ModelContext, ModelOptions
from warpsmith.model.errors import ProposerFault, ToolMissing, UsageError
from warpsmith.system.plugins import plugin, plugins

PACKAGE = "warpsmith.llm"
MODEL_VARIABLE = "WARPSMITH_MODEL"
_NAMED = 5  # models named where one has to be chosen


@dataclass(frozen=True)
class ModelSpec:
    """One model by name."""

    provider: str
    model: str
    weight: float = 1.0

    @property
    def name(self) -> str:
        """See `Model.name`."""
        return f"{self.provider}:{self.model}"


@dataclass(frozen=True)
class DetectedModels:
    """The models that the environment offers."""

    models: tuple[ModelSpec, ...]  # empty: no model is available
    why: str  # a sentence


def providers() -> tuple[str, ...]:
    """The names of all providers."""
    return tuple(sorted(plugins(PACKAGE)))


def is_spec(text: str) -> bool:
    """True if a text begins with the name of a provider; the rest is not checked."""
    return text.strip().partition(":")[0] in providers()


def parse(text: str) -> tuple[ModelSpec, ...]:
    """Models with weights, from text such as "openai:a=2,anthropic:b"; model names may contain colons and slashes."""
    specs = tuple(_one(part.strip()) for part in text.split(","))
    twice = next((spec.name for spec in specs if [s.name for s in specs].count(spec.name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice; give it once, with the weight it should have.")
    return specs


def connect(specs: Sequence[ModelSpec], options: ModelOptions, context: ModelContext) -> tuple[Model, ...]:
    """Connect to models. A base URL can be given for one provider only."""
    kinds = {spec.provider for spec in specs}
    if options.base_url and len(kinds) > 1:
        raise UsageError("one base URL cannot serve several providers; set each one's variable instead.")
    models: list[Model] = []
    try:
        for spec in specs:
            models.append(_provider(spec.provider).connect(spec.model, options, context))
    except BaseException:
        for model in models:
            model.close()
        raise
    return tuple(models)


def detect_models(options: ModelOptions, context: ModelContext) -> DetectedModels:
    """The model to use by the keys and addresses in the environment; may ask an endpoint for its models."""
    named = context.keyring.plain(MODEL_VARIABLE)
    if named and is_spec(named):
        return DetectedModels(parse(named), f"{MODEL_VARIABLE} names {named}.")
    reasons = []
    for name in sorted(providers(), key=lambda name: name != "openai"):  # openai first, then by name
        provider = _provider(name)
        if context.keyring.plain(provider.url_name) or (options.base_url and name == "openai"):
            found = _of_address(provider, named, options, context)
        elif context.keyring.secret(provider.key_name):
            found = _of_key(provider, named)
        else:
            continue
        if found.models and find_spec(provider.package) is None:
            found = DetectedModels((), f"{found.why} But its SDK is missing: run `pip install 'warpsmith[llm]'`.")
        if found.models:
            return found
        reasons.append(found.why)
    if reasons:
        return DetectedModels((), " ".join(reasons))
    names = [n for p in map(_provider, providers()) for n in (p.key_name, p.url_name)]
    return DetectedModels((), f"No model is connected: none of {', '.join(names)} is set.")


def _of_key(provider: Provider, named: str) -> DetectedModels:
    if named:
        return DetectedModels(
            (ModelSpec(provider.name, named),), f"{provider.key_name} is set and {MODEL_VARIABLE} names {named}."
        )
    why = f"{provider.key_name} is set; {provider.default_model} is the default where no model is named."
    return DetectedModels((ModelSpec(provider.name, provider.default_model),), why)


def _of_address(provider: Provider, named: str, options: ModelOptions, context: ModelContext) -> DetectedModels:
    where = safe_url(provider.address(options, context))
    origin = "--base-url" if options.base_url else provider.url_name
    if named:
        return DetectedModels(
            (ModelSpec(provider.name, named),), f"{origin} is {where} and {MODEL_VARIABLE} names {named}."
        )
    if where == safe_url(provider.home):
        return DetectedModels((ModelSpec(provider.name, provider.default_model),), f"{origin} is {where}.")
    try:
        served = provider.list_models(options, context)
    except (ProposerFault, ToolMissing) as error:
        return DetectedModels((), f"{origin} is {where}, but no model is named: {error}")
    if len(served) == 1:
        return DetectedModels(
            (ModelSpec(provider.name, served[0]),), f"{origin} is {where}, and {served[0]} is what it serves."
        )
    names = ", ".join(served[:_NAMED]) + (", ..." if len(served) > _NAMED else "")
    return DetectedModels(
        (), f"{where} serves {len(served)} models ({names}): name one with {MODEL_VARIABLE} or --proposer."
    )


def _one(text: str) -> ModelSpec:
    provider, sign, rest = text.partition(":")
    if not sign or not rest:
        raise UsageError(f"{text!r} names no model; write PROVIDER:MODEL, providers are {', '.join(providers())}.")
    if provider not in providers():
        raise UsageError(f"unknown provider {provider!r} in {text!r}; known: {', '.join(providers())}.")
    model, sign, weight = rest.rpartition("=")
    if not sign:
        return ModelSpec(provider, rest)
    try:
        share = float(weight)
    except ValueError:
        return ModelSpec(provider, rest)  # the equals sign is part of the name
    if not model or not math.isfinite(share) or share <= 0:
        raise UsageError(f"the weight in {text!r} is not above zero; write e.g. {provider}:{model or 'MODEL'}=2.")
    return ModelSpec(provider, model, share)


def _provider(name: str) -> Provider:
    return cast(Provider, plugin(PACKAGE, name))
