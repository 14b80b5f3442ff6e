// A row is one copy.
extern "C" int launch(const float* table, const int64_t* picks, float* out, int64_t entries, int64_t width,
                      int64_t count, void* workspace, void* stream) {
#pragma omp parallel for schedule(static) if (count * width > 16384)
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * width, table + picks[i] * width, static_cast<size_t>(width) * sizeof(float));
  }
  return 0;
}
