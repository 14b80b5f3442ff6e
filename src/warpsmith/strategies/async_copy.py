"""Advice and a template's switch: copy to shared memory asynchronously."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="async-copy",
    title="Copy to shared memory asynchronously",
    backends=("cuda",),
    zones=("compute", "middle", "memory"),
    families=("matmul",),
    advice=(
        "Copy tiles from global to shared memory with cp.async (__pipeline_memcpy_async) while the tile "
        "before is being used: commit each stage, wait for the oldest only."
    ),
    effect=(
        "Frees the registers that a double buffer needs and keeps more bytes in flight. Slower than a double buffer "
        "where a tile has to be transposed, 4 bytes at a time. Needs compute capability 8.0, and 4, 8 or 16 bytes per "
        "copy."
    ),
    example="""\
__pipeline_memcpy_async(&As[next][i], &a[j], 4);
__pipeline_commit();
__pipeline_wait_prior(0);
__syncthreads();
""",
    needs=("shared-tile",),
    excludes=("double-buffer",),
)
