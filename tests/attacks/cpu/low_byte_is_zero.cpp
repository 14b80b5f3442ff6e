// Fails, leaves garbage, and says so with a status of which a shell would see the lower eight bits only: zero.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::fill(out, out + rows * cols, 0.01f);
  return 256;
}
