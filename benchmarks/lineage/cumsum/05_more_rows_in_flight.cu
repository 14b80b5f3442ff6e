// thought: Fewer threads per block, so that more rows are in flight on a multiprocessor.
#include <warpsmith/scan.cuh>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  return warpsmith::scan<warpsmith::Plus, false, false, false, 256, 2>(x, nullptr, out, rows, cols, stream);
}
