"""What a GPU architecture offers a kernel, in a sentence or two: figures of NVIDIA's programming guide, for prompts.

Devices that are not listed get no sentence; nothing here is measured (`hardware.peaks`) or decides anything.
"""

from __future__ import annotations

import re

_COMMON = "Warps of 32 threads, at most 1024 threads a block and 255 registers a thread."
_FACTS = {
    (7, 0): "96 KiB of shared memory a block at most; tensor cores for fp16.",
    (7, 5): "64 KiB of shared memory a block at most; tensor cores for fp16 and int8.",
    (8, 0): "163 KiB of shared memory a block at most; tensor cores for fp16, bf16, TF32 and fp64; cp.async.",
    (8, 6): "99 KiB of shared memory a block at most; tensor cores for fp16, bf16 and TF32; cp.async.",
    (8, 7): "163 KiB of shared memory a block at most; tensor cores for fp16, bf16 and TF32; cp.async.",
    (8, 9): "99 KiB of shared memory a block at most; tensor cores for fp16, bf16, TF32 and fp8; cp.async.",
    (9, 0): "227 KiB of shared memory a block at most; tensor cores for fp16, bf16, TF32 and fp8 (wgmma) and "
    "for fp64; cp.async, TMA bulk copies with mbarriers, thread block clusters with distributed shared memory.",
    (10, 0): "227 KiB of shared memory a block at most; tensor cores (tcgen05, tensor memory) for fp16, bf16, TF32, "
    "fp8, fp6 and fp4; TMA bulk copies, thread block clusters.",
    (12, 0): "99 KiB of shared memory a block at most; tensor cores for fp16, bf16, TF32, fp8, fp6 and fp4; cp.async, "
    "TMA bulk copies.",
}


def facts(arch: str) -> str:
    """For "sm_90a" what such a GPU can do; "" for what is not known."""
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch)
    known = _FACTS.get((int(found[1]), int(found[2]))) if found else None
    return f"{_COMMON} {known}" if known else ""
