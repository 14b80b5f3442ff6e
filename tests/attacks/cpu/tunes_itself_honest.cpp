// Honest: times two ways of doing the whole work in its first calls, and keeps to the faster.
static uint64_t ticks() {
#if defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
#endif
}
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

static uint64_t spent[2] = {0, 0};
static int calls = 0;

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const int way = calls < 6 ? calls % 2 : spent[1] < spent[0];
  const uint64_t start = ticks();
  if (way == 0) {
    for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  } else {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  }
  spent[way] += calls++ < 6 ? ticks() - start : 0;
  return 0;
}
