// Writes through a null pointer.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  volatile float* nothing = nullptr;
  *nothing = 1.f;
  return 0;
}
