"""Compiles what a Python candidate compiles when it is imported or first called, before it is judged.

There are two processes. The outer process is trusted: it limits the time and kills every process that is left. The
inner process enters the sandbox and runs the candidate's code once; compilers are allowed there, and one folder is
writable. The results are the files in that folder and a short report. Where seccomp is available, no process can
leave the process group, so killing the group of the outer process kills all of them.
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
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import torch

from warpsmith.evaluator.candidate.extensions import build_into
from warpsmith.evaluator.candidate.python_module import (
    NamedTensor,
    PythonCallable,
    describe_error,
    import_candidate,
)
from warpsmith.evaluator.protocol.compile_request import CompileCall, CompileRequest, CompileStatus
from warpsmith.evaluator.protocol.messages import Compiled
from warpsmith.evaluator.protocol.wire import Channel
from warpsmith.evaluator.sandbox import policy as sandbox
from warpsmith.model.build import EXTENSION_RECORD, EXTENSIONS, MAIN, SOURCES
from warpsmith.model.contract import CallForm, PythonCall

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_REPORT_BYTES = 256 << 10
_FILE_BYTES = 1 << 30
_COMPILER_MEMORY_BYTES = 8 << 30
_BUILDING = "Error building extension"
_STARTED = b"\n"  # written by the inner process before it runs the candidate's code
_EXIT_S = 1.0  # between the end of the report and the end of the process
_REPORTED = {
    status.value: status
    for status in (CompileStatus.OK, CompileStatus.BUILD_FAILED, CompileStatus.RAISED, CompileStatus.OUT_OF_MEMORY)
}


def main(payload: str, fds: list[int]) -> int:
    """Entry of the outer process. Descriptor: the supervisor's channel."""
    request = CompileRequest.from_json(payload)
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
        _inner(request, writer, parent)
    os.close(writer)
    outcome = _await(reader, child, time.monotonic() + request.limit_s)
    _sweep()
    Channel(socket.socket(fileno=fds[0])).send(outcome)
    return 0


def _await(reader: int, child: int, deadline: float) -> Compiled:
    """How the inner process ended. What it wrote before `_STARTED` is ours; what follows may be the candidate's."""
    text = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN | select.POLLHUP)
    while len(text) <= _MOST_REPORT_BYTES:
        if not poll.poll(max(0.0, 1e3 * (deadline - time.monotonic()))):
            return Compiled(CompileStatus.TIMED_OUT, "")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        text += part
    before, started, report = text.partition(_STARTED)
    if not started and before:
        return Compiled(CompileStatus.NOT_SET_UP, before.decode("utf-8", "replace"))
    try:
        fields = json.loads(report)
        return Compiled(_REPORTED[fields["status"]], str(fields["text"]))
    except (ValueError, KeyError, TypeError):
        number = _ended_by(child)
        status = CompileStatus.KILLED if number == signal.SIGKILL else CompileStatus.DIED
        return Compiled(status, "" if number is None else signal.strsignal(number) or f"signal {number}")


def _ended_by(child: int) -> int | None:
    """The signal that ended a process which has closed its end of the pipe; None if it exits by itself."""
    deadline = time.monotonic() + _EXIT_S
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        time.sleep(0.002)
    return None


def _end_everything(_number: int, _frame: object) -> NoReturn:
    _sweep()
    os._exit(1)


def _sweep() -> None:
    """Kill every descendant: a process that loses its parent becomes a child of this subreaper."""
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
                # The name in brackets may contain anything; the parent's id is the second word after it.
                if Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == mine:
                    found.append(int(entry))
    return found


# --- the inner process -------------------------------------------------------------------------------


def _inner(request: CompileRequest, writer: int, parent: int) -> NoReturn:
    try:
        try:
            _set_up(request, parent)
        except Exception as error:  # noqa: BLE001  told to the supervisor: it is not the candidate's failure
            os.write(writer, (" ".join(str(error).split()) or type(error).__name__).encode()[:_MOST_REPORT_BYTES])
            os._exit(0)
        os.write(writer, _STARTED)
        report = Compiled(CompileStatus.OK, "")
        try:
            _work(request)
        except Exception as error:  # noqa: BLE001  the candidate's code: every exception is its failure
            report = _failure(error, request)
        os.write(writer, json.dumps(asdict(report)).encode("utf-8", "replace")[:_MOST_REPORT_BYTES])
    finally:
        os._exit(0)


def _set_up(request: CompileRequest, parent: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request.environ)
    policy = _policy(request, parent)
    early = sandbox.isolate_early(policy)
    if request.calls:  # the driver needs rights that `enter` gives up
        torch.cuda.set_device(request.device)
        torch.zeros(1, device="cuda").add_(1.0)
    sandbox.enter(policy, early=early)


def _policy(request: CompileRequest, parent: int) -> sandbox.SandboxPolicy:
    devices = tuple(Path("/dev").glob("nvidia*")) if request.kind == "cuda" else ()
    return sandbox.SandboxPolicy(
        scratch=Path(request.folder),
        readable=tuple(Path(p) for p in (*request.readable, str(Path(torch.__file__).resolve().parent.parent))),
        writable_devices=devices,
        memory_bytes=None if request.kind == "cuda" else _COMPILER_MEMORY_BYTES,
        file_bytes=_FILE_BYTES,
        open_files=1024,
        threads=64 * request.threads,
        cpu_seconds=round(request.limit_s) * request.threads + 60,
        drop_to=sandbox.NOBODY if request.drop_user else None,
        parent_pid=parent,
        programs=True,
    )


def _work(request: CompileRequest) -> None:
    """Import the candidate, construct it where that may compile something, and for Triton call it."""
    folder = Path(request.folder)
    os.chdir(folder)
    torch.set_grad_enabled(False)
    build_into(folder / EXTENSIONS)
    call = PythonCall.from_json(request.call)
    module = import_candidate(folder / SOURCES / (folder / MAIN).read_text(encoding="utf-8").strip())
    if request.calls:
        device = torch.device("cuda", request.device)
        torch.cuda.set_device(device)
        callee = PythonCallable(module, call, device)
        for given in request.calls:
            callee.bind(_tensors(given, device), given.numbers).call()
            torch.cuda.synchronize()
    elif call.form is CallForm.MODULE and not (folder / EXTENSIONS / EXTENSION_RECORD).exists():
        PythonCallable(module, call, torch.device("cpu"))  # some candidates build their extension in the constructor


def _tensors(given: CompileCall, device: torch.device) -> list[NamedTensor]:
    """Tensors like those of a workload: random floats, and zeros for integers, which may be indices."""
    found = []
    for name, role, origin, dtype, shape in zip(
        given.names, given.roles, given.origins, given.dtypes, given.shapes, strict=True
    ):
        kind: torch.dtype = getattr(torch, dtype)
        tensor = torch.zeros(tuple(shape), dtype=kind, device=device)
        if kind.is_floating_point and kind.itemsize > 1:
            tensor.normal_()
        found.append(NamedTensor(name, role, origin, tensor))
    return found


def _failure(error: Exception, request: CompileRequest) -> Compiled:
    files = Path(request.folder) / SOURCES
    chain: BaseException | None = error
    while chain is not None:
        if str(chain).startswith(_BUILDING):
            return Compiled(CompileStatus.BUILD_FAILED, str(chain))
        chain = chain.__cause__ or chain.__context__
    fault = describe_error(error, "import", files)
    status = CompileStatus.OUT_OF_MEMORY if fault.kind == "memory" else CompileStatus.RAISED
    return Compiled(status, fault.text)
