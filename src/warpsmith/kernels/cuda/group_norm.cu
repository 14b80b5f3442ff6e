// Group normalisation of images. A group is read once, or again from the second-level cache.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

#ifndef TUNE_CLUSTER
#define TUNE_CLUSTER 65536  // groups of so many elements are kept in the registers of a cluster of blocks
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 2
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 3
#endif

namespace {
using Policy = warpsmith::GroupNorm<warpsmith::Same, true>;
}

extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t height,
                                   int64_t width) {
  return warpsmith::lagged_workspace<Policy>(batch * groups, channels / groups * height * width, TUNE_THREADS, TUNE_PACKS);
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto g = warpsmith::group_norm_policy<warpsmith::Same, true>(x, weight, bias, out, eps, groups, channels,
                                                                     height * width);
  if (channels / groups * height * width <= TUNE_CLUSTER)
    return warpsmith::reduce_rows(g, batch * groups, channels / groups * height * width, stream);
  return warpsmith::launch_lagged<Policy, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(
      g, batch * groups, channels / groups * height * width, workspace, stream);
}
