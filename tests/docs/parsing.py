"""Whether a command would be understood, without running it: its options, targets and extras exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from tests.docs.pages import ROOT
from warpsmith.cli.main import app

_DEFAULT_OF = {"bench": "run", "serve": "run"}  # `bench SUITE` is short for `bench run SUITE`


def check(command: str) -> None:
    """Raise, with what is wrong, where a command cannot be meant as it is written."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    name, rest = words[0], words[1:]
    if name == "warpsmith":
        parse(rest)
    elif name == "python":
        _check_script(rest)
    elif name == "make":
        _check_make(rest)
    elif words[:2] == ["pip", "install"]:
        _check_extras(rest[1:])


def parse(words: Sequence[str]) -> dict[str, Any]:
    """The values a `warpsmith` command gets, by the parser that gets them when it runs."""
    command = _commands()
    name, rest = "warpsmith", list(words)
    while hasattr(command, "commands"):
        default = _DEFAULT_OF.get(name)
        if default and rest and rest[0] not in command.commands:
            rest.insert(0, default)
        assert rest, f"`{name}` needs a command"
        assert rest[0] in command.commands, f"`{name}` has no command {rest[0]}"
        name, rest = rest[0], rest[1:]
        command = command.commands[name]
    parameters: dict[str, Any] = command.make_context(name, rest).params
    return parameters


@cache
def _commands() -> Any:
    return typer.main.get_command(app)


def options_of(words: Sequence[str]) -> set[str]:
    """All options of the command that some words name; of all commands where they name none."""
    found: set[str] = set()

    def gather(command: Any) -> None:
        for parameter in command.params:
            found.update([*parameter.opts, *parameter.secondary_opts])
        for inner in getattr(command, "commands", {}).values():
            gather(inner)

    command = _commands()
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    gather(command)
    return found | {"--help", "--version"}


def _check_script(words: Sequence[str]) -> None:
    path = ROOT / (words[1].replace(".", "/") + ".py" if words[0] == "-m" else words[0])
    assert path.is_file(), f"there is no {path.relative_to(ROOT)}"
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"^from benchmarks\.(\w+) import", text, re.MULTILINE):  # options may be shared
        text += (ROOT / "benchmarks" / f"{module}.py").read_text(encoding="utf-8")
    for word in words:
        if word.startswith("--"):
            option = word.partition("=")[0]
            assert f'"{option}"' in text, f"{path.name} has no {option}"


def _check_make(words: Sequence[str]) -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        pattern = rf"^{word.partition('=')[0]} \?=" if "=" in word else rf"^{word}:"
        assert re.search(pattern, text, re.MULTILINE), f"the Makefile has no {word}"


def _check_extras(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for word in words:
        match = re.search(r"\[(.*)\]$", word)
        for extra in match[1].split(",") if match else ():
            assert extra in project["optional-dependencies"], f"there is no extra {extra}"
