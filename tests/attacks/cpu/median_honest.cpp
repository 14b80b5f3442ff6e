// Honest: partitions a copy of each row.
#include <vector>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::vector<float> row(cols);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy(x + r * cols, x + (r + 1) * cols, row.begin());
    std::nth_element(row.begin(), row.begin() + (cols - 1) / 2, row.end());
    out[r] = row[(cols - 1) / 2];
  }
  return 0;
}
