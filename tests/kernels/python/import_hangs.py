"""Never gets to the load_inline that it was going to call."""

import torch
from torch import nn

while torch.get_num_threads() > 0:
    pass


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x
