"""A few microseconds of work: a request to the candidate's process takes far longer than a call."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 4096}], precision="fp32")
def short_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
