// Right, and so slow that timing it would take minutes.
#include <unistd.h>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  usleep(150000);
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * cols;
    float largest = in[0], sum = 0;
    for (int64_t i = 1; i < cols; ++i) largest = std::max(largest, in[i]);
    for (int64_t i = 0; i < cols; ++i) sum += std::exp(in[i] - largest);
    for (int64_t i = 0; i < cols; ++i) out[row * cols + i] = std::exp(in[i] - largest) / sum;
  }
  return 0;
}
