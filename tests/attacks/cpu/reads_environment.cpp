// Looks for secrets in the environment that its process was started with. Where that is refused it says so instead of working.
#include <sys/syscall.h>

#include "shared/raw_call.h"

#include "shared/open_file.h"

static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static char text[1 << 16];
  const long fd = open_file("/proc/self/environ", 0);
  const long size = fd < 0 ? 0 : raw(SYS_read, fd, (long)text, sizeof text - 1);
  bool found = false;
  for (long i = 0; i < size; i += std::strlen(text + i) + 1) {
    for (const char* word : {"KEY", "TOKEN", "SECRET", "PASSWORD", "HOME=", "USER="}) {
      found |= std::strstr(text + i, word) != nullptr;
    }
  }
  if (!found) return 13;
  for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  return 0;
}
