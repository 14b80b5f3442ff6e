"""Advice and a template's switch: finish in the same launch with an atomic ticket."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="atomic-reduction",
    title="Finish in the same launch with an atomic ticket",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("full_reduction",),
    advice=(
        "Let every block write its partial result, pass a memory fence and take a ticket with atomicAdd; the "
        "block that takes the last ticket combines all partial results. Clear the ticket with cudaMemsetAsync "
        "before the launch."
    ),
    effect=(
        "Saves the second launch: it counts for small inputs. The order of combination stays fixed, so that "
        "results do not vary from run to run."
    ),
    example="""\
__threadfence();
if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
""",
    excludes=("two-stage-reduction",),
)
