// One query at a time: its scores in a buffer of the thread, their softmax, then the weighted sum of the values.
constexpr int64_t WIDTH = task::q_dim2;

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t queries,
                      int64_t keys, void* workspace, void* stream) {
#pragma omp parallel
  {
    std::vector<float> scores(keys);
#pragma omp for collapse(2) schedule(static)
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        const float* query = q + (h * queries + i) * WIDTH;
        float peak = -INFINITY, sum = 0.f;
        for (int64_t j = 0; j < keys; ++j) {
          const float* key = k + (h * keys + j) * WIDTH;
          float dot = 0.f;
#pragma omp simd reduction(+ : dot)
          for (int64_t d = 0; d < WIDTH; ++d) dot += query[d] * key[d];
          scores[j] = dot * 0.125f;
          peak = std::max(peak, scores[j]);
        }
        for (float& s : scores) sum += s = std::exp(s - peak);
        alignas(64) float row[WIDTH] = {};
        for (int64_t j = 0; j < keys; ++j) {
          const float* value = v + (h * keys + j) * WIDTH;
#pragma omp simd
          for (int64_t d = 0; d < WIDTH; ++d) row[d] += scores[j] * value[d];
        }
        float* result = out + (h * queries + i) * WIDTH;
        for (int64_t d = 0; d < WIDTH; ++d) result[d] = row[d] / sum;
      }
    }
  }
  return 0;
}
