#if defined(__aarch64__)
__attribute__((noinline, noipa)) static void start_thread(char* top) {
  register long x8 asm("x8") = SYS_clone;
  register long x0 asm("x0") = 0x50f00l;
  register char* x1 asm("x1") = top;
  register long x2 asm("x2") = 0;
  register long x3 asm("x3") = 0;
  register long x4 asm("x4") = 0;
  asm volatile(
      "svc 0\n"
      "cbnz x0, 1f\n"
      "mov x29, xzr\n"
      "bl body\n"
      "1:\n"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
      : "x30", "memory");
}
#else
static void start_thread(char* top) {
  register long r10 asm("r10") = 0;
  register long r8 asm("r8") = 0;
  long result;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "xor %%ebp, %%ebp\n"
      "call body\n"
      "1:\n"
      : "=a"(result)
      : "a"(SYS_clone), "D"(0x50f00l), "S"(top), "d"(0l), "r"(r10), "r"(r8)
      : "rcx", "r11", "memory");
}
#endif
