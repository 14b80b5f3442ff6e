// CUDA on a processor, for tests of generated kernels where there is no GPU: every thread of a block is a coroutine.
// Slow and strictly in order: it finds wrong indices and wrong sums, not races between warps.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };

#if defined(__ARM_FP16_FORMAT_IEEE) && !defined(__clang__) && __GNUC__ < 13
using __half = __fp16;
#else
using __half = _Float16;
#endif
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    bits = uint16_t((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  operator float() const {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
};

namespace emulated {
enum Wait { RUNNABLE, WARP, BLOCK, DONE };
struct Thread {
  ucontext_t context;
  Wait wait;
  std::vector<char> stack;
};
inline std::vector<Thread> threads(1024);
inline ucontext_t scheduler;
inline int current = 0, count = 0;
inline std::function<void()> body;
alignas(16) inline unsigned char dynamic_bytes[256 << 10];
alignas(16) inline unsigned char cells[1024][16];

inline void wait_for(Wait what) {
  threads[current].wait = what;
  swapcontext(&threads[current].context, &scheduler);
}
inline void entry() {
  body();
  threads[current].wait = DONE;
  swapcontext(&threads[current].context, &scheduler);
}
}  // namespace emulated

inline dim3 threadIdx, blockIdx, gridDim, blockDim;

namespace emulated {
inline bool release() {
  bool any = false;
  for (int warp = 0; warp < count; warp += 32) {
    bool waiting = true, live = false;
    for (int t = warp; t < std::min(warp + 32, count); ++t) {
      live |= threads[t].wait == WARP;
      waiting &= threads[t].wait == WARP || threads[t].wait == DONE;
    }
    if (live && waiting) {
      for (int t = warp; t < std::min(warp + 32, count); ++t)
        if (threads[t].wait == WARP) threads[t].wait = RUNNABLE, any = true;
    }
  }
  if (any) return true;
  for (int t = 0; t < count; ++t)
    if (threads[t].wait == WARP) std::abort();  // a warp whose lanes wait for different things
  for (int t = 0; t < count; ++t)
    if (threads[t].wait == BLOCK) threads[t].wait = RUNNABLE, any = true;
  return any;
}
inline void launch(dim3 grid, int size, int64_t shared_bytes, std::function<void()> kernel) {
  if (shared_bytes > int64_t(sizeof(dynamic_bytes)) || size > 1024) std::abort();
  body = std::move(kernel);
  count = size;
  gridDim = grid, blockDim = dim3(size);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        std::memset(dynamic_bytes, 0xff, shared_bytes);  // NaN: what is read before it is written shows
        for (int t = 0; t < size; ++t) {
          Thread& thread = threads[t];
          thread.stack.resize(64 << 10);
          getcontext(&thread.context);
          thread.context.uc_stack.ss_sp = thread.stack.data();
          thread.context.uc_stack.ss_size = thread.stack.size();
          thread.context.uc_link = &scheduler;
          makecontext(&thread.context, entry, 0);
          thread.wait = RUNNABLE;
        }
        do {
          for (int t = 0; t < size; ++t) {
            if (threads[t].wait != RUNNABLE) continue;
            current = t;
            threadIdx = dim3(t, 0, 0), blockIdx = dim3(x, y, z);
            swapcontext(&scheduler, &threads[t].context);
          }
        } while (release());
      }
}
}  // namespace emulated

inline void __syncthreads() { emulated::wait_for(emulated::BLOCK); }
inline void __syncwarp() { emulated::wait_for(emulated::WARP); }
inline void __threadfence() {}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int step) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof(T));
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me ^ step], sizeof(T));
  emulated::wait_for(emulated::WARP);
  return value;
}
template <typename T> T __ldg(const T* from) { return *from; }
template <typename T> T __ldcg(const T* from) { return *from; }
template <typename T> void __stcs(T* to, T value) { *to = value; }
inline unsigned atomicAdd(unsigned* at, unsigned more) { return (*at += more) - more; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaDevAttrMultiProcessorCount };
template <typename F> cudaError_t cudaFuncSetAttribute(F, int, int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) { return *value = 2, cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t) {
  return std::memset(at, value, bytes), cudaSuccess;
}

// Fragments of tensor cores: every lane has the whole of it.
namespace nvcuda::wmma {
struct accumulator {};
struct matrix_a {};
struct matrix_b {};
struct row_major {};
enum layout_t { mem_row_major };
namespace precision { struct tf32 {}; }
template <typename T> struct stored { using type = T; };
template <> struct stored<precision::tf32> { using type = float; };
template <typename Use, int M, int N, int K, typename T, typename Layout = row_major>
struct fragment { float at[16][16]; };
inline float __float_to_tf32(float x) { return x; }
template <typename F> void fill_fragment(F& f, float value) {
  for (auto& row : f.at) for (float& e : row) e = value;
}
template <int M, int N, int K, typename T, typename L>
void load_matrix_sync(fragment<matrix_a, M, N, K, T, L>& f, const typename stored<T>::type* from, int stride) {
  for (int i = 0; i < M; ++i) for (int k = 0; k < K; ++k) f.at[i][k] = float(from[i * stride + k]);
}
template <int M, int N, int K, typename T, typename L>
void load_matrix_sync(fragment<matrix_b, M, N, K, T, L>& f, const typename stored<T>::type* from, int stride) {
  for (int k = 0; k < K; ++k) for (int j = 0; j < N; ++j) f.at[k][j] = float(from[k * stride + j]);
}
template <int M, int N, int K, typename A, typename B, typename C>
void mma_sync(fragment<accumulator, M, N, K, C>& d, const fragment<matrix_a, M, N, K, A, row_major>& a,
              const fragment<matrix_b, M, N, K, B, row_major>& b, const fragment<accumulator, M, N, K, C>& c) {
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = c.at[i][j];
      for (int k = 0; k < K; ++k) sum += a.at[i][k] * b.at[k][j];
      d.at[i][j] = sum;
    }
}
template <int M, int N, int K, typename C>
void store_matrix_sync(float* to, const fragment<accumulator, M, N, K, C>& f, int stride, layout_t) {
  for (int i = 0; i < M; ++i) for (int j = 0; j < N; ++j) to[i * stride + j] = f.at[i][j];
}
}  // namespace nvcuda::wmma
