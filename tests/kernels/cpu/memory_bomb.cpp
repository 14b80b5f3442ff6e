// Takes and touches memory without end.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (;;) {
    char* block = static_cast<char*>(std::malloc(64 << 20));
    if (block == nullptr) std::abort();
    std::memset(block, 1, 64 << 20);
  }
}
