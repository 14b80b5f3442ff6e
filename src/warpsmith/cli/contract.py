"""`warpsmith contract TASK...`: the entry point a kernel must have, as text, header or JSON.

Imports torch, because tasks are loaded in this process: nothing is judged, so nothing needs protection.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich.rule import Rule

from warpsmith.backends.c_contract import declaration_of
from warpsmith.backends.python_contract import declaration as python_declaration
from warpsmith.backends.python_contract import module_skeleton
from warpsmith.backends.source import backend_named
from warpsmith.cli import cards
from warpsmith.cli.checks import find_task
from warpsmith.cli.json_documents import contract_document, print_document
from warpsmith.cli.options import JsonLines, PrecisionOption
from warpsmith.cli.terminal import write
from warpsmith.model.contract import CallForm, Contract
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.model.task import Precision, Task
from warpsmith.search.open_run import default_backend
from warpsmith.system.plugins import plugins

_WITH_HEADER = ("cpu", "cuda")


class BackendChoice(StrEnum):
    """What `--backend` takes."""

    CPU = "cpu"
    CUDA = "cuda"
    TRITON = "triton"
    TORCH_MODULE = "torch_module"
    ALL = "all"


def contract(
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK", help="Task files, file.py::name, or tasks of a suite, as softmax.")
    ],
    backend: Annotated[
        BackendChoice | None,
        typer.Option(help="For which language.  [default: as optimize: cuda with a GPU and nvcc, else cpu]"),
    ] = None,
    precision: PrecisionOption = None,
    header: Annotated[bool, typer.Option("--header", help="Only the header included before a kernel.")] = False,
    json: JsonLines = False,
) -> int:
    """Show the entry point a kernel must have for a task: ready to paste into a prompt or a file.

    A task that cannot be read costs one line on standard error and exit status 2; the others are still shown.
    """
    if header and json:
        raise UsageError("--header and --json exclude each other: the JSON has a field `header`.")
    backends = choose_backends(backend)
    if header:
        backends = tuple(name for name in backends if name in _WITH_HEADER)
        if not backends:
            raise UsageError(f"--header is for {' and '.join(_WITH_HEADER)}: Python candidates have no header.")
    printed, failed = 0, False
    several = len(tasks) * len(backends) > 1
    for file in tasks:
        contracts, errors = _contracts(file, precision, backends)
        for error in errors:
            sys.stdout.flush()
            sys.stderr.write(f"error: {error}\n")  # an error can be printed
            failed = True
        for task, found in contracts:
            if several and not json:
                _separate(found, first=printed == 0, ruled=not header)
            if json:
                print_document(contract_document(found, task, file=file, declaration=_declaration(found, task)))
            else:  # not wrapped: it is meant to be copied into a prompt or a file
                write(found.header if header else found.text, exact=header)
                sys.stdout.flush()
            printed += 1
    return 2 if failed else 0


def _contracts(
    file: str, precision: Precision | None, backends: tuple[str, ...]
) -> tuple[list[tuple[Task, Contract]], list[WarpsmithError]]:
    """The contracts of one task, and an error for each that is missing."""
    found: list[tuple[Task, Contract]] = []
    errors: list[WarpsmithError] = []
    try:
        task = _load(file, precision)
    except WarpsmithError as error:
        return [], [error]
    for name in backends:
        try:
            found.append((task, backend_named(name).contract(task)))
        except WarpsmithError as error:
            errors.append(error)
    return found, errors


def choose_backends(choice: BackendChoice | None) -> tuple[str, ...]:
    """The backends to print for; without a choice: the one that `optimize` takes here."""
    if choice is BackendChoice.ALL:
        return tuple(sorted(plugins("warpsmith.backends")))
    if choice is not None:
        return (choice.value,)
    return (default_backend(),)


def _load(file: str, precision: Precision | None) -> Task:
    from warpsmith.tasks.load import load_task  # it imports torch, which `contract --help` does not need

    return load_task(find_task(file), precision).task


def _declaration(contract: Contract, task: Task) -> str:
    """What a candidate must define, in its language."""
    if contract.call is None:
        return declaration_of(contract)
    if contract.call.form is CallForm.MODULE:
        return module_skeleton(task, contract.call)
    return python_declaration(contract.arguments)


def _separate(contract: Contract, *, first: bool, ruled: bool) -> None:
    if not first:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if ruled:  # a header begins with a comment that names its task
        cards.console().print(Rule(f"{contract.task} ({contract.backend})", style="dim"))
