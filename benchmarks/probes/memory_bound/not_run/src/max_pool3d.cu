// max_pool3d: windows of 3 x 3 x 3, two steps apart, padding of one, dilation 3.
#include <warpsmith/pool.cuh>

#ifndef TUNE_WARPS
#define TUNE_WARPS 8
#endif
#ifndef TUNE_BLOCKS
#define TUNE_BLOCKS 4
#endif

extern "C" int launch(const float* x, float* out, int64_t batch, int64_t channels, int64_t depth, int64_t height,
                      int64_t width, int64_t out_dim2, int64_t out_dim3, int64_t out_dim4, void* workspace,
                      void* stream) {
  return warpsmith::pool3<warpsmith::MaxPool, 3, TUNE_WARPS, TUNE_BLOCKS>(x, out, batch * channels, depth, height, width, out_dim2,
                                                            out_dim3, out_dim4, stream);
}
