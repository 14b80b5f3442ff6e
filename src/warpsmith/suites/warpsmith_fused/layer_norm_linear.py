"""Layer normalisation, a linear layer with bias, and GELU: a layer with its epilogue."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="fused",
    tags=["rows", "product"],
    precisions=["fp32", "tf32", "bf16"],
    small=[{"name": "small", "rows": 48, "cols": 128, "width": 96}],
    held_out=[{"rows": 33, "cols": 127, "width": 65}],
)
@task(
    x=normal("rows, cols"),
    gain=normal("cols", mean=1, std=0.1),
    shift=normal("cols", std=0.1),
    weight=normal("width, cols", std=0.03),
    bias=normal("width", std=0.1),
    eps=scalar(1e-5),
    workloads=[
        {"rows": 4096, "cols": 1024, "width": 4096},
        {"rows": 8192, "cols": 768, "width": 3072},
        {"rows": 256, "cols": 4096, "width": 4096},
    ],
    precision="fp32",
)
def layer_norm_linear(
    x: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    normed = torch.nn.functional.layer_norm(x, gain.shape, gain, shift, eps)
    return torch.nn.functional.gelu(torch.nn.functional.linear(normed, weight, bias))
