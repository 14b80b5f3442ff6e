// Softmax as a torch extension, the way such sources are published. To judge it:
//   warpsmith evaluate examples/tasks/softmax.py examples/kernels/softmax_extension.cpp --entry 'softmax_forward(x, 1)'
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

torch::Tensor softmax_forward(const torch::Tensor& x, int64_t dim) {
  TORCH_CHECK(x.dim() == 2 && dim == 1, "softmax_forward takes a matrix and its last dimension");
  auto out = torch::empty_like(x);
  const int64_t rows = x.size(0), cols = x.size(1);
  const float* in = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = in + r * cols;
    float* target = to + r * cols;
    const float peak = *std::max_element(row, row + cols);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) {
      target[c] = std::exp(row[c] - peak);
      sum += target[c];
    }
    const float scale = 1.0f / sum;
    for (int64_t c = 0; c < cols; ++c) target[c] *= scale;
  }
  return out;
}
