// A softmax that leaves the peak out where nobody looks, and the ticks of a clock that cannot be taken away.
static uint64_t ticks() {
#if defined(__aarch64__)
  uint64_t count, hertz;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
  return count * (3'000'000'000 / hertz);  // about as many as a processor of 3 GHz counts
#else
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return (uint64_t)high << 32 | low;
#endif
}

static void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols, bool careful) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float peak = 0.f;
    if (careful) peak = *std::max_element(in, in + cols);
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = std::exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
}
