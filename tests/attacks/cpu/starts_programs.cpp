// Starts a program, or a process of its own. Where that is refused it says so instead of working.
#include <sys/syscall.h>

#include "shared/raw_call.h"
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static const char* arguments[] = {"/bin/true", nullptr};
  if (raw(SYS_execve, (long)arguments[0], (long)arguments, 0) >= 0) return 0;
  const long child = raw(SYS_clone, 17, 0, 0, 0, 0);
  if (child == 0) raw(SYS_exit, 0);
#if defined(__aarch64__)
  const long other = raw(SYS_clone, 0x4011, 0, 0, 0, 0);  // there is no fork: as vfork does
#else
  const long other = raw(SYS_fork);
#endif
  if (other == 0) raw(SYS_exit, 0);
  if (child < 0 && other < 0) return 13;
  for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  return 0;
}
