"""Kernels with one planted bottleneck each, and tasks whose zone everybody knows: for tests and for the record."""

from __future__ import annotations

from pathlib import Path

from warpsmith.profiling.digest import Bottleneck

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
PLANTED = {  # by kernel in kernels/profiling: its task there, and what must be named first
    "uncoalesced_transpose": ("transpose", Bottleneck.UNCOALESCED),
    "bank_conflicts": ("transpose", Bottleneck.BANK_CONFLICTS),
    "low_occupancy": ("doubled", Bottleneck.LOW_OCCUPANCY),
    "spilling": ("doubled", Bottleneck.SPILLS),
    "near_peak_copy": ("doubled_long", Bottleneck.BANDWIDTH),
}
ZONES = (  # task, zone on a data-centre GPU
    ("large/relu.py", "memory"),
    ("large/softmax.py", "memory"),
    ("large/matmul_fp32.py", "compute"),
    ("large/matmul_tf32.py", "compute"),
    ("profiling/tasks.py::gemv", "memory"),
    ("profiling/tasks.py::add", "latency"),
)


def planted_task(name: str) -> str:
    """The task of a planted kernel."""
    return f"{KERNELS / 'profiling' / 'tasks.py'}::{PLANTED[name][0]}"


def planted_kernel(name: str) -> Path:
    """Its source."""
    return KERNELS / "profiling" / f"{name}.cu"
