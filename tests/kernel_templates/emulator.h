// CUDA on a processor, for tests of generated kernels where there is no GPU: every thread of a block is a coroutine.
// Slow and strictly in order: it finds wrong indices and wrong sums, not races between warps. The blocks of a cluster
// are threads of the processor, each with memory of its own that the others can find. They run one at a time, and the
// one that completes a barrier runs on as far as it can: what it overwrites or takes along too early the others miss.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local

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
enum Wait { RUNNABLE, WARP, BLOCK, CLUSTER_WIDE, DONE };
// A coroutine is begun with a context and goes on with jumps: unlike swapcontext they leave the signal mask alone, which is a
// system call. It runs the body of the next block, too, when it has ended that of a block.
struct Thread {
  ucontext_t context;
  jmp_buf place;
  bool begun;
  Wait wait;
  bool arrived;  // at the cluster's barrier, and has not waited there yet
  std::vector<char> stack;
};
inline thread_local std::vector<Thread> threads(1024);
inline thread_local jmp_buf scheduler;
inline thread_local int current = 0, count = 0;
inline std::function<void()> body;
// Aligned as much as any Pack that a kernel stores there (32 bytes for four doubles); a GPU aligns it to more than that.
alignas(128) inline thread_local unsigned char dynamic_bytes[256 << 10];
alignas(128) inline thread_local unsigned char cells[1024][16];

inline void wait_for(Wait what) {
  Thread& me = threads[current];
  me.wait = what;
  if (!_setjmp(me.place)) _longjmp(scheduler, 1);
}
// For texts that were written when both were contexts.
inline void swapcontext(ucontext_t*, jmp_buf*) { wait_for(threads[current].wait); }
inline void entry() {
  for (;;) {
    body();
    wait_for(DONE);
  }
}
__attribute__((noinline)) inline void run_until_it_waits(Thread& thread) {
  if (_setjmp(scheduler)) return;
  if (thread.begun) _longjmp(thread.place, 1);
  thread.begun = true;
  thread.stack.resize(64 << 10);
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.data();
  thread.context.uc_stack.ss_size = thread.stack.size();
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, entry, 0);
  setcontext(&thread.context);
}
}  // namespace emulated

inline thread_local dim3 threadIdx, blockIdx, gridDim, blockDim;

namespace emulated {
// Where the blocks of a cluster wait for each other, and where each has its memory.
struct Cluster {
  std::mutex lock;
  std::condition_variable changed;
  int size = 1, round = 0, entered = 0, generation = 0;
  bool running = false;
  std::array<bool, 16> arrived = {}, left = {};
  std::array<char*, 16> anchors = {};

  // A block begins when all blocks of the cluster before have left.
  void enter() {
    std::unique_lock<std::mutex> held(lock);
    const int mine = generation;
    if (++entered == size) {
      entered = 0, ++generation, arrived.fill(false), left.fill(false);
      changed.notify_all();
    }
    changed.wait(held, [&] { return generation != mine && !running; });
    running = true;
  }
  void leave(int rank) {
    const std::lock_guard<std::mutex> held(lock);
    left[rank] = true, running = false;
    complete();
    changed.notify_all();
  }
  int arrive(int rank) {
    const std::lock_guard<std::mutex> held(lock);
    const int mine = round;
    arrived[rank] = true;
    complete();
    return mine;
  }
  void wait(int mine) {
    std::unique_lock<std::mutex> held(lock);
    if (round != mine) return;
    running = false;
    changed.notify_all();
    changed.wait(held, [&] { return round != mine && !running; });
    running = true;
  }

 private:
  void complete() {
    for (int rank = 0; rank < size; ++rank)
      if (!arrived[rank] && !left[rank]) return;
    arrived.fill(false), ++round;
  }
};
inline Cluster cluster;
inline thread_local int rank = 0, arrivals = 0, round = 0;
inline thread_local char anchor;  // everything shared lies at a distance from it that is the same for all threads

inline void arrive() {
  if (threads[current].arrived) std::abort();  // twice, without a wait in between
  threads[current].arrived = true;
  if (++arrivals == count) arrivals = 0, round = cluster.arrive(rank);
}
inline void wait() {
  if (!threads[current].arrived) std::abort();
  wait_for(CLUSTER_WIDE);
  threads[current].arrived = false;
}

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
  bool block = false, wide = false;
  for (int t = 0; t < count; ++t) {
    if (threads[t].wait == WARP) std::abort();  // a warp whose lanes wait for different things
    block |= threads[t].wait == BLOCK, wide |= threads[t].wait == CLUSTER_WIDE;
  }
  if (block && wide) std::abort();  // threads of a block that wait for different things
  if (wide && arrivals) std::abort();  // threads that ended without having arrived
  if (wide) cluster.wait(round);
  for (int t = 0; t < count; ++t)
    if (threads[t].wait == BLOCK || threads[t].wait == CLUSTER_WIDE) threads[t].wait = RUNNABLE, any = true;
  return any;
}
inline void run_block(dim3 block, int64_t shared_bytes) {
  std::memset(dynamic_bytes, 0xff, shared_bytes);  // NaN: what is read before it is written shows
  for (int t = 0; t < count; ++t) threads[t].wait = RUNNABLE, threads[t].arrived = false;
  arrivals = 0;
  do {
    for (int t = 0; t < count; ++t) {
      if (threads[t].wait != RUNNABLE) continue;
      current = t;
      threadIdx = dim3(t, 0, 0), blockIdx = block;
      run_until_it_waits(threads[t]);
    }
  } while (release());
}
inline void begin(dim3 grid, int size, int64_t shared_bytes) {
  if (shared_bytes > int64_t(sizeof(dynamic_bytes)) || size > 1024) std::abort();
  count = size;
  gridDim = grid, blockDim = dim3(size);
}
inline void launch(dim3 grid, int size, int64_t shared_bytes, std::function<void()> kernel) {
  body = std::move(kernel);
  begin(grid, size, shared_bytes);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) run_block(dim3(x, y, z), shared_bytes);
}
inline void launch_clusters(int blocks, dim3 grid, int size, int64_t shared_bytes, std::function<void()> kernel) {
  if (grid.x % blocks || blocks > int(cluster.anchors.size())) std::abort();
  body = std::move(kernel);
  cluster.size = blocks;
  std::vector<std::thread> team;
  for (int each = 0; each < blocks; ++each)
    team.emplace_back([=] {
      begin(grid, size, shared_bytes);
      cluster.anchors[each] = &anchor, rank = each;
      for (unsigned x = each; x < grid.x; x += blocks) {
        cluster.enter();
        run_block(dim3(x, 0, 0), shared_bytes);
        cluster.leave(each);
      }
    });
  for (std::thread& each : team) each.join();
}
}  // namespace emulated

namespace cooperative_groups {
struct cluster_group {
  void barrier_arrive() const { emulated::arrive(); }
  void barrier_wait() const { emulated::wait(); }
  void sync() const { barrier_arrive(), barrier_wait(); }
  template <typename T> T* map_shared_rank(T* mine, int rank) const {
    static thread_local T nothing;
    if (emulated::cluster.left[rank]) return std::memset(&nothing, 0xff, sizeof(T)), &nothing;  // NaN
    const auto away = reinterpret_cast<char*>(mine) - &emulated::anchor;
    return reinterpret_cast<T*>(emulated::cluster.anchors[rank] + away);
  }
};
inline cluster_group this_cluster() { return {}; }
}  // namespace cooperative_groups

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
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  std::memcpy(to, from, bytes - zeros), std::memset(static_cast<char*>(to) + bytes - zeros, 0, zeros);
}
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
