// A transposed convolution of long series, five taps three apart.
#include <warpsmith/convolution_stream.cuh>

namespace {
using namespace warpsmith::conv;
constexpr int kColumns = 64, kRows = 2;  // output channels; 64 pixels each of a warpgroup's tile
Form form_of(int64_t batch, int64_t length) {
  return make_form(batch, 1, task::x_dim1, task::weight_dim1, {1, 1, int(length)}, {1, 1, task::weight_dim2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 3}, true);
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t length, int64_t) { return stream_workspace(make_stream_plan(form_of(batch, length), kColumns, kRows)); }

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t length, int64_t, void* workspace, void* stream) {
  return launch_stream<kColumns, 1, kRows, 256>(form_of(batch, length), x, weight, nullptr, out, workspace, static_cast<cudaStream_t>(stream));
}
