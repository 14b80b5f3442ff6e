/* Says where a candidate's process died: signal, code, address, and whether it was a write.
 *
 * Loaded into the candidate's process before the candidate. It writes one record to a shared page that
 * only helps to word the reason; a candidate that replaces the handler only spoils its own diagnosis. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#if defined(__aarch64__)
#include <asm/sigcontext.h>
#endif

typedef struct {
  int64_t signal_number;
  int64_t signal_code;
  uint64_t address;
  int64_t is_write; /* 1 write, 0 read, -1 not known */
} record_t;

static record_t *record;
static char alternate_stack[65536];

/* 1 write, 0 read, -1 not known. */
static int64_t was_write(const ucontext_t *context) {
#if defined(__x86_64__)
  return (context->uc_mcontext.gregs[REG_ERR] >> 1) & 1;
#elif defined(__aarch64__)
  /* The kernel appends records, each with a name and a size, until one of size 0; one holds the syndrome. */
  const char *at = (const char *)context->uc_mcontext.__reserved;
  const char *end = at + sizeof context->uc_mcontext.__reserved;
  struct _aarch64_ctx head;
  while (end - at >= (long)sizeof head) {
    memcpy(&head, at, sizeof head);
    if (!head.size || head.size > end - at) break;
    if (head.magic == ESR_MAGIC && head.size >= sizeof(struct esr_context)) {
      struct esr_context found;
      memcpy(&found, at, sizeof found);
      const unsigned kind = (found.esr >> 26) & 0x3f; /* 0x24 and 0x25: a data abort */
      return kind == 0x24 || kind == 0x25 ? (int64_t)((found.esr >> 6) & 1) : -1;
    }
    at += head.size;
  }
  return -1;
#else
  (void)context;
  return -1;
#endif
}

static void report(int number, siginfo_t *info, void *context) {
  if (record && record->signal_number == 0) {
    record->signal_code = info->si_code;
    record->address = (uint64_t)(uintptr_t)info->si_addr;
    record->is_write = -1;
    if (number == SIGSEGV || number == SIGBUS) record->is_write = was_write((const ucontext_t *)context);
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
