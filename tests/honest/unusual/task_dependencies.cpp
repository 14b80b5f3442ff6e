// Three OpenMP tasks for every row, each of which waits for the one before it.
#include <vector>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::vector<float> peaks(static_cast<size_t>(rows)), sums(static_cast<size_t>(rows));
#pragma omp parallel
#pragma omp single
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float *to = out + r * cols, *peak = &peaks[static_cast<size_t>(r)], *sum = &sums[static_cast<size_t>(r)];
#pragma omp task depend(out : peak[0])
    *peak = *std::max_element(in, in + cols);
#pragma omp task depend(in : peak[0]) depend(out : sum[0])
    {
      *sum = 0.f;
      for (int64_t c = 0; c < cols; ++c) *sum += to[c] = std::exp(in[c] - *peak);
    }
#pragma omp task depend(in : sum[0])
    for (int64_t c = 0; c < cols; ++c) to[c] /= *sum;
  }
  return 0;
}
