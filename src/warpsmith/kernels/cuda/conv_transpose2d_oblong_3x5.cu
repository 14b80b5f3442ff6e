// A transposed 3 x 5 convolution of images twice as wide as high.
#include <warpsmith/convolution.cuh>

namespace {
using namespace warpsmith::conv;
constexpr int kColumns = 64;  // of a tile: output channels times phases of the last axis
constexpr int kRows = 3;  // times 64 pixels of a warpgroup
Form form_of(int64_t batch, int64_t height, int64_t width) {
  return make_form(batch, 1, task::x_dim1, task::weight_dim1, {1, int(height), int(width)}, {1, task::weight_dim2, task::weight_dim3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, true);
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t height, int64_t width, int64_t, int64_t) { return workspace_of(best_plan(form_of(batch, height, width), kColumns, kRows)); }

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width, int64_t, int64_t, void* workspace, void* stream) {
  return launch_convolution<kColumns, 1, kRows>(form_of(batch, height, width), x, weight, nullptr, out, workspace, static_cast<cudaStream_t>(stream));
}
