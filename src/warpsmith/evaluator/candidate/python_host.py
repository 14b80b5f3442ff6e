"""The process of a Python candidate: a host that has torch imported and imports a file instead of loading a library.

It answers the same requests as the native host and is equally untrusted. The time of a candidate that returns tensors
ends when the tensors are computed. Copying them into the judge's buffers happens after the host's own clock stopped
and before the reply, so the judge's clock includes it. The parent process has imported torch and nothing of the task.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils.cpp_extension  # before the sandbox

from warpsmith.evaluator.candidate import extensions
from warpsmith.evaluator.candidate.device_memory import (
    CpuDevice,
    CudaDevice,
    calls_recorded,
    encode_variables,
    not_recorded,
)
from warpsmith.evaluator.candidate.native_host import Handler, NativeHost, device_variables, serve_host
from warpsmith.evaluator.candidate.python_device_memory import PythonCpuDevice, PythonCudaDevice
from warpsmith.evaluator.candidate.python_module import (
    BoundCall,
    NamedTensor,
    OutputTarget,
    PythonCallable,
    PythonFault,
    copy_results,
    describe_error,
    import_candidate,
    returned_tensors,
)
from warpsmith.evaluator.candidate.torch_operators import list_operators
from warpsmith.evaluator.candidate.triton_support import move_cache, watch_images
from warpsmith.evaluator.cuda_replay.call_data import encode_call
from warpsmith.evaluator.protocol.messages import (
    Acknowledged,
    BindTensors,
    CallResult,
    CallSets,
    CallsMade,
    CallTimes,
    CandidateLoaded,
    FlushCaches,
    ImportModule,
    Prepare,
    PythonFailed,
    RecordCalls,
    RecordedCalls,
    RunCall,
    StartTrace,
    StopTrace,
    TimeCalls,
    TraceReport,
)
from warpsmith.evaluator.protocol.wire import Channel
from warpsmith.evaluator.sandbox import policy as sandbox
from warpsmith.model.build import EXTENSIONS, MAIN, SOURCES, TRITON
from warpsmith.model.contract import PythonCall

Reply = TypeVar("Reply")
_OPEN_FILES = 1024


class PythonHost(NativeHost):
    """Answers the judge's requests with a Python candidate."""

    calls_in_c = False

    def __init__(self, channel: Channel, payload: dict[str, Any]) -> None:
        super().__init__(channel, payload)
        self._drop_user = bool(payload["drop_user"])
        self._heap = str(payload["heap"])
        if self._heap:  # now: the sandbox does not allow reading the cache folder
            ctypes.CDLL(self._heap)
        self._held: dict[int, object] = {}  # results of recorded calls
        self._files = Path()  # the folder of the candidate's files
        self._callee: PythonCallable | None = None
        self._bound: dict[int, BoundCall] = {}
        self._expected: dict[int, tuple[OutputTarget, ...]] = {}
        self._returned: tuple[str, ...] = ()
        self._results: dict[int, object] = {}
        self._checked: dict[int, Callable[[], int]] = {}  # the calls to use if nothing is timed

    def handlers(self) -> dict[type, Handler]:
        return {**super().handlers(), ImportModule: self._import, BindTensors: self._offer}

    @property
    def python_device(self) -> PythonCpuDevice | PythonCudaDevice:
        """The device, once it is prepared."""
        device = self.device
        assert isinstance(device, PythonCpuDevice | PythonCudaDevice), "_make_device makes no other"
        return device

    # --- setting up ---

    def _is_closed(self, message: Prepare) -> bool:
        return False  # a Python candidate may import modules at any time

    def _policy(self, message: Prepare) -> sandbox.SandboxPolicy:
        policy = super()._policy(message)
        torch_home = Path(torch.__file__).resolve().parent.parent
        return replace(
            policy,
            readable=(*policy.readable, torch_home),
            open_files=_OPEN_FILES,
            drop_to=sandbox.NOBODY if self._drop_user else None,
        )

    def _make_device(self, message: Prepare, fds: tuple[int, ...]) -> CpuDevice | CudaDevice:
        torch.set_grad_enabled(False)
        device = PythonCudaDevice(message, fds, self._heap) if message.kind == "cuda" else PythonCpuDevice(message, fds)
        if isinstance(device, PythonCudaDevice):
            self._library = device.runtime
        return device

    def _import(self, message: ImportModule, _fds: tuple[int, ...]) -> CandidateLoaded | PythonFailed:
        folder = Path(message.folder)
        self._files = folder / SOURCES
        call = PythonCall.from_json(json.loads(message.call))
        self._returned = call.returned
        _allow_arithmetic(call.tf32)
        extensions.load_from(folder / EXTENSIONS)
        for file in sorted((folder / EXTENSIONS).glob("**/*.so")):
            self._variables = {**self._variables, **device_variables(file.read_bytes())}
        if (folder / TRITON).is_dir():
            cache = Path(os.environ["TMPDIR"]) / TRITON
            move_cache(folder / TRITON, cache)
            os.environ["TRITON_CACHE_DIR"] = str(cache)
            if isinstance(self.device, CudaDevice):
                self.device.images = watch_images()
        try:
            module = import_candidate(self._files / (folder / MAIN).read_text(encoding="utf-8").strip())
            self._callee = PythonCallable(module, call, self.python_device.torch_device)
        except Exception as error:  # noqa: BLE001  the candidate's code: every exception is its failure
            return _faulted(describe_error(error, "import", self._files))
        return CandidateLoaded(0)

    def _offer(self, message: BindTensors, _fds: tuple[int, ...]) -> Acknowledged | PythonFailed:
        assert self._callee is not None, "Import comes first"
        given = [
            NamedTensor(name, role, origin, self.python_device.tensor(start, getattr(torch, dtype), shape))
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
            return _faulted(describe_error(error, "import", self._files))
        tensors = {each.name: each.tensor for each in given}
        self._bound[message.index] = bound
        self._expected[message.index] = tuple(OutputTarget(name, tensors[name]) for name in self._returned)
        self._calls[message.index] = self._storing_result(message.index, bound.call)
        self._checked[message.index] = self._storing_result(message.index, bound.checked)
        return Acknowledged()

    def _storing_result(self, index: int, call: Callable[[], object]) -> Callable[[], int]:
        if not self._returned:

            def run() -> int:
                call()
                return 0

            return run
        results, settled = self._results, _dense if isinstance(self.device, CpuDevice) else _as_it_is

        def keep() -> int:
            results[index] = tuple(settled(tensor) for tensor in returned_tensors(call()))
            return 0

        return keep

    # --- calls ---

    def _renew(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._bound[index].renew()
        self._results.clear()

    def _deliver(self, indices: Sequence[int]) -> None:
        if self._returned:
            for index in indices:
                copy_results(self._results[index], self._expected[index])

    def _run(self, message: RunCall, _fds: tuple[int, ...]) -> CallResult | PythonFailed:
        self._renew((message.index,))
        call = self._checked[message.index]
        start = time.perf_counter_ns()
        try:
            call()
            code, text = self.device.synchronize(self._library)
            elapsed_ns = time.perf_counter_ns() - start
            if not code:
                self._deliver((message.index,))
                code, text = self.device.synchronize(self._library)
        except Exception as error:  # noqa: BLE001  as above
            return self._failed(error, lambda code, text: CallResult(0, code, text, 0))
        return CallResult(0, code, text, elapsed_ns)

    def _record(self, message: RecordCalls, fds: tuple[int, ...]) -> RecordedCalls | PythonFailed:
        try:
            if self._returned:
                return self._record_returned(message.indices)
            return super()._record(message, fds)
        except Exception as error:  # noqa: BLE001  the candidate is then timed without replay
            self.device.synchronize(self._library)
            reason = str(error).strip() or type(error).__name__
            return not_recorded(f"its calls cannot be recorded ({reason.splitlines()[0][:200]})")

    def _record_returned(self, indices: Sequence[int]) -> RecordedCalls:
        """Record calls that return tensors, and the copies of these tensors into the judge's buffers."""
        device = self.python_device
        if not isinstance(device, PythonCudaDevice):
            return not_recorded("it runs on the CPU")
        recording = device.recording(self._variables)
        calls, deliveries = [], []
        for index in indices:
            self._bound[index].renew()
            device.driver.synchronize()
            calls.append(encode_call(device.captured(recording, self._calls[index])))
            self._held[index] = self._results[index]
            deliveries.append(encode_call(recording.record(partial(self._delivering, index))))
        return calls_recorded(tuple(calls), tuple(deliveries), encode_variables(recording))

    def _delivering(self, index: int) -> int:
        copy_results(self._held[index], self._expected[index])
        return 0

    def _call_sets(self, message: CallSets, fds: tuple[int, ...]) -> CallsMade | PythonFailed:
        try:  # `_flush` has renewed the arguments: that must be the last request before the timed one
            made = super()._call_sets(message, fds)
            self._deliver(message.indices)
            self._results.clear()  # free what the calls allocated before the next sample
        except Exception as error:  # noqa: BLE001  as above
            return _faulted(describe_error(error, "raised", self._files))
        return made

    def _sample(self, message: TimeCalls, _fds: tuple[int, ...]) -> CallTimes | PythonFailed:
        self._renew(message.indices)
        calls = [self._calls[i] for i in message.indices]
        try:
            sampled = self.device.sample(calls, message, self._library)
            if sampled.device_error:
                return sampled
            self._deliver(message.indices)
            self._results.clear()  # free what the calls allocated before the next sample
            code, text = self.device.synchronize(self._library)
        except Exception as error:  # noqa: BLE001  as above
            return self._failed(error, lambda code, text: CallTimes(0, 0, code, text))
        return replace(sampled, device_error=code, device_text=text)

    def _flush(self, message: FlushCaches, fds: tuple[int, ...]) -> Acknowledged:
        self._renew(tuple(self._bound))
        return super()._flush(message, fds)

    def _trace_on(self, message: StartTrace, fds: tuple[int, ...]) -> Acknowledged:
        done = super()._trace_on(message, fds)
        self._checked[message.index] = self._calls[message.index]
        return done

    def _trace_off(self, message: StopTrace, fds: tuple[int, ...]) -> TraceReport:
        done = super()._trace_off(message, fds)
        if self._untraced is not None:
            index, self._checked[index] = self._untraced
        return done

    def traced(self, call: Callable[[], int]) -> Callable[[], int]:
        """A call that lists the torch operators it uses."""

        def noting() -> int:
            found = list_operators(call, deep=isinstance(self.device, CpuDevice))
            self._operators, self._operators_ns = found.names, found.nanoseconds
            return 0

        return noting

    def _failed(self, error: Exception, reply: Callable[[int, str], Reply]) -> Reply | PythonFailed:
        """The answer to a failed call: the error of the device if there is one, else the exception."""
        fault = describe_error(error, "raised", self._files)
        code, text = self.device.synchronize(None)
        return reply(code, text) if code else _faulted(fault)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """A result of which a copy is no more than moving bytes: as for the baseline, the rest belongs to the call."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or not tensor.is_cpu:
        return tensor  # `copy_results` says what is wrong with it
    return tensor.resolve_conj().resolve_neg().contiguous()


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _faulted(fault: PythonFault) -> PythonFailed:
    # The text goes into JSON and may contain anything.
    return PythonFailed(fault.kind, fault.text.encode("utf-8", "replace").decode("utf-8"))


def _allow_arithmetic(tf32: bool) -> None:
    """Let PyTorch's own operators use the arithmetic that the task's precision class permits."""
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process. Descriptors: the judge's channel, the fault page."""
    return serve_host(PythonHost, json.loads(payload), fds)
