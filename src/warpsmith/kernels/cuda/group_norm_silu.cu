// Group normalisation of images, then SiLU.
#include <warpsmith/group_norm.cuh>

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  auto g = warpsmith::group_norm_policy<warpsmith::Silu, true>(x, weight, bias, out, eps, groups, channels,
                                                                     height * width);
#ifdef TUNE_THREADS
  return warpsmith::launch_rows<decltype(g), TUNE_THREADS, TUNE_PACKS, TUNE_RESIDENT>(
      g, batch * groups, channels / groups * height * width, TUNE_BLOCKS, stream);
#else
  return warpsmith::reduce_rows(g, batch * groups, channels / groups * height * width, stream);
#endif
}
