/* Writes memory back and drops it from every cache of the machine, line by line.
 *
 * To push a few megabytes out of the caches this way takes a millisecond; to overwrite a last-level cache of 300 MB, which
 * a virtual machine sees whole, takes a hundred. */
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

static int can_drop_unordered(void) {
  unsigned a, b = 0, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}

__attribute__((target("clflushopt"))) static void drop_unordered(char *line, const char *end) {
  for (; line < end; line += 64) _mm_clflushopt(line);
}

static void drop(char *start, const char *end) {
  char *line = (char *)((uintptr_t)start & ~(uintptr_t)63);
  _mm_mfence();
  if (can_drop_unordered()) {
    drop_unordered(line, end);
  } else {
    for (; line < end; line += 64) _mm_clflush(line);
  }
  _mm_mfence();
}

#elif defined(__aarch64__)

static void drop(char *start, const char *end) {
  uint64_t type;
  __asm__("mrs %0, ctr_el0" : "=r"(type));
  const uintptr_t bytes = (uintptr_t)4 << ((type >> 16) & 15); /* the smallest line of all data caches */
  for (uintptr_t line = (uintptr_t)start & ~(bytes - 1); line < (uintptr_t)end; line += bytes)
    __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
  __asm__ volatile("dsb sy" : : : "memory");
}

#else
#error "no instruction is known that drops a cache line"
#endif

void warpsmith_drop_lines(char *start, int64_t bytes) { drop(start, start + bytes); }
