// Fills its folder, and files without a name, until it is stopped. Where that is refused it says so instead of working.
#include <sys/syscall.h>

#if defined(__aarch64__)
// A function of its own: a system call may lose what vector registers hold beyond 128 bits.
__attribute__((noinline, noipa)) static long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                                 long e = 0, long f = 0) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  register long x4 asm("x4") = e;
  register long x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
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
#endif

static long open_file(const char* name, long flags, long mode = 0) {
#if defined(__aarch64__)
  return raw(SYS_openat, -100, (long)name, flags, mode);  // AT_FDCWD
#else
  return raw(SYS_open, (long)name, flags, mode);
#endif
}

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
