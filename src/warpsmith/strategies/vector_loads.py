"""Advice and a template's switch: load and store several elements per instruction."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="vector-loads",
    title="Load and store several elements per instruction",
    backends=("cuda",),
    zones=("memory", "latency", "middle"),
    families=("elementwise", "row_reduction", "full_reduction", "matmul"),
    advice=(
        "Let each thread load and store 16 bytes at once: four floats as a float4, eight halves as a uint4. "
        "Reinterpret the pointer as a pointer to an aligned struct, and make sure that the row length is a "
        "multiple of the width and the pointer aligned; choose a scalar version of the kernel at launch where "
        "it is not."
    ),
    effect=(
        "Fewer instructions per byte and more bytes in flight: often the step from two thirds of the memory "
        "bandwidth to nine tenths. No gain where the kernel is bound by arithmetic or the access is strided."
    ),
    example="""\
const float4 v = reinterpret_cast<const float4*>(x)[i];
out4[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
""",
    parameters=(Parameter("width", ("4", "2", "8")),),
)
