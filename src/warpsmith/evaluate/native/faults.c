/* Says where a candidate's process died: signal, code, address, and whether it was a write.
 *
 * Loaded into the candidate's process before the candidate. It writes one record to a shared page that
 * only helps to word the reason; a candidate that replaces the handler only spoils its own diagnosis. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

typedef struct {
  int64_t signal_number;
  int64_t signal_code;
  uint64_t address;
  int64_t is_write; /* 1 write, 0 read, -1 not known */
} record_t;

static record_t *record;
static char alternate_stack[65536];

static void report(int number, siginfo_t *info, void *context) {
  if (record && record->signal_number == 0) {
    record->signal_code = info->si_code;
    record->address = (uint64_t)(uintptr_t)info->si_addr;
    record->is_write = -1;
#if defined(__x86_64__)
    if (number == SIGSEGV || number == SIGBUS)
      record->is_write = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1) & 1;
#endif
    record->signal_number = number;
  }
  signal(number, SIG_DFL);
  raise(number);
}

int warpsmith_report_faults(void *page) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  record = (record_t *)page;
  stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
  sigaltstack(&stack, NULL);
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    struct sigaction action = {.sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    if (sigaction(numbers[i], &action, NULL)) return 1;
  }
  return 0;
}
