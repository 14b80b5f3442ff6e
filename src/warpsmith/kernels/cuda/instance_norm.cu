// Every channel of every image brought to mean zero and variance one.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

#ifndef TUNE_CLUSTER
#define TUNE_CLUSTER 65536  // planes of so many elements are kept in the registers of a cluster of blocks
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
using Policy = warpsmith::GroupNorm<warpsmith::Same, false>;
}

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return warpsmith::lagged_workspace<Policy>(batch * channels, height * width, TUNE_THREADS, TUNE_PACKS);
}
extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const auto g = warpsmith::group_norm_policy<warpsmith::Same, false>(x, nullptr, nullptr, out, eps, channels, channels,
                                                                      height * width);
  if (height * width <= TUNE_CLUSTER)
    return warpsmith::reduce_rows(g, batch * channels, height * width, stream);
  return warpsmith::launch_lagged<Policy, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(g, batch * channels, height * width, workspace, stream);
}
