// Every channel of every image brought to mean zero and variance one; long rows as in kept.cuh, but the next row is reduced
// while one is written.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

#ifndef TUNE_BEHIND
#define TUNE_BEHIND 2  // chunks between what is written of a row and what is reduced of the next
#endif

namespace {
using namespace warpsmith;
using Policy = GroupNorm<Same, false>;

// (mixed.cuh)

}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return rows_workspace<Policy>(batch * channels, height * width);
}
extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const auto g = group_norm_policy<Same, false>(x, nullptr, nullptr, out, eps, channels, channels, height * width);
  const int64_t rows = batch * channels, cols = height * width;
  if (cols > TUNE_CLUSTER && cols <= longest_kept(8, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_mixed<Policy, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(g, rows, cols, stream);
  return reduce_any_rows(g, rows, cols, workspace, stream);
}
