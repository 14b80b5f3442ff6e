"""Lists the CUDA calls and kernels of a call, by CUPTI's callbacks, inside the candidate's process.

Standard library only. Like everything from that process, the list is a claim: it catches candidates that do not
tamper with it. CUPTI stays attached after the first start, so nothing is timed afterwards.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_uint, c_uint32, c_void_p
from typing import Any

_DRIVER, _RUNTIME = 1, 2  # domains of callbacks
_ENTER = 0
_MOST_CHARS = 300_000  # of all names together: they must fit into one reply
_TOO_MANY = "more names than fit into one reply"
_LEGACY, _PER_THREAD = 1, 2  # the handles of predefined streams

# The offset of the stream in the arguments of a launch, or in the configuration that they point to.
_STREAM_AT = {
    "cuLaunchKernel": 40,
    "cuLaunchCooperativeKernel": 40,
    "cudaLaunchKernel": 48,
    "cudaLaunchCooperativeKernel": 48,
}
_CONFIGURED = frozenset(("cuLaunchKernelEx", "cudaLaunchKernelExC"))
_STREAM_IN_CONFIGURATION = 32
_VARIANT = re.compile(r"(?:_ptsz)?(?:_v\d+)?(?:_ptsz)?$")


class _Data(ctypes.Structure):
    """CUpti_CallbackData."""

    _fields_ = [
        ("site", c_uint),
        ("function", c_char_p),
        ("parameters", c_void_p),
        ("returned", c_void_p),
        ("symbol", c_char_p),  # valid in launches only
        ("context", c_void_p),
        ("context_id", c_uint32),
        ("correlation", c_void_p),
        ("correlation_id", c_uint32),
    ]


_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_uint, c_uint, POINTER(_Data))


class CudaCallTracer:
    """Collects the calls and kernels of functions wrapped by `traced`, between `start` and `stop`."""

    def __init__(self, path: str, stream: int = 0) -> None:
        """Load libcupti, while files can still be read; `path` is "" if the judge found none.

        Launches on `stream`, which the candidate is given, and on the legacy stream, which waits for it, are allowed.
        """
        self.calls: dict[str, None] = {}  # names in the order of first use
        self.kernels: dict[str, None] = {}
        self.elsewhere: dict[str, None] = {}  # kernels launched on other streams
        self._streams = (0, _LEGACY, stream)
        self.problem = ""
        self._room = _MOST_CHARS
        self._recording = False
        self._runtime_depth: dict[int, int] = {}  # by thread: nested calls of the CUDA runtime
        self._subscriber = c_void_p()
        self._callback = _CALLBACK(self._on_call)  # kept alive: CUPTI holds only its address
        self._library: Any = None
        try:
            self._library = ctypes.CDLL(path) if path else None
        except OSError as error:
            self.problem = str(error)
        if not path:
            self.problem = "libcupti was not found"

    def start(self) -> None:
        """Subscribe; if CUPTI refuses, `problem` says why."""
        if self._library is None:
            return
        self._check("cuptiSubscribe", byref(self._subscriber), self._callback, None)
        for domain in (_DRIVER, _RUNTIME):
            self._check("cuptiEnableDomain", c_uint32(1), self._subscriber, c_uint(domain))

    def stop(self) -> None:
        """Unsubscribe."""
        if self._library is not None and self._subscriber:
            self._check("cuptiUnsubscribe", self._subscriber)

    def traced(self, call: Callable[[], int]) -> Callable[[], int]:
        """The same call, traced."""

        def recorded() -> int:
            self._recording = True
            try:
                return call()
            finally:
                self._recording = False

        return recorded

    def _check(self, name: str, *arguments: object) -> None:
        if self.problem:
            return
        code = int(getattr(self._library, name)(*arguments))
        if code:
            text = c_char_p()
            self._library.cuptiGetResultString(c_uint(code), byref(text))
            self.problem = f"{name}: {(text.value or b'unknown error').decode(errors='replace')}"

    def _on_call(self, _user: object, domain: int, _number: int, data: Any) -> None:
        """CUPTI calls this before and after every driver and runtime call, in the caller's thread."""
        seen = data.contents
        thread = threading.get_ident()
        depth = self._runtime_depth.get(thread, 0)
        if domain == _RUNTIME:
            self._runtime_depth[thread] = depth + (1 if seen.site == _ENTER else -1)
        if not self._recording or seen.site != _ENTER:
            return
        name = (seen.function or b"").decode(errors="replace")
        if domain == _RUNTIME or depth == 0:  # driver calls inside the runtime are not the candidate's
            self._note(self.calls, name)
        if _launches(name):
            kernel = (seen.symbol or b"").decode(errors="replace")
            self._note(self.kernels, kernel)
            if _stream_of(name, seen.parameters or 0) not in self._streams:
                self._note(self.elsewhere, kernel)

    def _note(self, names: dict[str, None], name: str) -> None:
        if name in names or not name:
            return
        self._room -= len(name)
        if self._room < 0:
            self.problem = _TOO_MANY
        else:
            names[name] = None


def _launches(name: str) -> bool:
    """True if a call launches a kernel whose name CUPTI gives."""
    plain = name.lstrip("_")
    return plain.startswith(("cuLaunch", "cudaLaunch")) and "HostFunc" not in plain and "MultiDevice" not in plain


def _stream_of(name: str, parameters: int) -> int:
    """The stream of a launch; 0 if the layout of its arguments is not known."""
    plain = _VARIANT.sub("", name)
    if not parameters or (plain not in _STREAM_AT and plain not in _CONFIGURED):
        return 0
    if plain in _CONFIGURED:
        configuration = c_void_p.from_address(parameters).value
        if not configuration:
            return 0
        stream = c_void_p.from_address(configuration + _STREAM_IN_CONFIGURATION).value
    else:
        stream = c_void_p.from_address(parameters + _STREAM_AT[plain]).value
    return stream or (_PER_THREAD if "_ptsz" in name else 0)
