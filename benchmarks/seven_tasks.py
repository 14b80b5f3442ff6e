"""Seven operators at the sizes of today's models: the record of `optimize` with the catalogue is made on these."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 8192}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@task(x=normal("rows, cols"), weight=normal("cols"), bias=normal("cols"), workloads=[{"rows": 8192, "cols": 4096}])
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


@task(x=normal("rows, cols"), weight=normal("cols"), workloads=[{"rows": 8192, "cols": 4096}])
def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


@task(x=normal("rows, cols"), workloads=[{"rows": 8192, "cols": 8192}])
def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


@task(x=normal("rows, cols"), workloads=[{"rows": 16384, "cols": 4096}])
def sum_rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=-1)


@task(prediction=normal("rows, cols"), target=normal("rows, cols"), workloads=[{"rows": 8192, "cols": 4096}])
def mse_loss(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(prediction, target)


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 4096, "n": 4096, "k": 4096}], precision="fp32")
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
