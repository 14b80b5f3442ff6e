"""The command-line application, and the one place where an error becomes a line and an exit status.

Commands are in `main`, `searching`, `benching` and `report`. Each imports its own module when it runs, so that
`--help` costs no more than typer does. Exit status: 0 done and valid, 1 a candidate is invalid, 2 wrong usage, a
missing tool or our own fault, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from warpsmith._version import __version__
from warpsmith.core.errors import WarpsmithError

_Misuse: type[Any] = typer.BadParameter.__bases__[0]  # click's UsageError, under whichever name typer has click
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # a disk that is full or broken

app = typer.Typer(
    name="warpsmith",
    help="Makes kernels faster by evolution, and judges them against PyTorch on an evaluator that cannot be fooled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def named(task: str) -> str:
    """A task as the loader takes it: `suite/name` becomes the file it is in, anything else stays."""
    from warpsmith.tasks.suites import resolve

    return resolve(task)


def start() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? instead of failing
    signal.signal(signal.SIGTERM, _terminated)
    try:
        try:
            status = app(prog_name="warpsmith", standalone_mode=False)
        except _Misuse as misuse:
            status = _misused(misuse)
        except (KeyboardInterrupt, typer.Abort):
            sys.stderr.write("interrupted.\n")
            status = 130
        finally:
            sys.stdout.flush()
        sys.exit(status)
    except BrokenPipeError:
        _give_up_output(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or "standard output"
        sys.stderr.write(f"error: {where} cannot be written ({error.strerror}); free some space and run again.\n")
        _give_up_output(2)


def _misused(misuse: Any) -> int:
    """Words that no command takes, in one line; where none were given the command's help."""
    said = misuse.format_message().strip()
    if "\n" in said:
        sys.stderr.write(f"{said}\n")
        return 2
    where = misuse.ctx.command_path if misuse.ctx else "warpsmith"
    said = said.replace(". Did you mean", "; did you mean").replace("Value error, ", "").rstrip(".?")
    _complain(f"error: {said[:1].lower()}{said[1:]}; `{where} --help` shows what it takes.")
    return 2


def _give_up_output(status: int) -> NoReturn:
    """End although standard output cannot be written: Python would try once more, and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # so that `with` blocks end workers and remove folders


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Say what went wrong in one line."""
    try:
        yield
    except WarpsmithError as error:
        _complain(f"error: {error}")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        _complain("interrupted.")
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise  # the reader of our output has left; typer ends quietly
    except (typer.Exit, SystemExit):
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise  # the machine's fault: `main` says so
        _own_up(error)
    except Exception as error:  # noqa: BLE001 - the top frame: what is left is a fault of ours
        _own_up(error)


def _own_up(error: Exception) -> NoReturn:
    """A fault of ours, in one line."""
    if os.environ.get("WARPSMITH_DEBUG"):
        traceback.print_exc()
    said = " ".join(str(error).split()) or "no message"
    hint = "" if os.environ.get("WARPSMITH_DEBUG") else " Run again with WARPSMITH_DEBUG=1 for the traceback."
    _complain(f"internal error: {type(error).__name__}: {said}.{hint}")
    raise typer.Exit(2) from None


def _complain(line: str) -> None:
    sys.stdout.flush()
    if sys.stderr.isatty():
        from warpsmith.cli.lines import complain

        complain(line)
    else:
        sys.stderr.write(line + "\n")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"warpsmith {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass
