// The same passes, vectorised: reductions that may be reordered, and an exponential without a library call.

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("prefer-vector-width=512")  // g++ keeps to 256 bits by itself
#endif

// exp(x) for x <= 0, to about one unit in the last place: 2^n * e^r with |r| <= ln(2) / 2.
static inline float exponential(float x) {
  const float clamped = x > -87.3f ? x : -87.3f;
  const float n = __builtin_rintf(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23);
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * cols;
    float* result = out + row * cols;
    float largest = in[0];
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < cols; ++i) largest = in[i] > largest ? in[i] : largest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < cols; ++i) {
      const float e = exponential(in[i] - largest);
      result[i] = e;
      sum += e;
    }
    const float scale = 1.0f / sum;
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) result[i] *= scale;
  }
  return 0;
}
