// Fills its folder, and files without a name, until it is stopped. Where that is refused it says so instead of working.
#include <sys/syscall.h>

#include "shared/raw_call.h"

#include "shared/open_file.h"

static char block[1 << 16];

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  int64_t written = 0;
  for (int i = 0; i < 100 || written > 0; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "filler-%d", i);
    const long named = open_file(name, 0101, 0600), nameless = raw(SYS_memfd_create, (long)name, 0);
    for (int part = 0; part < 8; ++part) {
      written += std::max(0l, raw(SYS_write, named, (long)block, sizeof block));
      written += std::max(0l, raw(SYS_write, nameless, (long)block, sizeof block));
    }
    raw(SYS_close, named);
  }
  return 13;
}
