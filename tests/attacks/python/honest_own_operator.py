"""Honest: a kernel of its own, registered as an operator of its own, which also clones as PyTorch does."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float* to = out + r * cols;
    const float peak = *std::max_element(row, row + cols);
    double sum = 0.0;
    for (int64_t c = 0; c < cols; ++c) sum += to[c] = std::exp(row[c] - peak);
    for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<float>(to[c] / sum);
  }
}
"""

LIBRARY = ctypes.CDLL(
    load_inline(
        name="registered_softmax",
        cpp_sources=SOURCE,
        extra_cflags=["-O3"],
        is_python_module=False,
        no_implicit_headers=True,
    )
)


def _softmax(x, out):
    rows, cols = (ctypes.c_int64(size) for size in x.shape)
    LIBRARY.softmax(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), rows, cols)
    return out


_LIBRARY = torch.library.Library("honest_kernels", "DEF")
_LIBRARY.define("softmax(Tensor x) -> Tensor")
_LIBRARY.impl("softmax", lambda x: _softmax(x.clone(), torch.empty_like(x)), "CPU")


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.honest_kernels.softmax(x)
