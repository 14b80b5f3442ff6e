"""Honest: a product in C++, compiled as an extension."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>

extern "C" void product(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    float* row = out + i * n;
    for (int64_t j = 0; j < n; ++j) row[j] = 0;
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t j = 0; j < n; ++j) row[j] += a[i * k + l] * b[l * n + j];
    }
  }
}
"""

LIBRARY = ctypes.CDLL(
    load_inline(
        name="own_product",
        cpp_sources=SOURCE,
        extra_cflags=["-O3"],
        is_python_module=False,
        no_implicit_headers=True,
    )
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1])
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, out))
        LIBRARY.product(*pointers, *map(ctypes.c_int64, (*a.shape, b.shape[1])))
        return out
