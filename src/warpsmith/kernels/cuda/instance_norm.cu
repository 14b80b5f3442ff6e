// Every channel of every image brought to mean zero and variance one.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

namespace {
using Policy = warpsmith::GroupNorm<warpsmith::Same, false>;
}

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return warpsmith::rows_workspace<Policy>(batch * channels, height * width);
}
extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const auto g = warpsmith::group_norm_policy<warpsmith::Same, false>(x, nullptr, nullptr, out, eps, channels, channels,
                                                                      height * width);
  return warpsmith::reduce_any_rows(g, batch * channels, height * width, workspace, stream);
}
