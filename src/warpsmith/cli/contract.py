"""`warpsmith contract TASK...`: the entry point a kernel must offer, as text, header or JSON.

Loads the tasks in this process (nothing is judged, so nothing needs protection) and therefore imports torch.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from rich.rule import Rule

from warpsmith.backends.entry import declaration_of
from warpsmith.backends.pyentry import declaration as python_declaration
from warpsmith.backends.pywording import module_skeleton
from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.cli import jsonout, render
from warpsmith.cli.evaluate import check_task_file
from warpsmith.core.contract import Contract
from warpsmith.core.errors import ToolMissing, UsageError, WarpsmithError
from warpsmith.core.registry import plugins
from warpsmith.core.task import Precision, Task
from warpsmith.hardware.device import gpus

_WITH_HEADER = ("cpu", "cuda")


@dataclass(frozen=True)
class Request:
    """What the command line asked for, as written."""

    tasks: tuple[str, ...]
    backend: str = ""  # "" chooses by what this machine has
    precision: Precision | None = None
    header_only: bool = False
    as_json: bool = False


def run(request: Request) -> int:
    """Print every contract; a task that cannot be read costs its own line only, and the exit status."""
    if request.header_only and request.as_json:
        raise UsageError("--header and --json exclude each other: the JSON has a field `header`.")
    backends = choose_backends(request.backend)
    if request.header_only:
        backends = tuple(name for name in backends if name in _WITH_HEADER)
        if not backends:
            raise UsageError(f"--header is for {' and '.join(_WITH_HEADER)}: Python candidates have no header.")
    printed, failed = 0, False
    several = len(request.tasks) * len(backends) > 1
    for file in request.tasks:
        contracts, faults = _contracts(file, request.precision, backends)
        for fault in faults:
            sys.stdout.flush()
            sys.stderr.write(f"error: {fault}\n")
            failed = True
        for task, contract in contracts:
            if several and not request.as_json:
                _separate(contract, first=printed == 0, ruled=not request.header_only)
            _print(request, file, task, contract)
            printed += 1
    return 2 if failed else 0


def _contracts(
    file: str, precision: Precision | None, backends: tuple[str, ...]
) -> tuple[list[tuple[Task, Contract]], list[WarpsmithError]]:
    """The contracts of one task, and why those that are missing cannot be had."""
    found: list[tuple[Task, Contract]] = []
    faults: list[WarpsmithError] = []
    try:
        task = _load(file, precision)
    except WarpsmithError as error:
        return [], [error]
    for name in backends:
        try:
            found.append((task, backend_named(name).contract(task)))
        except WarpsmithError as error:
            faults.append(error)
    return found, faults


def choose_backends(name: str) -> tuple[str, ...]:
    """The backends to print for; without a name: cuda where there is a GPU or nvcc, else cpu."""
    if name == "all":
        return tuple(sorted(plugins("warpsmith.backends")))
    if name:
        return (backend_named(name).name,)
    return ("cuda",) if gpus() or find_nvcc(os.environ) is not None else ("cpu",)


def _load(file: str, precision: Precision | None) -> Task:
    check_task_file(file)
    try:
        from warpsmith.tasks.load import load_task
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ToolMissing("PyTorch is not installed; install torch >= 2.6 to read tasks.") from None
    return load_task(file, precision).task


def _print(request: Request, file: str, task: Task, contract: Contract) -> None:
    if request.as_json:
        document = jsonout.contract_document(contract, task, file=file, declaration=_declaration(contract, task))
        sys.stdout.write(jsonout.dumps(document) + "\n")
    else:
        # As it is, not wrapped: it is meant to be copied into a prompt or a file.
        sys.stdout.write(contract.header if request.header_only else contract.text)
    sys.stdout.flush()


def _declaration(contract: Contract, task: Task) -> str:
    """What a candidate must define, in its own language."""
    if contract.call is None:
        return declaration_of(contract)
    if contract.call.form == "module":
        return module_skeleton(task, contract.call)
    return python_declaration(contract.arguments)


def _separate(contract: Contract, *, first: bool, ruled: bool) -> None:
    if not first:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if ruled:  # a header begins with a comment that says whose it is
        render.console().print(Rule(f"{contract.task} ({contract.backend})", style="dim"))
