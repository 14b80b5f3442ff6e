// relu(x W^T + b): x is 64 x 128, W 96 x 128.
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, void* workspace,
                      void* stream) {
  constexpr int64_t inner = task::x_dim1, wide = task::out_dim1;
  for (int64_t r = 0; r < task::x_dim0; ++r) {
    for (int64_t c = 0; c < wide; ++c) {
      float sum = 0.f;
      for (int64_t i = 0; i < inner; ++i) sum += x[r * inner + i] * weight[c * inner + i];
      out[r * wide + c] = std::max(sum + bias[c], 0.f);
    }
  }
  return 0;
}
