"""Models connected to a scripted server, with a clock that tests can read and luck that does not vary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from tests.scripted import ScriptedServer
from warpsmith.core.registry import plugin
from warpsmith.core.search import Message, Prompt, Role
from warpsmith.llm.model import Clock, Model, Options, Patience, Provider, Surroundings

KEY = "sk-scripted-0123456789abcdef"
PROMPT = Prompt((Message(Role.SYSTEM, "You write kernels."), Message(Role.USER, "Write one.")))
PROVIDERS = ("openai", "anthropic")


@dataclass
class Waits:
    """A sleep that only takes note, and a clock that goes on by what was slept."""

    waited: list[float] = field(default_factory=list)
    now: float = 1_000_000.0

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds

    def clock(self, luck: float = 0.0) -> Clock:
        return Clock(lambda: self.now, lambda: self.now, self.sleep, lambda: luck)


def provider_named(name: str) -> Provider:
    return cast(Provider, plugin("warpsmith.llm", name))


def base_url(server: ScriptedServer, provider: str) -> str:
    return server.openai_url if provider == "openai" else server.anthropic_url


@contextmanager
def connected(
    server: ScriptedServer,
    provider: str,
    model: str = "scripted",
    options: Options | None = None,
    clock: Clock | None = None,
    environ: dict[str, str] | None = None,
) -> Iterator[Model]:
    """A model of the server, closed at the end."""
    plug = provider_named(provider)
    variables = {plug.key_name: KEY, plug.url_name: base_url(server, provider), **(environ or {})}
    surroundings = Surroundings.gather(variables, clock=clock or Waits().clock())
    made = plug.connect(model, options or Options(patience=Patience(request_s=5.0)), surroundings)
    try:
        yield made
    finally:
        made.close()
