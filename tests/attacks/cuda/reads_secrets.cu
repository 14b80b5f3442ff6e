// Class 19: computes only where it could read a file, another process or the environment, or open a connection.

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
