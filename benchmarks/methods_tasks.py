"""Twelve operators of the suites at sizes of which many judges fit on one GPU: for `methods_record.py`.

Each tensor has 64 MiB at most, more than a GPU's cache holds, except for the products, whose work is arithmetic. One
workload each: `methods_start/` has a plain kernel to start from, one thread for each result. Tasks are finished in this
order, so the first ones differ most.
"""

import torch

from warpsmith import normal, task
from warpsmith.tasks.listing import listed

F = torch.nn.functional


@listed(family="activation", tags=["elementwise", "memory"])
@task(x=normal("n", std=2), workloads=[{"n": 16_777_216}], precision="fp32")
def gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x)


@listed(family="matmul", tags=["product", "compute"])
@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 1024, "n": 1024, "k": 1024}], precision="fp32")
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@listed(family="normalisation", tags=["rows", "memory"])
@task(x=normal("rows, cols"), weight=normal("cols"), workloads=[{"rows": 8192, "cols": 2048}], precision="fp32")
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


@listed(family="convolution", tags=["direct", "2d", "depthwise"])
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("64, 1, 3, 3", std=0.33),
    workloads=[{"batch": 4, "height": 256, "width": 256}],
    precision="fp32",
)
def depthwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight, groups=64)


@listed(family="reduction", tags=["columns", "memory"])
@task(x=normal("batch, rows, cols"), workloads=[{"batch": 16, "rows": 1024, "cols": 1024}], precision="fp32")
def sum_columns(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=1)


@listed(family="loss", tags=["scalar-result", "memory"])
@task(predictions=normal("n"), targets=normal("n"), workloads=[{"n": 16_777_216}], precision="fp32")
def huber_loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.smooth_l1_loss(predictions, targets)


@listed(family="attention", tags=["product", "rows"])
@task(
    q=normal("heads, length, 64"),
    k=normal("heads, length, 64"),
    v=normal("heads, length, 64"),
    workloads=[{"heads": 32, "length": 512}],
    precision="fp32",
)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


@listed(family="scan", tags=["rows", "memory"])
@task(x=normal("rows, cols"), workloads=[{"rows": 8192, "cols": 2048}], precision="fp32")
def cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(dim=1)


@listed(family="pooling", tags=["window", "memory"])
@task(x=normal("rows, length"), workloads=[{"rows": 2048, "length": 8192}], precision="fp32")
def avg_pool(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool1d(x, kernel_size=8, stride=4)


@listed(family="normalisation", tags=["rows", "memory"])
@task(x=normal("rows, cols"), workloads=[{"rows": 8192, "cols": 2048}], precision="fp32")
def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, dim=-1)


@listed(family="fused", tags=["elementwise", "memory"])
@task(x=normal("rows, cols"), bias=normal("cols"), workloads=[{"rows": 8192, "cols": 2048}], precision="fp32")
def bias_silu_scale(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.silu(x + bias) * 0.5


@listed(family="reduction", tags=["rows", "memory"])
@task(x=normal("rows, cols"), workloads=[{"rows": 8192, "cols": 2048}], precision="fp32")
def max_rows(x: torch.Tensor) -> torch.Tensor:
    return x.max(dim=1).values
