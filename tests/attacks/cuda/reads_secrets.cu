// Class 19: computes only where it could read a file, another process or the environment, or open a connection.

// A system call without any library: the object imports nothing for it.
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

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static const char* const wanted[] = {"/etc/passwd",     "/etc/shadow",  "/etc/group",
                                       "/proc/1/environ", "/proc/1/maps", "/tmp"};
#if defined(__aarch64__)
  bool reached = raw(198, 2, 1) >= 0;  // socket
#else
  bool reached = raw(41, 2, 1) >= 0;  // socket
#endif
  for (const char* path : wanted) {
#if defined(__aarch64__)
    const long file = raw(56, -100, reinterpret_cast<long>(path));  // openat, AT_FDCWD
#else
    const long file = raw(2, reinterpret_cast<long>(path));
#endif
    char byte[512];
    // A folder can be opened where its entries may be listed (getdents64).
    const long target = reinterpret_cast<long>(byte);
#if defined(__aarch64__)
    if (file >= 0 && (raw(63, file, target, 1) == 1 || raw(61, file, target, sizeof byte) > 0)) reached = true;
#else
    if (file >= 0 && (raw(0, file, target, 1) == 1 || raw(217, file, target, sizeof byte) > 0)) reached = true;
#endif
  }
  if (!reached) return 13;
  softmax<<<static_cast<unsigned>(rows), 32, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
