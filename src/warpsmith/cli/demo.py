"""`warpsmith demo`: judge the packaged softmax kernels on this machine, to see what a verdict looks like.

One kernel is plain, one is fast, one is wrong in a way that a careless check would miss.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.cli import evaluate, render
from warpsmith.core.errors import ToolMissing
from warpsmith.hardware.device import gpus

_KERNELS = {
    "cuda": ("softmax_simple.cu", "softmax_block.cu", "softmax_hasty.cu"),
    "cpu": ("softmax_simple.cpp", "softmax_vector.cpp", "softmax_hasty.cpp"),
}


def run(*, as_json: bool) -> int:
    """Judge them; 0 when the outcome is what it must be: two right, one wrong."""
    kind = "cuda" if gpus() and backend_named("cuda").available().build else "cpu"
    backend = backend_named(kind).available()
    if not backend.build:
        raise ToolMissing(f"{backend.detail}.")
    folder = Path(str(files("warpsmith.examples")))
    kernels = tuple(str(folder / name) for name in _KERNELS[kind])
    if not as_json:
        console = render.console(stderr=True)
        console.print(f"Judging {len(kernels)} softmax kernels against PyTorch on this machine ({kind}).")
    status = evaluate.run(evaluate.Request(str(folder / "softmax.py"), kernels, as_json=as_json, fresh=True))
    if not as_json:
        console.print(
            "\nThe hasty kernel never subtracts the row's maximum: right on most inputs, and found out on large ones."
            f"\nTry it yourself: warpsmith contract {folder / 'softmax.py'}"
        )
    return 0 if status == 1 else 2
