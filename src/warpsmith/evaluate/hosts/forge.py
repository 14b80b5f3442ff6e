"""Compiles what a Python candidate compiles when it is imported or first called, before it is judged.

Two processes: the outer one is ours, keeps the time and ends whatever is left; the inner one enters the sandbox and
runs the candidate's code once, with compilers allowed and writing allowed in one folder alone. What is left in that
folder is all that comes out of it, besides a few words. Where the system filters calls, nothing in there can leave
the process group, so that whoever kills the outer process kills everything.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import NoReturn

import torch

from warpsmith.core.build import EXTENSIONS, MAIN, SOURCES
from warpsmith.core.contract import PythonCall
from warpsmith.evaluate.confinement import sandbox
from warpsmith.evaluate.hosts import extensions
from warpsmith.evaluate.hosts.pyfaults import Fault, fault_of
from warpsmith.evaluate.hosts.pymodule import Callee, Given, load
from warpsmith.evaluate.messages import Forged
from warpsmith.evaluate.supervising.orders import Order, Trial, parse_order
from warpsmith.evaluate.wire import Channel

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_REPORT_BYTES = 256 << 10
_FILE_BYTES = 1 << 30
_COMPILER_MEMORY_BYTES = 8 << 30
_BUILDING = "Error building extension"


def main(payload: str, fds: list[int]) -> int:
    """Entry of the outer process. Descriptor: the supervisor's channel."""
    order = parse_order(payload)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end_everything)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # not SIGKILL: compilers would be left behind
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(fds[0])
        _inner(order, writer, parent)
    os.close(writer)
    outcome = _await(reader, time.monotonic() + order.limit_s)
    _sweep()
    Channel(socket.socket(fileno=fds[0])).send(outcome)
    return 0


def _await(reader: int, deadline: float) -> Forged:
    """What the inner process reports, if it does in time."""
    text = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while len(text) <= _MOST_REPORT_BYTES:
        if not poll.poll(max(0.0, 1e3 * (deadline - time.monotonic()))):
            return Forged("timeout", "")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        text += part
    try:
        report = json.loads(text)
        return Forged(str(report["kind"]), str(report["text"]))
    except (ValueError, KeyError, TypeError):
        return Forged("died", "")


def _end_everything(_number: int, _frame: object) -> NoReturn:
    _sweep()
    os._exit(1)


def _sweep() -> None:
    """Kill every descendant: whoever loses its parent becomes our child."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.002)


def _children() -> list[int]:
    mine = str(os.getpid())
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                # The name in brackets may hold anything: the parent's id is the second word behind it.
                if Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == mine:
                    found.append(int(entry))
    return found


# --- the inner process -------------------------------------------------------------------------------


def _inner(order: Order, writer: int, parent: int) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(order.environ)
        policy = _policy(order, parent)
        early = sandbox.isolate_early(policy)
        if order.trials:  # the driver wants rights that are given up next
            torch.cuda.set_device(order.device)
            torch.zeros(1, device="cuda").add_(1.0)
        sandbox.enter(policy, early=early)
        report = {"kind": "ok", "text": ""}
        try:
            _work(order)
        except Exception as error:  # noqa: BLE001  the candidate's code: whatever it raises is its failure
            report = _reported(error, order)
        os.write(writer, json.dumps(report).encode("utf-8", "replace")[:_MOST_REPORT_BYTES])
    finally:
        os._exit(0)


def _policy(order: Order, parent: int) -> sandbox.SandboxPolicy:
    devices = tuple(Path("/dev").glob("nvidia*")) if order.kind == "cuda" else ()
    return sandbox.SandboxPolicy(
        scratch=Path(order.folder),
        readable=tuple(Path(p) for p in (*order.readable, str(Path(torch.__file__).resolve().parent.parent))),
        writable_devices=devices,
        memory_bytes=None if order.kind == "cuda" else _COMPILER_MEMORY_BYTES,
        file_bytes=_FILE_BYTES,
        open_files=1024,
        threads=64 * order.threads,
        cpu_seconds=round(order.limit_s) * order.threads + 60,
        drop_to=sandbox.NOBODY if order.drops else None,
        parent_pid=parent,
        programs=True,
    )


def _work(order: Order) -> None:
    """Import the candidate, construct it where that may compile something, and for Triton call it."""
    folder = Path(order.folder)
    os.chdir(folder)
    torch.set_grad_enabled(False)
    extensions.build_into(folder / EXTENSIONS)
    call = PythonCall(**{**order.call, "returned": tuple(order.call["returned"])})
    module = load(folder / SOURCES / (folder / MAIN).read_text(encoding="utf-8").strip())
    if order.trials:
        device = torch.device("cuda", order.device)
        torch.cuda.set_device(device)
        callee = Callee(module, call, device)
        for trial in order.trials:
            callee.bind(_given(trial, device), trial.numbers).call()
            torch.cuda.synchronize()
    elif call.form == "module" and not (folder / EXTENSIONS / extensions.RECORD).exists():
        Callee(module, call, torch.device("cpu"))  # some build their extension in the constructor


def _given(trial: Trial, device: torch.device) -> list[Given]:
    """Tensors like those of a workload: random numbers, and zeros where they may be indices."""
    found = []
    for name, role, origin, dtype, shape in zip(
        trial.names, trial.roles, trial.origins, trial.dtypes, trial.shapes, strict=True
    ):
        kind: torch.dtype = getattr(torch, dtype)
        tensor = torch.zeros(tuple(shape), dtype=kind, device=device)
        if kind.is_floating_point and kind.itemsize > 1:
            tensor.normal_()
        found.append(Given(name, role, origin, tensor))
    return found


def _reported(error: Exception, order: Order) -> dict[str, str]:
    files = Path(order.folder) / SOURCES
    chain: BaseException | None = error
    while chain is not None:
        if str(chain).startswith(_BUILDING):
            return {"kind": "build", "text": str(chain)}
        chain = chain.__cause__ or chain.__context__
    fault: Fault = fault_of(error, "import", files)
    return {"kind": "memory" if fault.kind == "memory" else "raised", "text": fault.text}
