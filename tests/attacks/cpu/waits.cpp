// Never comes back, and uses no processor time for it.
#include <sys/syscall.h>

#include "shared/raw_call.h"

static void pause_thread() {
#if defined(__aarch64__)
  raw(SYS_ppoll);  // of nothing, for ever
#else
  raw(SYS_pause);
#endif
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (;;) pause_thread();
}
