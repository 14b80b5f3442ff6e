// Takes memory until there is none left.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t step = 0;; ++step) {
    char* block = static_cast<char*>(std::malloc(32 << 20));
    std::memset(block, 1, 32 << 20);
    out[step % (rows * cols)] = block[step];
  }
}
