"""The process of a Python candidate: a host with torch in it, that imports a file instead of loading a library.

It answers the same requests as `host` and is trusted as little. A candidate that returns tensors is timed until they
are there; copying them into the judge's buffers comes after its clock has stopped and before the reply, so that the
judge's own clock sees it. Its parent has imported torch, and nothing of the task.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils.cpp_extension  # before the sandbox closes

from warpsmith.core.build import EXTENSIONS, MAIN, SOURCES, TRITON
from warpsmith.core.contract import PythonCall
from warpsmith.evaluate.confinement import sandbox
from warpsmith.evaluate.hosts import extensions
from warpsmith.evaluate.hosts.host import Handler, Host, variables_of
from warpsmith.evaluate.hosts.pyfaults import Fault, fault_of
from warpsmith.evaluate.hosts.pymodule import Bound, Callee, Given, load
from warpsmith.evaluate.hosts.pyoperators import list_operators
from warpsmith.evaluate.hosts.pyresults import Expected, deliver
from warpsmith.evaluate.hosts.pysides import PythonCpuSide, PythonCudaSide
from warpsmith.evaluate.hosts.pytriton import move_cache, watch_images
from warpsmith.evaluate.hosts.sides import CpuSide, CudaSide, recorded, unrecorded, variables_said
from warpsmith.evaluate.messages import (
    Acknowledged,
    Faulted,
    Flush,
    Import,
    Loaded,
    Offer,
    Prepare,
    Ran,
    Record,
    Recorded,
    Run,
    Sample,
    Sampled,
    TraceOff,
    TraceOn,
    TraceReport,
)
from warpsmith.evaluate.replay.callgraph import encode
from warpsmith.evaluate.wire import Channel

Reply = TypeVar("Reply")
_OPEN_FILES = 1024


class PythonHost(Host):
    """Answers the judge's requests with a Python candidate."""

    def __init__(self, channel: Channel, payload: dict[str, Any]) -> None:
        super().__init__(channel, payload)
        self._drops = bool(payload["drops"])
        self._heap = str(payload["heap"])
        if self._heap:  # now: the sandbox does not let it read the cache folder
            ctypes.CDLL(self._heap)
        self._held: dict[int, object] = {}  # results of recorded calls
        self._files = Path()  # the candidate's own
        self._callee: Callee | None = None
        self._bound: dict[int, Bound] = {}
        self._expected: dict[int, tuple[Expected, ...]] = {}
        self._returned: tuple[str, ...] = ()
        self._results: dict[int, object] = {}
        self._checked: dict[int, Callable[[], int]] = {}  # the calls, where they are not timed

    def handlers(self) -> dict[type, Handler]:
        return {**super().handlers(), Import: self._import, Offer: self._offer}

    @property
    def python_side(self) -> PythonCpuSide | PythonCudaSide:
        """The prepared device side."""
        side = self.side
        assert isinstance(side, PythonCpuSide | PythonCudaSide), "_make_side makes no other"
        return side

    # --- setting up ---

    def _is_closed(self, message: Prepare) -> bool:
        return False  # it imports as it goes

    def _policy(self, message: Prepare) -> sandbox.SandboxPolicy:
        policy = super()._policy(message)
        torch_home = Path(torch.__file__).resolve().parent.parent
        return replace(
            policy,
            readable=(*policy.readable, torch_home),
            open_files=_OPEN_FILES,
            drop_to=sandbox.NOBODY if self._drops else None,
        )

    def _make_side(self, message: Prepare, fds: tuple[int, ...]) -> CpuSide | CudaSide:
        torch.set_grad_enabled(False)
        side = PythonCudaSide(message, fds, self._heap) if message.kind == "cuda" else PythonCpuSide(message, fds)
        if isinstance(side, PythonCudaSide):
            self._library = side.runtime
        return side

    def _import(self, message: Import, _fds: tuple[int, ...]) -> Loaded | Faulted:
        folder = Path(message.folder)
        self._files = folder / SOURCES
        call = PythonCall(**{**(fields := json.loads(message.call)), "returned": tuple(fields["returned"])})
        self._returned = call.returned
        _allow_arithmetic(call.tf32)
        extensions.load_from(folder / EXTENSIONS)
        for file in sorted((folder / EXTENSIONS).glob("**/*.so")):
            self._variables = {**self._variables, **variables_of(file.read_bytes())}
        if (folder / TRITON).is_dir():
            cache = Path(os.environ["TMPDIR"]) / TRITON
            move_cache(folder / TRITON, cache)
            os.environ["TRITON_CACHE_DIR"] = str(cache)
            if isinstance(self.side, CudaSide):
                self.side.images = watch_images()
        try:
            module = load(self._files / (folder / MAIN).read_text(encoding="utf-8").strip())
            self._callee = Callee(module, call, self.python_side.device)
        except Exception as error:  # noqa: BLE001  the candidate's code: whatever it raises is its failure
            return _faulted(fault_of(error, "import", self._files))
        return Loaded(0)

    def _offer(self, message: Offer, _fds: tuple[int, ...]) -> Acknowledged | Faulted:
        assert self._callee is not None, "Import comes first"
        given = [
            Given(name, role, origin, self.python_side.tensor(start, getattr(torch, dtype), shape))
            for name, dtype, shape, start, role, origin in zip(
                message.names,
                message.dtypes,
                message.shapes,
                message.starts,
                message.roles,
                message.origins,
                strict=True,
            )
        ]
        try:
            bound = self._callee.bind(given, json.loads(message.numbers))
        except Exception as error:  # noqa: BLE001  as above
            return _faulted(fault_of(error, "import", self._files))
        tensors = {each.name: each.tensor for each in given}
        self._bound[message.index] = bound
        self._expected[message.index] = tuple(Expected(name, tensors[name]) for name in self._returned)
        self._calls[message.index] = self._keeping(message.index, bound.call)
        self._checked[message.index] = self._keeping(message.index, bound.checked)
        return Acknowledged()

    def _keeping(self, index: int, call: Callable[[], object]) -> Callable[[], int]:
        if not self._returned:

            def run() -> int:
                call()
                return 0

            return run
        results = self._results

        def keep() -> int:
            results[index] = call()
            return 0

        return keep

    # --- calling ---

    def _renew(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._bound[index].renew()
        self._results.clear()

    def _deliver(self, indices: Sequence[int]) -> None:
        if self._returned:
            for index in indices:
                deliver(self._results[index], self._expected[index])

    def _run(self, message: Run, _fds: tuple[int, ...]) -> Ran | Faulted:
        self._renew((message.index,))
        call = self._checked[message.index]
        start = time.perf_counter_ns()
        try:
            call()
            code, text = self.side.settle(self._library)
            elapsed_ns = time.perf_counter_ns() - start
            if not code:
                self._deliver((message.index,))
                code, text = self.side.settle(self._library)
        except Exception as error:  # noqa: BLE001  as above
            return self._failed(error, lambda code, text: Ran(0, code, text, 0))
        return Ran(0, code, text, elapsed_ns)

    def _record(self, message: Record, fds: tuple[int, ...]) -> Recorded | Faulted:
        try:
            if self._returned:
                return self._record_returned(message.indices)
            return super()._record(message, fds)
        except Exception as error:  # noqa: BLE001  whatever it did: it is then timed in another way
            self.side.settle(self._library)
            reason = str(error).strip() or type(error).__name__
            return unrecorded(f"its calls cannot be recorded ({reason.splitlines()[0][:200]})")

    def _record_returned(self, indices: Sequence[int]) -> Recorded:
        """Calls that return tensors, and the copies that carry these over."""
        side = self.python_side
        if not isinstance(side, PythonCudaSide):
            return unrecorded("it runs on the CPU")
        recording = side.recording(self._variables)
        calls, deliveries = [], []
        for index in indices:
            self._bound[index].renew()
            side.driver.synchronize()
            calls.append(encode(side.captured(recording, self._calls[index])))
            self._held[index] = self._results[index]
            deliveries.append(encode(recording.record(partial(self._delivering, index))))
        return recorded(tuple(calls), tuple(deliveries), variables_said(recording))

    def _delivering(self, index: int) -> int:
        deliver(self._held[index], self._expected[index])
        return 0

    def _sample(self, message: Sample, _fds: tuple[int, ...]) -> Sampled | Faulted:
        if not isinstance(self.side, CpuSide):  # there it is done with the flush, which must come last
            self._renew(message.indices)
        if message.wake_ms:
            self.side.wake(message.wake_ms)
        calls = [self._calls[i] for i in message.indices]
        try:
            sampled = self.side.sample(calls, message, self._library)
            if sampled.device_error:
                return sampled
            self._deliver(message.indices)
            self._results.clear()  # what a call allocated goes back before the next one is timed
            code, text = self.side.settle(self._library)
        except Exception as error:  # noqa: BLE001  as above
            return self._failed(error, lambda code, text: Sampled(0, 0, code, text))
        return replace(sampled, device_error=code, device_text=text)

    def _flush(self, message: Flush, fds: tuple[int, ...]) -> Acknowledged:
        self._renew(tuple(self._bound))
        return super()._flush(message, fds)

    def _trace_on(self, message: TraceOn, fds: tuple[int, ...]) -> Acknowledged:
        done = super()._trace_on(message, fds)
        self._checked[message.index] = self._calls[message.index]
        return done

    def _trace_off(self, message: TraceOff, fds: tuple[int, ...]) -> TraceReport:
        done = super()._trace_off(message, fds)
        if self._untraced is not None:
            index, self._checked[index] = self._untraced
        return done

    def traced(self, call: Callable[[], int]) -> Callable[[], int]:
        """A call that notes the torch operators it uses."""

        def noting() -> int:
            self._operators = list_operators(call, deep=isinstance(self.side, CpuSide))
            return 0

        return noting

    def _failed(self, error: Exception, reply: Callable[[int, str], Reply]) -> Reply | Faulted:
        """What a failed call is answered with: the device's own error where there is one, else what was raised."""
        fault = fault_of(error, "raised", self._files)
        code, text = self.side.settle(None)
        return reply(code, text) if code else _faulted(fault)


def _faulted(fault: Fault) -> Faulted:
    # Its words go into JSON: a candidate may raise anything.
    return Faulted(fault.kind, fault.text.encode("utf-8", "replace").decode("utf-8"))


def _allow_arithmetic(tf32: bool) -> None:
    """PyTorch's own operators get the arithmetic that the task's precision class permits."""
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process. Descriptors: the judge's channel, the fault page."""
    settings = json.loads(payload)
    channel_fd, settings["fault_page_fd"] = fds
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.environ.clear()
    os.environ.update(settings["environ"])
    PythonHost(Channel(socket.socket(fileno=channel_fd)), settings).serve()
    return 0
