// Right, but it counts with an int that overflows, which C++ does not define.
static volatile int kept;
extern "C" int launch(const float* x, float* out, int64_t n, void*, void*) {
  int mixed = 1;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = x[i] > 0.0f ? x[i] : 0.0f;
    mixed = mixed * 31 + static_cast<int>(i);
  }
  kept = mixed;
  return 0;
}
