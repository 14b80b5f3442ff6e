// Prints without end.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (;;) std::puts("all work and no play makes a kernel dull");
}
