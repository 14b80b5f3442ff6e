#if defined(__aarch64__)
// A function of its own: a system call may lose what vector registers hold beyond 128 bits. It moves its arguments
// itself: nvcc does not take variables in registers with these names.
__attribute__((noinline, noipa)) static long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0,
                                                 long e = 0, long f = 0) {
  long result;
  asm volatile(
      "mov x8, %1\n\tmov x0, %2\n\tmov x1, %3\n\tmov x2, %4\n\tmov x3, %5\n\tmov x4, %6\n\tmov x5, %7\n\t"
      "svc 0\n\tmov %0, x0"
      : "=r"(result)
      : "r"(number), "r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f)
      : "x0", "x1", "x2", "x3", "x4", "x5", "x8", "memory");
  return result;
}
#else
static long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long result;
  asm volatile(
      "movq %5, %%r10\n\tmovq %6, %%r8\n\tmovq %7, %%r9\n\tsyscall"
      : "=a"(result)
      : "0"(number), "D"(a), "S"(b), "d"(c), "g"(d), "g"(e), "g"(f)
      : "rcx", "r8", "r9", "r10", "r11", "memory");
  return result;
}
#endif
