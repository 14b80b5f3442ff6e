// A function of every element, through a ring in shared memory: bulk copies bring tiles in, and take them out again
// (TUNE_OUT=1) or threads store them (0). Blocks stay. TUNE_OUT=2: no ring, a pack per thread, as `map` of elementwise.cuh.
// Candidate for relu (TUNE_F=0), sigmoid (1), gelu (2), swish (3).
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/elementwise.cuh>

#ifndef TUNE_F
#define TUNE_F 0
#endif
#ifndef TUNE_OUT
#define TUNE_OUT 1
#endif
#ifndef TUNE_HINTS
#define TUNE_HINTS 0  // 1: what is read leaves the second-level cache first; 2: what is written, too
#endif
#ifndef TUNE_RING_THREADS
#define TUNE_RING_THREADS 256
#endif
#ifndef TUNE_TILE
#define TUNE_TILE 4  // packs of a thread
#endif
#ifndef TUNE_STAGES
#define TUNE_STAGES 4
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 3  // blocks of a multiprocessor
#endif

namespace {
using namespace warpsmith;

// What this block's threads wrote to shared memory is seen by copies that are started after the next barrier.
__device__ __forceinline__ void writes_seen() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ uint64_t leaves_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ float4 load_hinted(const float* from, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.nc.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from), "l"(policy));
  return v;
}
__device__ __forceinline__ void store_hinted(float* to, const float4& v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1,%2,%3,%4}, %5;" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void copy_hinted(void* to, const void* from, unsigned bytes, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
// Starts a copy of `bytes`, a multiple of 16 and not 0, from shared memory.
__device__ __forceinline__ void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_store_hinted(void* to, const void* from, unsigned bytes, uint64_t policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void stores_begun() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// All copies but those of the last group have read their shared memory.
__device__ __forceinline__ void stores_read() { asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }
__device__ __forceinline__ void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

template <typename F, int THREADS, int TILE, int STAGES, int RESIDENT, bool OUT>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    map_ring(const float* __restrict__ x, float* __restrict__ out, int64_t n, const __grid_constant__ F f) {
  constexpr int ROOM = THREADS * TILE;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ __align__(8) uint64_t full[STAGES];
  const int me = int(threadIdx.x);
  const int64_t packs = n / 4, tiles = (packs + ROOM - 1) / ROOM;
  const float4* from = reinterpret_cast<const float4*>(x);
  float4* to = reinterpret_cast<float4*>(out);
  auto count_of = [&](int64_t tile) {
    const int64_t left = packs - tile * ROOM;
    return int(left < ROOM ? left : ROOM);
  };
  const uint64_t soon = TUNE_HINTS ? leaves_first() : 0;
  auto fetch = [&](int64_t tile, int slot) {
    const unsigned bytes = unsigned(count_of(tile)) * 16;
    if (TUNE_HINTS) {
      barrier_expect(&full[slot], bytes);
      copy_hinted(memory + slot * ROOM, from + tile * ROOM, bytes, &full[slot], soon);
    } else {
      bulk_fetch(memory + slot * ROOM, from + tile * ROOM, bytes, &full[slot]);
    }
  };
  if (me == 0) {
    for (int k = 0; k < STAGES; ++k) barrier_init(&full[k], 1);
    barriers_initialised();
    for (int k = 0; k < STAGES - 1; ++k) {
      const int64_t tile = blockIdx.x + int64_t(k) * gridDim.x;
      if (tile < tiles) fetch(tile, k);
    }
  }
  __syncthreads();
  int slot = 0, free = STAGES - 1;  // the slot of the tile before, or the one that is still empty
  unsigned parity = 0;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int count = count_of(tile);
    const int64_t next = tile + int64_t(STAGES - 1) * gridDim.x;
    float4* held = memory + slot * ROOM;
    barrier_wait(&full[slot], parity);
#pragma unroll
    for (int k = 0; k < TILE; ++k) {
      const int i = k * THREADS + me;
      if (i < count) {
        const float4 v = held[i];
        const float4 o = make_float4(f.apply(v.x), f.apply(v.y), f.apply(v.z), f.apply(v.w));
        if (OUT) held[i] = o;
        else if (TUNE_HINTS > 1) store_hinted(reinterpret_cast<float*>(to + tile * ROOM + i), o, soon);
        else *(to + tile * ROOM + i) = o;
      }
    }
    if (OUT) writes_seen();
    __syncthreads();
    if (me == 0) {
      if (OUT) {
        if (TUNE_HINTS > 1) bulk_store_hinted(to + tile * ROOM, held, unsigned(count) * 16, soon);
        else bulk_store(to + tile * ROOM, held, unsigned(count) * 16);
        stores_begun();
        stores_read();  // of the tile before: its slot takes the next tile
      }
      if (next < tiles) fetch(next, free);
    }
    free = slot;
    if (++slot == STAGES) slot = 0, parity ^= 1;
  }
  if (OUT && me == 0) stores_done();
  if (blockIdx.x == 0 && me < n % 4) out[packs * 4 + me] = f.apply(x[packs * 4 + me]);
}

template <typename F, int THREADS>
__global__ void __launch_bounds__(THREADS)
    map_hinted(const float* __restrict__ x, float* __restrict__ out, int64_t n, const __grid_constant__ F f) {
  const int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x, packs = n / 4;
  const uint64_t soon = leaves_first();
  if (i < packs) {
    const float4 v = load_hinted(x + i * 4, soon);
    const float4 o = make_float4(f.apply(v.x), f.apply(v.y), f.apply(v.z), f.apply(v.w));
    if (TUNE_HINTS > 1) store_hinted(out + i * 4, o, soon);
    else *reinterpret_cast<float4*>(out + i * 4) = o;
  }
  if (blockIdx.x == 0 && threadIdx.x < n % 4) out[packs * 4 + threadIdx.x] = f.apply(x[packs * 4 + threadIdx.x]);
}

template <typename F>
int map_through(const float* x, float* out, int64_t n, void* stream) {
  if (n == 0) return 0;
#if TUNE_OUT == 2
  const unsigned grid = unsigned(ceil_div(n / 4 + 1, TUNE_RING_THREADS));
  map_hinted<F, TUNE_RING_THREADS><<<grid, TUNE_RING_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n, F{});
  return int(cudaGetLastError());
#endif
  constexpr int THREADS = TUNE_RING_THREADS, BYTES = THREADS * TUNE_TILE * TUNE_STAGES * 16;
  auto kernel = map_ring<F, THREADS, TUNE_TILE, TUNE_STAGES, TUNE_RESIDENT, TUNE_OUT == 1>;
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e != cudaSuccess) return int(e);
  const int64_t tiles = ceil_div(n / 4 + 1, THREADS * TUNE_TILE), most = int64_t(units) * TUNE_RESIDENT;
  map_ring<F, THREADS, TUNE_TILE, TUNE_STAGES, TUNE_RESIDENT, TUNE_OUT == 1>
      <<<unsigned(tiles < most ? tiles : most), THREADS, BYTES, static_cast<cudaStream_t>(stream)>>>(x, out, n, F{});
  return int(cudaGetLastError());
}
}  // namespace

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#if TUNE_F == 0
  return map_through<Relu>(x, out, rows * cols, stream);
#elif TUNE_F == 1
  return map_through<Sigmoid>(x, out, rows * cols, stream);
#elif TUNE_F == 2
  return map_through<GeluErf>(x, out, rows * cols, stream);
#else
  return map_through<Swish>(x, out, rows * cols, stream);
#endif
}
