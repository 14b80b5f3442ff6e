// Group normalisation of images, then SiLU. Groups lie in the shared memory of a cluster of blocks, which go from group to
// group: while one is written, the next one comes in.
#include <warpsmith/group_norm.cuh>
#include <warpsmith/kept.cuh>

#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 512
#endif
#ifndef TUNE_KEPT_PACKS
#define TUNE_KEPT_PACKS 2
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 13  // chunks of TUNE_KEPT_THREADS * TUNE_KEPT_PACKS packs that a block keeps
#endif
#ifndef TUNE_SHORT
#define TUNE_SHORT 16384  // shorter rows are kept in registers
#endif

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const int64_t rows = batch * groups, cols = channels / groups * height * width;
  const auto g = warpsmith::group_norm_policy<warpsmith::Silu, true>(x, weight, bias, out, eps, groups, channels,
                                                                     height * width);
  if (cols >= TUNE_SHORT && cols <= warpsmith::longest_kept(16, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return warpsmith::launch_kept<decltype(g), TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(g, rows, cols, stream);
  return warpsmith::reduce_rows(g, rows, cols, stream);
}
