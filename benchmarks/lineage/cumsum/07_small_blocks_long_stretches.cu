// thought: Both: 128 threads with four packs each.
#include <warpsmith/scan.cuh>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  return warpsmith::scan<warpsmith::Plus, false, false, false, 128, 4>(x, nullptr, out, rows, cols, stream);
}
