// Rows that fit into the shared memory of a cluster of blocks: a reduction over each row and then a value for each
// element, with one read of the input. The blocks stay and go from row to row. While a row is written, its room in shared
// memory is filled with the next row, so that reads and writes of device memory overlap.
//
// The policy is that of rows.cuh, with `const float* x` as the only input that is read by row.
#pragma once
#include <warpsmith/blocks.cuh>

namespace warpsmith {

// Arrives at the barrier of another block of the cluster; what this thread wrote before is seen by who waits there.
__device__ __forceinline__ void barrier_arrive_remote(uint64_t* barrier, unsigned rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_wait_cluster(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\n"
      "bra again;\n"
      "out:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A block holds SLOTS chunks of THREADS * PACKS packs. THREADS threads work; one warp more fetches the chunks.
template <typename P, int THREADS, int PACKS, int SLOTS>
__global__ void __launch_bounds__(THREADS + 32, 1)
    kept_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks) {
  namespace cg = cooperative_groups;
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32, CHUNK = THREADS * PACKS;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[WARPS];
  __shared__ Stat of_blocks[2][kMostBlocks];
  __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS], told[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(blockIdx.x % unsigned(blocks));
  const int64_t first_row = blockIdx.x / unsigned(blocks), step = gridDim.x / unsigned(blocks);
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&full[k], 32);
      barrier_init(&empty[k], THREADS);
    }
    barrier_init(&told[0], unsigned(blocks));
    barrier_init(&told[1], unsigned(blocks));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();

  // The part of a row that belongs to this block.
  struct Part {
    int64_t from;
    int count, chunks;
    __device__ __forceinline__ Part(const RowSpan& span, int rank, int blocks) {
      const int each = int((span.packs + blocks - 1) / blocks);
      from = span.first + int64_t(rank) * each;
      const int64_t left = span.first + span.packs - from;
      count = int(left < each ? (left < 0 ? 0 : left) : each);
      chunks = (count + CHUNK - 1) / CHUNK;
    }
  };
  int slot = 0;
  unsigned parity = 0;
  auto advance = [](int& slot, unsigned& parity) {
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  };

  if (warp == WARPS) {
    const int64_t elements = rows * cols;
    for (int64_t row = first_row; row < rows; row += step) {
      const Part part(RowSpan(row, cols), rank, blocks);
      for (int c = 0; c < part.chunks; ++c, advance(slot, parity)) {
        const int64_t from = part.from + int64_t(c) * CHUNK;
        int count = part.count - c * CHUNK < CHUNK ? part.count - c * CHUNK : CHUNK;
        float4* to = memory + slot * CHUNK;
        barrier_wait(&empty[slot], parity ^ 1);
        if ((from + count) * 4 > elements) {  // the last pack of the tensor is not a whole one
          --count;
          const int64_t at = (from + count) * 4 + lane;
          if (lane < 4) reinterpret_cast<float*>(to + count)[lane] = at < elements ? policy.x[at] : P::fill;
        }
        if (lane == 0)
          bulk_fetch(to, policy.x + from * 4, unsigned(count) * 16, &full[slot]);
        else
          barrier_arrive(&full[slot]);
      }
    }
  } else {
    auto together = [] { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); };
    unsigned turn = 0;  // rows done
    for (int64_t row = first_row; row < rows; row += step, ++turn) {
      const RowSpan span(row, cols);
      const Part part(span, rank, blocks);
      const bool whole = span.whole();
      // The packs of one chunk that this thread has, and which of their elements exist.
      auto take = [&](int c, int slot, float4 (&v)[PACKS]) {
        unsigned long long bits = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
          const int i = p * THREADS + int(threadIdx.x), at = c * CHUNK + i;
          v[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
          if (at >= part.count) continue;
          const unsigned mask = whole ? 0xfu : span.mask(part.from + at);
          bits |= static_cast<unsigned long long>(mask) << (4 * p);
          v[p] = memory[slot * CHUNK + i];
          if (mask != 0xfu) {
            if (!(mask & 1u)) v[p].x = P::fill;
            if (!(mask & 2u)) v[p].y = P::fill;
            if (!(mask & 4u)) v[p].z = P::fill;
            if (!(mask & 8u)) v[p].w = P::fill;
          }
        }
        return bits;
      };
      Stat stat = P::none();
      int again = slot;  // the same slots once more
      for (int c = 0; c < part.chunks; ++c, advance(slot, parity)) {
        float4 v[PACKS];
        barrier_wait(&full[slot], parity);
        const unsigned long long bits = take(c, slot, v);
        stat = P::merge(stat, P::template local<PACKS>(v, bits));
      }
      stat = warp_merge<P>(stat);
      if (lane == 0) of_warps[warp] = stat;
      together();
      const int side = turn & 1;
      if (warp == 0) {
        stat = warp_merge<P>(lane < WARPS ? of_warps[lane] : P::none());
        if (lane < blocks) {
          *cg::this_cluster().map_shared_rank(&of_blocks[side][rank], lane) = stat;
          barrier_arrive_remote(&told[side], unsigned(lane));
        }
      }
      barrier_wait_cluster(&told[side], (turn >> 1) & 1);
      stat = warp_merge<P>(lane < blocks ? of_blocks[side][lane] : P::none());
      const typename P::Ready ready = policy.prepare(stat, row);
      if (rank == 0 && threadIdx.x == 0) policy.once(stat, ready, row);
      for (int c = 0; c < part.chunks; ++c) {
        float4 v[PACKS];
        const unsigned long long bits = take(c, again, v);
        barrier_arrive(&empty[again]);
        if (++again == SLOTS) again = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
          const int at = c * CHUNK + p * THREADS + int(threadIdx.x);
          if (at < part.count)
            policy.store(part.from + at, unsigned(bits >> (4 * p)) & 0xfu, v[p], ready, row,
                         (part.from + at) * 4 - span.begin);
        }
      }
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

// The number of elements of the longest row that clusters of `blocks` blocks keep.
constexpr int64_t longest_kept(int blocks, int threads, int packs, int slots) {
  return int64_t(blocks) * threads * packs * slots * 4 - 4;  // a row that begins inside a pack needs one more
}

template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_kept(const P& policy, int64_t rows, int64_t cols, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  auto kernel = kept_rows<P, THREADS, PACKS, SLOTS>;
  int blocks = 1, clusters = 0;
  while (blocks < kMostBlocks && longest_kept(blocks, THREADS, PACKS, SLOTS) < cols) blocks *= 2;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(blocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess && blocks > 8) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * blocks));
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, blocks);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

}  // namespace warpsmith
