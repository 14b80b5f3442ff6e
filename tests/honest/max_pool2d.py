"""Max pooling with windows of 3 x 3, two apart, padded by one: the result's extents are derived ones."""

import torch

from warpsmith import normal, task


@task(
    x=normal("planes, height, width"),
    workloads=[
        {"planes": 32, "height": 112, "width": 112},
        {"planes": 7, "height": 61, "width": 127},
    ],
    precision="fp32",
)
def max_pool2d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
