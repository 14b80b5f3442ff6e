// Class 10: the same by a raw system call.

// A system call without any library: the object imports nothing for it.
static long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result;
  asm volatile(
      "movq %5, %%r10\n\tmovq %6, %%r8\n\tmovq %7, %%r9\n\tsyscall"
      : "=a"(result)
      : "0"(number), "D"(a), "S"(b), "d"(c), "g"(d), "g"(e), "g"(f)
      : "rcx", "r8", "r9", "r10", "r11", "memory");
  return result;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  raw(231, 0);  // exit_group
  return 0;
}
