// Work from a timer's signal, asked of the kernel itself.
struct KernelAction {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

extern "C" void leave();
#if defined(__aarch64__)
asm("leave: mov x8, 139\n svc 0\n");  // rt_sigreturn
#else
asm("leave: mov $15, %eax\n syscall\n");  // rt_sigreturn
#endif

static void on_alarm(void (*work)(int, siginfo_t*, void*), const itimerval& when) {
  const KernelAction action = {work, 0x14000004ul, leave, 0};  // SA_RESTORER | SA_RESTART | SA_SIGINFO
  raw(SYS_rt_sigaction, SIGALRM, (long)&action, 0, 8);
  raw(SYS_setitimer, ITIMER_REAL, (long)&when, 0);
}
