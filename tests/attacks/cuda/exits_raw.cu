// Class 10: the same by a raw system call.

// A system call without any library: the object imports nothing for it.
#include "shared/raw_call.cuh"

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#if defined(__aarch64__)
  raw(94, 0);  // exit_group
#else
  raw(231, 0);  // exit_group
#endif
  return 0;
}
