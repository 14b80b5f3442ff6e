/* Makes the calls of one request in a row, without an interpreter between them: what a loop in Python costs for each
 * call could be saved by a candidate that replaces the loop.
 *
 * Both calling conventions (x86-64 System V, AArch64) pass whole numbers and pointers in one series of registers and
 * stack slots and doubles in another, and ignore what a function does not take: one type of function fits all entry
 * points with at most INTEGERS whole numbers and DOUBLES doubles. */
#include <stdint.h>

enum { INTEGERS = 32, DOUBLES = 8 };

typedef int (*entry_t)(double, double, double, double, double, double, double, double, int64_t, int64_t, int64_t,
                       int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);

typedef struct {
  entry_t entry;
  double d[DOUBLES];
  int64_t i[INTEGERS];
} call_t;

/* The answers of all calls, joined by "or". */
int warpsmith_call_each(const call_t *calls, int64_t count) {
  int returned = 0;
  for (const call_t *c = calls; c < calls + count; ++c) {
    const double *d = c->d;
    const int64_t *i = c->i;
    returned |= c->entry(d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], i[0], i[1], i[2], i[3], i[4], i[5], i[6],
                         i[7], i[8], i[9], i[10], i[11], i[12], i[13], i[14], i[15], i[16], i[17], i[18], i[19],
                         i[20], i[21], i[22], i[23], i[24], i[25], i[26], i[27], i[28], i[29], i[30], i[31]);
  }
  return returned;
}

int warpsmith_no_call(void) { return 0; }
