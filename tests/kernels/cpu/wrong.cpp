// Wrong: divides by the number of columns instead of the sum.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = std::exp(x[i]) / static_cast<float>(cols);
  return 0;
}
