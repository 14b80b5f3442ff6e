// Both halves of a head in one pass.
constexpr int64_t HALF = task::cosine_dim1;

extern "C" int launch(const float* x, const float* cosine, const float* sine, float* out, int64_t positions,
                      int64_t heads, void* workspace, void* stream) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t h = 0; h < heads; ++h) {
      const float *in = x + (p * heads + h) * 2 * HALF, *c = cosine + p * HALF, *s = sine + p * HALF;
      float* result = out + (p * heads + h) * 2 * HALF;
#pragma omp simd
      for (int64_t i = 0; i < HALF; ++i) {
        const float first = in[i], second = in[HALF + i];
        result[i] = first * c[i] - second * s[i];
        result[HALF + i] = second * c[i] + first * s[i];
      }
    }
  }
  return 0;
}
