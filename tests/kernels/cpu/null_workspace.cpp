// Uses a workspace that it never asks for.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  float* sums = static_cast<float*>(workspace);
  for (int64_t row = 0; row < rows; ++row) sums[row] = x[row * cols];
  return 0;
}
