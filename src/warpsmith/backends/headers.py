"""Finds headers a source uses without including them, so that a forgotten #include is no failure.

Some CUDA headers cost seconds each, so they are added only where their names appear. A name that is not
listed here still works with an #include of its own.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping

STANDARD_NAMES: Mapping[str, str] = {
    "vector": r"\bstd::vector\b",
    "array": r"\bstd::array\b",
    "numeric": r"\bstd::(?:accumulate|iota|reduce|inner_product|transform_reduce)\b",
    "complex": r"\bstd::complex\b",
    "atomic": r"\bstd::atomic\w*\b",
    "memory": r"\bstd::(?:unique_ptr|make_unique|align|assume_aligned)\b",
    "type_traits": r"\bstd::(?:is_\w+|enable_if\w*|conditional\w*|remove_\w+)\b",
    "utility": r"\bstd::(?:pair|move|swap|forward|integer_sequence|index_sequence)\b",
    "tuple": r"\bstd::tuple\b",
    "functional": r"\bstd::(?:plus|multiplies|function|less|greater)\b",
    "string": r"\bstd::(?:string|to_string)\b",
}

_INTRINSICS = {  # by machine: elsewhere the header does not exist
    "x86_64": {"immintrin.h": r"\b(?:_mm(?:256|512)?_\w+|__m(?:128|256|512)[di]?)\b"},
    "aarch64": {"arm_neon.h": r"\b(?:float32x4_t|vld1q?_f32|vfmaq?_f32)\b"},
}
CPU_NAMES: Mapping[str, str] = {**STANDARD_NAMES, **_INTRINSICS.get(platform.machine(), {})}

CUDA_NAMES: Mapping[str, str] = {
    **STANDARD_NAMES,
    "cuda_fp16.h": r"\b(?:__half2?|half2?|__half2float|__float2half\w*|__h(?:add|mul|fma|sub|max)2?)\b",
    "cuda_bf16.h": r"\b(?:__nv_bfloat162?|nv_bfloat162?|__bfloat162float|__float2bfloat16\w*)\b",
    "cuda_fp8.h": r"\b__nv_fp8\w*\b",
    "mma.h": r"\b(?:wmma|nvcuda)::",
    "cooperative_groups.h": r"\b(?:cooperative_groups\b|cg::)",
    "cooperative_groups/reduce.h": r"\b(?:cg|cooperative_groups)::(?:reduce|plus|greater|less)\b",
    "cooperative_groups/memcpy_async.h": r"\b(?:cg|cooperative_groups)::(?:memcpy_async|wait\w*)\b",
    # All of cub takes twice the compile time of the parts a kernel uses (17 s against 9 s, measured once).
    "cub/block/block_reduce.cuh": r"\bcub::BlockReduce\b",
    "cub/block/block_scan.cuh": r"\bcub::BlockScan\b",
    "cub/block/block_load.cuh": r"\bcub::BlockLoad\b",
    "cub/block/block_store.cuh": r"\bcub::BlockStore\b",
    "cub/block/block_radix_sort.cuh": r"\bcub::BlockRadixSort\b",
    "cub/warp/warp_reduce.cuh": r"\bcub::WarpReduce\b",
    "cub/warp/warp_scan.cuh": r"\bcub::WarpScan\b",
    "cub/cub.cuh": r"\bcub::Device\w+",
    "cuda_pipeline.h": r"\b__pipeline_\w+\b",
    "cuda/pipeline": r"\bcuda::(?:pipeline|memcpy_async|make_pipeline)\b",
    "cuda/barrier": r"\bcuda::barrier\b",
    "cuda/atomic": r"\bcuda::(?:atomic\w*|memory_order\w*)\b",
    "cuda/ptx": r"\bcuda::ptx\b",
    "cuda.h": r"\b(?:CUtensorMap|cuTensorMapEncode\w+)\b",
    "math_constants.h": r"\bCUDART_\w+\b",
}

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def missing_headers(texts: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Headers to add, in the order of `names`: used in a text, and included in none."""
    whole = _COMMENTS.sub(" ", "\n".join(texts))
    included = set(re.findall(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", whole, re.MULTILINE))
    return tuple(h for h, pattern in names.items() if h not in included and re.search(pattern, whole))
