"""`--config FILE.toml`: the options of a command from a file. What stands on the command line comes first."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

_NOT_IN_A_FILE = ("config", "help", "resume")


def read_config(context: typer.Context, file: str) -> str:
    """Make the values of a file the defaults of the command's options; the keys are the names of the options."""
    if not file:
        return file
    try:
        given = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as refused:
        raise typer.BadParameter(f"{file} cannot be read ({refused.strerror})") from None
    except ValueError as wrong:  # not TOML, or not text
        raise typer.BadParameter(f"{file} is not TOML: {wrong}") from None
    known = {_key(each): each for each in context.command.params}
    for name in _NOT_IN_A_FILE:
        known.pop(name, None)
    defaults: dict[str, Any] = {}
    for key, value in given.items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise typer.BadParameter(f"{file}: unknown key {key!r}; {hint}Known keys: {', '.join(sorted(known))}")
        if isinstance(value, dict) or (isinstance(value, list) and not _takes_several(parameter)):
            raise typer.BadParameter(f"{file}: {key} takes one value, not {type(value).__name__}")
        several = _takes_several(parameter) and not isinstance(value, list)
        defaults[parameter.name] = [value] if several else value
    context.default_map = {**(context.default_map or {}), **defaults}
    return file


def _key(parameter: Any) -> str:
    """The name of an option as it is written, without its hyphens; for an argument the parameter's name."""
    longest = max(parameter.opts, key=len, default=parameter.name)
    return str(longest).lstrip("-").replace("_", "-")


def _takes_several(parameter: Any) -> bool:
    return bool(parameter.multiple if hasattr(parameter, "multiple") else False) or parameter.nargs == -1


ConfigFile = Annotated[
    str,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=read_config,
        help="Options from a TOML file, e.g. a run's config.toml; those given here come first.",
    ),
]
