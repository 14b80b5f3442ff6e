// All threads share every row: they meet at barriers, and add up under a lock and in an atomic.
#include <atomic>
#include <mutex>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::mutex lock;
  std::atomic<int64_t> next{0};
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* to = out + r * cols;
    float peak = -INFINITY;
    double sum = 0.0;
    next = 0;
#pragma omp parallel
    {
      float own_peak = -INFINITY;
#pragma omp for
      for (int64_t c = 0; c < cols; ++c) own_peak = std::max(own_peak, in[c]);
      {
        const std::lock_guard<std::mutex> held(lock);
        peak = std::max(peak, own_peak);
      }
#pragma omp barrier
      double own_sum = 0.0;
      for (int64_t c; (c = next++) < cols;) own_sum += to[c] = std::exp(in[c] - peak);
#pragma omp critical
      sum += own_sum;
#pragma omp barrier
#pragma omp for
      for (int64_t c = 0; c < cols; ++c) to[c] = static_cast<float>(to[c] / sum);
    }
  }
  return 0;
}
