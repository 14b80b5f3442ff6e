// A kernel whose assertion fails.
#include <cassert>

__global__ void check(int64_t rows) { assert(rows < 0); }

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  check<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(rows);
  return static_cast<int>(cudaGetLastError());
}
