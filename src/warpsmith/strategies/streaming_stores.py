"""Advice and a template's switch: write results past the cache."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="streaming-stores",
    title="Write results past the cache",
    backends=("cuda",),
    zones=("memory",),
    families=("elementwise", "row_reduction"),
    advice=(
        "Store results that the kernel does not read again with __stcs (evict first), so that they do not "
        "push inputs out of the cache."
    ),
    effect=(
        "A few per cent where inputs are read more than once or the working set is near the size of the L2 "
        "cache. None or a little loss where the next kernel would have found the result in L2."
    ),
    example="""\
__stcs(reinterpret_cast<float4*>(out) + i, v);
""",
)
