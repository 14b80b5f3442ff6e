"""Lists the torch operators of a Python call by name, and tensors that are handed to NumPy.

Runs inside the candidate's process, so it catches candidates that do not tamper with it. Three tools see different
things: the dispatch mode sees the operators that remain of composite ones, the profiler sees operators that hide from
the mode, in all threads, and the interpreter's profile hook sees tensors that leave torch. An operator that moves data
must be PyTorch's own: registrations are compared with those from before the candidate was imported. None of the tools
sees code of a library that is called directly: the judge looks at the process from outside (`executed_code`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.evaluator.guards.library_names import MOVING_OPERATORS, QUICK_OPERATORS, REDEFINED, operator

_QUICK_US = 5.0
_QUIET_CALLS = 2  # with the profiler alone; the fastest call tells how long operators take
_LARGE = 1024  # elements; a handful of numbers may be computed anywhere
_LEAVING = frozenset(("numpy", "__dlpack__", "to_dlpack"))  # methods of a tensor
_COMING = frozenset(("from_numpy", "frombuffer", "_from_dlpack"))  # functions of torch
_ADDED_LATER = ("Meta", "Python", "FuncTorch", "Functionalize", "PreDispatch")  # keys of the dispatcher
_watch_interpreter = sys.setprofile  # as it was before the candidate was imported


@dataclass(frozen=True)
class Operators:
    """The operators of one call."""

    names: tuple[str, ...]  # e.g. "aten.mm.default", "aten::mm"
    nanoseconds: int  # for which the thread of the call was inside of them; 0 if it was not measured


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import dynamo: that takes seconds and creates a CUDA context

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found.setdefault(str(func))
        return func(*args, **(kwargs or {}))


def list_operators(call: Callable[[], object], *, deep: bool = False) -> Operators:
    """The operators of one call; `deep` uses all three tools: on the CPU there is no CUPTI."""
    redefined = {f"{REDEFINED}.{name}": None for name, found in registrations().items() if _KNOWN.get(name) != found}
    if not deep:
        with _Names() as names:
            call()
        return Operators((*names.found, *redefined), 0)
    borrowed: dict[str, None] = {}

    def watch(_frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in _LEAVING:
            owner = getattr(argument, "__self__", None)
            if isinstance(owner, torch.Tensor) and owner.numel() >= _LARGE:
                borrowed.setdefault(f"numpy.{argument.__name__}")
        elif event == "c_call" and argument.__name__ in _COMING:
            borrowed.setdefault(f"numpy.{argument.__name__}")

    quiet = [_events(call) for _ in range(_QUIET_CALLS)]
    with _profiled() as seen:  # the last call: its result is the one that is checked
        with _Names() as names:
            _watch_interpreter(watch)
            try:
                call()
            finally:
                _watch_interpreter(None)
    calls = [*quiet, _operator_events(seen)]
    inside_us = min(map(_inside_us, calls))
    outer = [e for events in calls for e in events if all(operator(a.name)[1] in MOVING_OPERATORS for a in _above(e))]
    found = {**names.found, **dict.fromkeys(e.name for e in outer), **borrowed, **redefined}
    return Operators(tuple(found), round(1e3 * inside_us))


def _events(call: Callable[[], object]) -> list[Any]:
    with _profiled() as seen:
        call()
    return _operator_events(seen)


def _operator_events(seen: profile) -> list[Any]:
    named = [e for e in seen.function_events or () if "::" in e.name and not e.name.startswith("[")]
    return [e for e in named if not e.is_user_annotation]


def _inside_us(events: list[Any]) -> float:
    """How long operators took that no other operator called; a short time for those that touch no element."""
    outer = [(operator(e.name)[1] in QUICK_OPERATORS, e.cpu_time_total) for e in events if not any(_above(e))]
    return float(sum(min(taken_us, _QUICK_US) if quick else taken_us for quick, taken_us in outer))


def _profiled() -> profile:
    """The profiler for all threads, where this PyTorch has it."""
    try:
        return profile(experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True))
    except TypeError:
        return profile()


def _above(event: Any) -> Iterator[Any]:
    """The operators of PyTorch inside of which an event lies; a section that is merely named like one is none."""
    above = event.cpu_parent
    while above is not None:
        if above.name.startswith("aten::") and not above.is_user_annotation:
            yield above
        above = above.cpu_parent


def registrations() -> Mapping[str, str]:
    """What PyTorch's operators for moving data call, on each kind of device, as the dispatcher describes it."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if operator(name)[1] in MOVING_OPERATORS]
    return {name: _kernels(torch._C._dispatch_dump(name)) for name in names if operator(name)[0] == "aten"}


def _kernels(described: str) -> str:
    """The lines about kernels that compute; parts of PyTorch that are imported later add others."""
    return "\n".join(line for line in described.splitlines() if not line.startswith(_ADDED_LATER))


_KNOWN = registrations()  # before the candidate was imported
