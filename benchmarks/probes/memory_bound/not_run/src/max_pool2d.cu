// Max pooling of images: windows of 4 x 4, one step apart, padding of one.
#include <warpsmith/pool.cuh>

#ifndef TUNE_WARPS
#define TUNE_WARPS 4
#endif
#ifndef TUNE_STRIP
#define TUNE_STRIP 64
#endif
#ifndef TUNE_ROWS
#define TUNE_ROWS 4
#endif

extern "C" int launch(const float* x, float* out, int64_t batch, int64_t channels, int64_t height, int64_t width,
                      int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
  return warpsmith::pool2<warpsmith::MaxPool, 4, 1, TUNE_WARPS, TUNE_STRIP, TUNE_ROWS>(x, out, batch * channels, height, width, out_dim2,
                                                                  out_dim3, stream);
}
