"""The operators that the model of `replies.jsonl` was asked for."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 20}])
def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@task(x=normal("rows, cols"), workloads=[{"rows": 512, "cols": 1024}])
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@task(x=normal("rows, cols"), workloads=[{"rows": 512, "cols": 1024}])
def row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=-1)


@task(a=normal("n"), b=normal("n"), workloads=[{"n": 1 << 20}])
def mse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(a, b)


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 192, "n": 160, "k": 128}])
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@task(x=normal("rows, cols"), gamma=normal("cols"), beta=normal("cols"), workloads=[{"rows": 512, "cols": 1024}])
def layer_norm(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta)
