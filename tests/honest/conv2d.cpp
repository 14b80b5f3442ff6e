// One line of the result at a time: 72 shifted lines of the input, each with one weight, added up in the cache.
constexpr int64_t IN = task::x_dim1, OUT = task::weight_dim0;

static void add_shifted(float* line, const float* in, float w, int64_t shift, int64_t width) {
  const int64_t begin = std::max<int64_t>(0, -shift), end = std::min(width, width - shift);
#pragma omp simd
  for (int64_t c = begin; c < end; ++c) line[c] += w * in[c + shift];
}

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t batch, int64_t height,
                      int64_t width, void* workspace, void* stream) {
#pragma omp parallel for collapse(3) schedule(static)
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t o = 0; o < OUT; ++o) {
      for (int64_t r = 0; r < height; ++r) {
        float* line = out + ((b * OUT + o) * height + r) * width;
        std::fill(line, line + width, bias[o]);
        for (int64_t i = 0; i < IN; ++i) {
          for (int64_t dr = -1; dr <= 1; ++dr) {
            if (r + dr < 0 || r + dr >= height) continue;
            const float* in = x + ((b * IN + i) * height + r + dr) * width;
            const float* w = weight + ((o * IN + i) * 3 + dr + 1) * 3;
            for (int64_t dc = -1; dc <= 1; ++dc) add_shifted(line, in, w[dc + 1], dc, width);
          }
        }
      }
    }
  }
  return 0;
}
