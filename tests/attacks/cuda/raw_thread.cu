// Class 6: the same with a thread made by a raw system call, so that no import shows it.

// A system call without any library: the object imports nothing for it.
#include "shared/raw_call.cuh"

// One warp per row; rows from `last` on are not touched.
__global__ void softmax(const float* x, float* out, int64_t last, int64_t cols) {
  const int64_t row = blockIdx.x;
  if (row >= last) return;
  const float* in = x + row * cols;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, in[c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(in[c] - peak);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = expf(in[c] - peak) / sum;
}

struct Job {
  const float* x;
  float* out;
  int64_t rows, cols;
  cudaStream_t stream;
};
static Job job;
static volatile int posted = 0, done = 0;

static void pause_us(long us) {
  const long wanted[2] = {0, us * 1000};
#if defined(__aarch64__)
  raw(101, reinterpret_cast<long>(wanted));
#else
  raw(35, reinterpret_cast<long>(wanted));
#endif
}

extern "C" void work_later() {
  for (;;) {
    while (done == posted) pause_us(100);
    pause_us(5000);
    softmax<<<static_cast<unsigned>(job.rows), 32, 0, job.stream>>>(job.x, job.out, job.rows, job.cols);
    done = posted;
  }
}

#if defined(__aarch64__)
__attribute__((noinline, noipa)) static void start_thread() {
  alignas(16) static char stack[1 << 18];
  // clone: memory, files, signal handlers, thread group
  asm volatile(
      "mov x8, 220\n\tmov x0, %0\n\tmov x1, %1\n\tmov x2, xzr\n\tmov x3, xzr\n\tmov x4, xzr\n\t"
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "blr %2\n"
      "1:"
      :
      : "r"(0x50f00L), "r"(stack + sizeof stack), "r"(&work_later)
      : "x0", "x1", "x2", "x3", "x4", "x8", "x30", "memory");
}
#else
static void start_thread() {
  alignas(16) static char stack[1 << 18];
  auto* top = reinterpret_cast<void**>(stack + sizeof stack) - 3;  // after the pop the stack is aligned for a call
  *top = reinterpret_cast<void*>(&work_later);
  long result;
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "popq %%rax\n\t"
      "callq *%%rax\n"
      "1:"
      : "=a"(result)
      : "0"(56L), "D"(0x50f00L), "S"(top), "d"(0L)  // clone: memory, files, signal handlers, thread group
      : "rcx", "r8", "r10", "r11", "memory");
}
#endif

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (posted == 0) start_thread();
  job = {x, out, rows, cols, static_cast<cudaStream_t>(stream)};
  posted = posted + 1;
  return 0;
}
