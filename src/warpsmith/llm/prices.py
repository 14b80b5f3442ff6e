"""The prices of tokens, from a table in TOML. A model that is not in the table has no price.

The packaged table holds list prices as of a date. A user's own file, given or named by `WARPSMITH_PRICES`, adds to it
and overrides it. Batch discounts, long-context surcharges and taxes are not covered.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path

from warpsmith.model.errors import UsageError

PRICES_VARIABLE = "WARPSMITH_PRICES"
_PACKAGED = "prices.toml"
_MILLION = 1_000_000


@dataclass(frozen=True)
class Tokens:
    """Tokens of one or more requests, as reported."""

    prompt: int = 0  # with those read from and written to the provider's cache
    completion: int = 0  # with those spent on reasoning
    cached: int = 0  # of the prompt, read from the cache
    cache_written: int = 0  # of the prompt, written to the cache

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached_input: float | None = None  # read from the cache; None: as any input
    cache_write: float | None = None  # None: as any input

    def cost_usd(self, tokens: Tokens) -> float:
        """The price of these tokens in US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = max(tokens.prompt - tokens.cached - tokens.cache_written, 0)
        dear = fresh * self.input + tokens.completion * self.output
        return (dear + tokens.cached * cached + tokens.cache_written * written) / _MILLION


@dataclass(frozen=True)
class Prices:
    """Prices by provider and model: "openai:gpt-5"."""

    by_model: Mapping[str, Price] = field(default_factory=dict)

    def of(self, provider: str, model: str) -> Price | None:
        """The price of a model; None if it is not known."""
        return self.by_model.get(f"{provider}:{model}")

    @staticmethod
    def load(environ: Mapping[str, str], file: Path | None = None) -> Prices:
        """The packaged table, overridden by the user's own."""
        table = _read(files("warpsmith.llm").joinpath(_PACKAGED).read_text(encoding="utf-8"), _PACKAGED)
        named = environ.get(PRICES_VARIABLE, "").strip()
        path = file or (Path(named) if named else None)
        if path is not None:
            try:
                text = path.expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                raise UsageError(f"cannot read the price table {path}; give a readable TOML file.") from None
            table |= _read(text, str(path))
        return Prices(table)


def _read(text: str, where: str) -> dict[str, Price]:
    known = [f.name for f in fields(Price)]
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the price table {where} is not TOML: {error}; correct it.") from None
    prices = {}
    for provider, models in content.items():
        for model, entry in models.items() if isinstance(models, dict) else [("", None)]:
            name = f"{provider}.{model}".rstrip(".")
            if not isinstance(entry, dict):
                raise UsageError(f'{name} in {where} is no price; write [{provider}."MODEL"] and under it input = ...')
            wrong = sorted(set(entry) - set(known))
            if wrong:
                raise UsageError(f"{name} in {where} has the unknown field {wrong[0]!r}; known: {', '.join(known)}.")
            prices[f"{provider}:{model}"] = Price(**_amounts(entry, name, where))
    return prices


def _amounts(entry: Mapping[str, object], name: str, where: str) -> dict[str, float]:
    amounts = {}
    for kind, value in entry.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise UsageError(f"{kind} of {name} in {where} is no amount; give US dollars per million tokens.")
        amounts[kind] = float(value)
    for kind in ("input", "output"):
        if kind not in amounts:
            raise UsageError(f"{name} in {where} lacks {kind}; give US dollars per million tokens.")
    return amounts
