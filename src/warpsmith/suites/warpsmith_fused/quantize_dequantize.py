"""Every row as 8-bit codes under a scale that is a power of two, and what these codes stand for."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="fused",
    tags=["rows"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 300}],
    held_out=[{"rows": 61, "cols": 1001}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 4096, "cols": 4096}, {"rows": 16_384, "cols": 1024}, {"rows": 256, "cols": 32_768}],
    precision="fp32",
    returns="codes, y",
)
def quantize_dequantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    _, exponent = torch.frexp(x.abs().amax(dim=-1, keepdim=True))
    scale = torch.ldexp(torch.ones_like(x[:, :1]), exponent - 7)  # exact, so that no code hangs on a rounding error
    codes = torch.clamp(torch.round(x / scale), -127, 127)
    return codes.to(torch.int8), codes * scale
