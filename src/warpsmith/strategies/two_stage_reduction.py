"""Advice and a template's switch: partial results first, then one small second stage."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="two-stage-reduction",
    title="Partial results first, then one small second stage",
    backends=("cuda", "cpu"),
    zones=("memory", "latency"),
    families=("full_reduction",),
    advice=(
        "Let every block (or thread) reduce its own part and write one partial result to the workspace; a "
        "second kernel of one block (or a short loop) combines them in a fixed order."
    ),
    effect=(
        "Needed to use the whole device for a result of one number. Deterministic, and more accurate than one "
        "long sum. The second launch costs a few microseconds."
    ),
    example="""\
partial<<<blocks, THREADS, 0, stream>>>(x, scratch, n);
finish<<<1, THREADS, 0, stream>>>(scratch, blocks, out);
""",
    parameters=(Parameter("block", ("4096", "16384", "1024", "65536")),),
    excludes=("atomic-reduction",),
)
