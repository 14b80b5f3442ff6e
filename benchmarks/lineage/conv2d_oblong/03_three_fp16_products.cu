// thought: Tensor cores: input and filters in two fp16 halves, three products, no matrix is written out (implicit GEMM). One tap at a time, 64 pixels for each warpgroup.
#include <warpsmith/convolution.cuh>

namespace {
using namespace warpsmith::conv;
constexpr int kColumns = 64, kRows = 1;
const Tuning kTuning = {192, 1, 0};
Form form_of(int64_t batch, int64_t height, int64_t width) {
  return make_form(batch, 1, 64, 128, {1, int(height), int(width)}, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, false, {0, 0, 0});
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t height, int64_t width, int64_t out_dim2, int64_t out_dim3) {
  return workspace_of(best_plan(form_of(batch, height, width), kColumns, kRows, kTuning));
}

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width,
                      int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
  return launch_convolution<kColumns, 1, kRows>(form_of(batch, height, width), x, weight, nullptr, out, workspace,
                                                static_cast<cudaStream_t>(stream), Identity(), kTuning);
}
