"""What all commands share: loading on first use, errors as one line, exit statuses.

`CommandGroup` imports a command's module when that command is used, so `--help` imports none of them.
Exit status: 0 done and valid, 1 a candidate is invalid, 2 wrong usage, a missing tool or an internal error,
130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from warpsmith.model.errors import WarpsmithError
from warpsmith.model.text import printable

_ClickUsageError: type[Any] = typer.BadParameter.__bases__[0]
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # a disk that is full or broken


class CommandGroup(TyperGroup):
    """A group of commands that are imported when they are used."""

    table: ClassVar[Mapping[str, tuple[str, str]]]
    """For each command: `module:name` below `warpsmith.cli`, and the line that `--help` shows for it.

    The name is that of a function which returns the exit status, or of a typer application.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(self.table)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(self.table)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


class _Commands(dict[str, Any]):
    """The commands of a table by name, each imported when it is looked up."""

    def __init__(self, table: Mapping[str, tuple[str, str]]) -> None:
        super().__init__(dict.fromkeys(table))
        self._table = table

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if found is None:
            module, _, attribute = self._table[name][0].partition(":")
            with _errors_reported():
                found = _command(name, getattr(import_module(f"warpsmith.cli.{module}"), attribute))
            self[name] = found
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """What click looks a command up with."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """All commands; imports all of them."""
        return [self[name] for name in self]


def _command(name: str, function: typer.Typer | Callable[..., int]) -> Any:
    """A click command that ends with the status which the function returns."""
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> NoReturn:
        with _errors_reported():
            status = function(*args, **kwargs)
        raise typer.Exit(status)

    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name)(run)
    return typer.main.get_command(single)


def start(app: typer.Typer) -> NoReturn:
    """Run an application as the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? instead of failing
    signal.signal(signal.SIGTERM, _terminated)
    try:
        try:
            status = app(prog_name="warpsmith", standalone_mode=False)
        except _ClickUsageError as error:
            status = _usage_error(error)
        except (KeyboardInterrupt, typer.Abort):
            sys.stderr.write("interrupted.\n")
            status = 130
        finally:
            sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:
        _discard_output(1)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        where = printable(str(error.filename or "standard output"))
        sys.stderr.write(f"error: {where} cannot be written ({error.strerror}); free some space and run again.\n")
        _discard_output(2)


def _usage_error(error: Any) -> int:
    """Print what is wrong with the words of a command in one line; print the help where no words were given."""
    text = error.format_message().strip()
    if "\n" in text:
        sys.stderr.write(f"{printable(text)}\n")
        return 2
    command = error.ctx.command_path if error.ctx else "warpsmith"
    text = text.replace(". Did you mean", "; did you mean").replace("Value error, ", "").rstrip(".")
    if text.startswith("Missing argument") and error.ctx:  # which of the arguments were given is not obvious
        text += f" of `{' '.join([command, *_arguments(error.ctx)])}`"
    see = " See" if text.endswith("?") else "; see"
    _print_error(f"error: {text[:1].lower()}{text[1:]}{see} `{command} --help`.")
    return 2


def _arguments(context: Any) -> list[str]:
    """The arguments of a command, in order."""
    found = [param for param in context.command.params if param.param_type_name == "argument"]
    return [(each.metavar or each.name).upper() for each in found]


def _discard_output(status: int) -> NoReturn:
    """Exit although standard output cannot be written: Python would flush it once more and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # so that `with` blocks stop workers and remove folders


@contextlib.contextmanager
def _errors_reported() -> Iterator[None]:
    """Print an error as one line and end the command."""
    try:
        yield
    except WarpsmithError as error:
        _print_error(f"error: {error}")
        raise typer.Exit(2) from None
    except (KeyboardInterrupt, typer.Abort):  # the second from a question that was not answered
        _print_error("interrupted.")
        raise typer.Exit(130) from None
    except (BrokenPipeError, typer.Exit, SystemExit):
        raise
    except ModuleNotFoundError as error:
        if error.name != "torch":
            _internal_error(error)
        _print_error("error: PyTorch is not installed; install torch >= 2.6, e.g. pip install 'warpsmith[torch]'.")
        raise typer.Exit(2) from None
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise  # `start` reports it
        _internal_error(error)
    except Exception as error:  # noqa: BLE001 - the top frame: any other exception is a bug
        _internal_error(error)


def _internal_error(error: Exception) -> NoReturn:
    if debug := bool(os.environ.get("WARPSMITH_DEBUG")):
        traceback.print_exc()
    text = " ".join(str(error).split()) or "no message"
    hint = "" if debug else " Run again with WARPSMITH_DEBUG=1 for the traceback."
    _print_error(f"internal error: {type(error).__name__}: {text}.{hint}")
    raise typer.Exit(2) from None


def _print_error(line: str) -> None:
    sys.stdout.flush()
    if sys.stderr.isatty():
        from warpsmith.cli.terminal import print_error

        print_error(line)
    else:
        sys.stderr.write(printable(line) + "\n")
