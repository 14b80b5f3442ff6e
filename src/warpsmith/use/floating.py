"""The calling thread's floating-point mode: rounding, flush-to-zero, traps.

A kernel may set what suits it, and a library built for fast mathematics sets flush-to-zero when it is loaded. What the
caller computes afterwards must not depend on it: whoever runs foreign code keeps the mode before, and puts it back.
Without `fegetenv` and `fesetenv` in the C library both do nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Mode: Any = ctypes.c_uint64 * 16
"""Room for one mode: more than the `fenv_t` of any machine takes."""


def _functions() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    for name in (None, "libm.so.6"):
        with suppress(OSError, AttributeError):
            library = ctypes.PyDLL(name)  # it keeps the GIL: neither function waits
            get, put = library.fegetenv, library.fesetenv
            get.restype = put.restype = None
            return get, put
    return _nothing, _nothing


def _nothing(_mode: Any) -> None:
    pass


keep, put_back = _functions()
