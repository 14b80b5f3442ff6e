// A 3 x 3 filter for every channel, then a mixture of all channels at every pixel.
#include <warpsmith/convolution_stream.cuh>

namespace {
using namespace warpsmith::conv;
constexpr int kColumns = task::pointwise_dim0, kRows = 1;
Form form_of(int64_t batch, int64_t height, int64_t width) { return make_form(batch, 1, task::x_dim1, kColumns, {1, int(height), int(width)}, {1, 1, 1}); }
}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t height, int64_t width) {
  const Form f = form_of(batch, height, width);
  return separable_workspace(f, make_stream_plan(f, kColumns, kRows));
}

extern "C" int launch(const float* x, const float* depthwise, const float* pointwise, float* out, int64_t batch, int64_t height, int64_t width, void* workspace, void* stream) {
  return launch_separable<kColumns, kRows, 256>(form_of(batch, height, width), x, depthwise, pointwise, out, workspace, static_cast<cudaStream_t>(stream));
}
