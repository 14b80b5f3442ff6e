// thought: A block walks along a row: warps scan stretches of their own, one barrier per chunk; the next chunk is on its way.
#include <warpsmith/scan.cuh>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  return warpsmith::scan<warpsmith::Plus, false, false, false, 512, 2>(x, nullptr, out, rows, cols, stream);
}
