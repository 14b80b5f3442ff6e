"""The options that a form writes mean to the device library what they mean to PyTorch: its plain sum, on the host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.collection.test_forms import described
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.forms import form_kernel

CASES = (  # extents of input and weights, the operation
    ("16, 7, 9", "12, 16, 3, 3", "F.conv2d(x, weight, stride=2, padding=1)"),
    ("16, 7, 9", "12, 8, 3, 2", "F.conv2d(x, weight, stride=(1, 2), padding=(2, 0), dilation=(2, 1), groups=2)"),
    ("16, 9", "16, 5, 4", "F.conv_transpose1d(x, weight, stride=4, padding=1, output_padding=2)"),
    (
        "16, 6, 7",
        "16, 3, 3, 2",
        "F.conv_transpose2d(x, weight, stride=(2, 3), padding=(1, 0), dilation=(1, 2), groups=4)",
    ),
    ("16, 4, 5, 6", "16, 3, 2, 3, 2", "F.conv_transpose3d(x, weight, stride=(1, 2, 9), dilation=(2, 1, 1))"),
    ("16, 4, 5, 6", "10, 16, 2, 3, 1", "F.conv3d(x, weight, stride=(1, 2, 1), padding=(1, 0, 0))"),
    ("16, 3, 7, 9", "16, 1, 3, 3, 3", "F.conv3d(x, weight, stride=2, groups=16)"),
    ("16, 11", "20, 16, 3", "F.conv1d(x, weight, dilation=3, stride=2, padding=4)"),
)
PROGRAM = """
#include <warpsmith/convolution.cuh>
#include <cstdio>
#include <string>
#include <vector>
using namespace warpsmith::conv;

static std::vector<float> read(std::string name, int64_t count) {
  std::vector<float> found(count);
  FILE* file = fopen(name.c_str(), "rb");
  if (!file || fread(found.data(), 4, count, file) != size_t(count)) exit(1);
  return found;
}
static void run(Form f, std::string name) {
  const auto x = read(name + ".x", int64_t(f.images) * f.groups * f.ci * f.in_volume());
  const auto w = read(name + ".w", int64_t(f.groups) * f.ci * f.co * f.taps());
  FILE* file = fopen((name + ".out").c_str(), "wb");
  for (int image = 0; image < f.images; ++image)
    for (int channel = 0; channel < f.groups * f.co; ++channel)
      for (int pixel = 0; pixel < f.out_volume(); ++pixel) {
        const int d = pixel / f.out[2] / f.out[1], h = pixel / f.out[2] % f.out[1];
        const float sum = direct_sum(f, x.data(), w.data(), image, channel, d, h, pixel % f.out[2]);
        fwrite(&sum, 4, 1, file);
      }
  fclose(file);
}
"""


@pytest.mark.nvcc
def test_options_mean_what_they_mean_to_pytorch(tmp_path: Path) -> None:
    functions, calls, expected = [], [], []
    for number, (extents, filters, result) in enumerate(CASES):
        tensors = f'x=normal("b, {extents}"); weight=normal("{filters}")'
        task, contract, recorded = described(tmp_path, tensors, '{"b": 3}', result)
        written = form_kernel(task, contract, recorded)
        assert written is not None
        found = re.search(r"Form form_of\((.*?)\) {\n  return (make_form\(.*?\));", written.source)
        assert found is not None, written.source
        functions.append(f"static Form form{number}({found[1]}) {{ return {found[2]}; }}")
        sizes = ", ".join(str(task.workloads[0].sizes[each.source]) for each in contract.size_arguments)
        calls.append(f'run(form{number}({sizes}), "{number}");')
        x, weight = (torch.randn([int(n) for n in dims.split(",")]) for dims in (f"3, {extents}", filters))
        x.numpy().tofile(tmp_path / f"{number}.x")
        weight.numpy().tofile(tmp_path / f"{number}.w")
        expected.append(eval(result, {"F": F, "x": x, "weight": weight}))
    source = "\n".join([PROGRAM, *functions, "int main() {", *calls, "}"])
    (tmp_path / "options.cu").write_text(source)
    flags = ["-std=c++17", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{LIBRARY}"]
    subprocess.run(["nvcc", *flags, "options.cu", "-o", "options"], cwd=tmp_path, check=True, capture_output=True)

    subprocess.run([tmp_path / "options"], cwd=tmp_path, check=True)

    for number, values in enumerate(expected):
        got = torch.from_numpy(np.fromfile(tmp_path / f"{number}.out", np.float32))
        assert torch.allclose(got, values.flatten(), atol=1e-4, rtol=1e-4), CASES[number]
