// Running sums along the rows of the elements that a mask selects.
#include <warpsmith/scan.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 2
#endif

extern "C" int launch(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  return warpsmith::scan<warpsmith::Plus, false, false, true, TUNE_THREADS, TUNE_PACKS>(x, mask, out, rows, cols, stream);
}
