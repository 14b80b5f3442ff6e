// Never comes back.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  volatile bool forever = true;
  while (forever) {
  }
  return 0;
}
