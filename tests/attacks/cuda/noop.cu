// Class 1: does nothing, and hopes that the output still holds a right result.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  return 0;
}
