// Group normalisation of images. A group is kept on the chip between its statistics and its normalisation.
#include <warpsmith/group_norm.cuh>
#include <warpsmith/team.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 1024
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 1
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 3
#endif
#ifndef TUNE_TEAM
#define TUNE_TEAM 1
#endif

namespace {
using Policy = warpsmith::GroupNorm<warpsmith::Same, true>;
}

extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t height,
                                   int64_t width) {
  return warpsmith::team_workspace<Policy>(batch * groups, channels / groups * height * width, TUNE_THREADS,
                                           TUNE_RESIDENT, TUNE_SLOTS, TUNE_TEAM);
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto g = warpsmith::group_norm_policy<warpsmith::Same, true>(x, weight, bias, out, eps, groups, channels,
                                                                     height * width);
  return warpsmith::team_rows<Policy, TUNE_THREADS, TUNE_RESIDENT, TUNE_SLOTS>(
      g, batch * groups, channels / groups * height * width, TUNE_TEAM, workspace, stream);
}
