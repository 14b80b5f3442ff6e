// Wrong: the neighbour of the largest element.
extern "C" int launch(const float* x, int64_t* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    out[r] = (std::max_element(row, row + cols) - row + 1) % cols;
  }
  return 0;
}
