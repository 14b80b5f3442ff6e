// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)): one exponential, and nothing cancels.
template <typename Function>
static void each(const float* x, float* out, int64_t n, Function f) {
#pragma omp parallel for simd schedule(static) if (n > 4096)
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  each(x, out, rows * cols, [](float v) {
    const float u = 0.7978845608f * (v + 0.044715f * v * v * v);
    return v / (1.f + std::exp(-2.f * u));
  });
  return 0;
}
