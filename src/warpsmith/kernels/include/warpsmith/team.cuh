// Long rows: a reduction over each row and then a value for each element, with one read of the input.
//
// A team of blocks shares a row. Every block keeps its slice of the row in shared memory between the two steps, every
// warp fetches its own part of the slice with the bulk copy engine as soon as it has written out its part of an earlier
// row. What the blocks found of a row meets in the workspace: each block writes its share and counts itself in; when it
// has done the same for the next row, it waits until all have counted themselves in for this one, so that the wait is
// short. SLOTS rows are on the chip: one is written, one is counted, the others are being loaded. All blocks must run at
// the same time, so the launch is a cooperative one and the grid is as large as the device holds.
//
// The policy is that of rows.cuh, with `const float* x` as its only input that is kept.
#pragma once
#include <warpsmith/rows.cuh>

namespace warpsmith {

__device__ __forceinline__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void barrier_init(uint64_t* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\n"
      "bra again;\n"
      "out:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// Starts a copy of `bytes` (a multiple of 16) from device memory; the barrier completes when it has arrived.
__device__ __forceinline__ void bulk_fetch(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
  if (bytes > 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void add_release(unsigned* to, unsigned v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

// Writes this block's Stat; called by one thread.
template <typename P>
__device__ __forceinline__ void publish(typename P::Stat mine, typename P::Stat* cells, unsigned* counter, int rank) {
  cells[rank] = mine;
  __threadfence();
  add_release(counter, 1);
}
// Waits for the Stats of all blocks; called by a whole warp, returns their union.
template <typename P>
__device__ __forceinline__ typename P::Stat collect(const typename P::Stat* cells, const unsigned* counter, int blocks) {
  const int lane = threadIdx.x % 32;
  if (lane == 0)
    while (load_acquire(counter) < unsigned(blocks)) __nanosleep(20);
  __syncwarp();
  typename P::Stat all = P::none();
  for (int i = lane; i < blocks; i += 32) {
    union {
      typename P::Stat stat;
      unsigned words[sizeof(typename P::Stat) / 4];
    } cell;
#pragma unroll
    for (int w = 0; w < int(sizeof(cell) / 4); ++w) cell.words[w] = __ldcg(reinterpret_cast<const unsigned*>(cells + i) + w);
    all = P::merge(all, cell.stat);
  }
  return warp_merge<P>(all);
}
template <typename P>
__device__ __forceinline__ typename P::Stat meet(typename P::Stat mine, typename P::Stat* cells, unsigned* counter,
                                                 int rank, int blocks) {
  if (threadIdx.x % 32 == 0) publish<P>(mine, cells, counter, rank);
  return collect<P>(cells, counter, blocks);
}

template <typename P, int THREADS, int RESIDENT, int SLOTS>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    row_team(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks, int teams, int per_warp,
             unsigned* counters, typename P::Stat* cells) {
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32;
  constexpr int N = 4;  // packs of a lane that are worked on together
  extern __shared__ __align__(128) float4 slice[];
  __shared__ Stat of_warps[WARPS];
  __shared__ Stat of_all;
  __shared__ __align__(8) uint64_t arrived[WARPS][SLOTS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int team = int(blockIdx.x) / blocks, rank = int(blockIdx.x) % blocks;
  const int64_t whole_packs = rows * cols / 4;  // packs that lie inside the tensor altogether
  if (lane == 0) {
    for (int k = 0; k < SLOTS; ++k) barrier_init(&arrived[warp][k], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();

  auto held_in = [&](int slot) { return slice + (slot * WARPS + warp) * per_warp; };
  auto begin = [&](const RowSpan& span) { return span.first + (int64_t(rank) * WARPS + warp) * per_warp; };
  auto size = [&](const RowSpan& span) {
    const int64_t left = span.first + span.packs - begin(span);
    return int(left < 0 ? 0 : left < per_warp ? left : per_warp);
  };
  auto fetch = [&](int64_t row, int slot) {  // by lane 0
    const RowSpan span(row, cols);
    const int64_t from = begin(span);
    int count = size(span);
    float4* held = held_in(slot);
    if (count > 0 && from + count > whole_packs) {  // the last pack of the tensor is not a whole one
      --count;
      float* to = reinterpret_cast<float*>(held + count);
      for (int e = 0; e < 4; ++e) to[e] = (from + count) * 4 + e < rows * cols ? policy.x[(from + count) * 4 + e] : P::fill;
    }
    bulk_fetch(held, policy.x + from * 4, unsigned(count) * 16, &arrived[warp][slot]);
  };
  auto count_row = [&](int64_t row, int slot, unsigned parity) {  // the first step, for one row
    const RowSpan span(row, cols);
    const int64_t from = begin(span);
    const int count = size(span);
    const bool whole = span.whole();
    const float4* held = held_in(slot);
    barrier_wait(&arrived[warp][slot], parity);
    Stat stat = P::none();
    for (int i0 = 0; i0 < count; i0 += 32 * N) {
      float4 v[N];
      unsigned long long bits = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int i = i0 + n * 32 + lane;
        v[n] = make_float4(P::fill, P::fill, P::fill, P::fill);
        if (i < count) {
          const unsigned mask = whole ? 0xfu : span.mask(from + i);
          v[n] = held[i];
          if (mask != 0xfu) {
            if (!(mask & 1u)) v[n].x = P::fill;
            if (!(mask & 2u)) v[n].y = P::fill;
            if (!(mask & 4u)) v[n].z = P::fill;
            if (!(mask & 8u)) v[n].w = P::fill;
          }
          bits |= static_cast<unsigned long long>(mask) << (4 * n);
        }
      }
      stat = P::merge(stat, P::template local<N>(v, bits));
    }
    stat = warp_merge<P>(stat);
    if (lane == 0) of_warps[warp] = stat;
    __syncthreads();
    if (warp == 0) {
      stat = warp_merge<P>(lane < WARPS ? of_warps[lane] : P::none());
      if (lane == 0) publish<P>(stat, cells + row * blocks, counters + row, rank);
    }
  };

  if (lane == 0)
    for (int k = 0; k < SLOTS; ++k)
      if (team + int64_t(k) * teams < rows) fetch(team + int64_t(k) * teams, k);
  __syncwarp();
  int slot = 0, next_slot = SLOTS > 1 ? 1 : 0;
  unsigned next_parity = 0;  // of the barrier of next_slot
  if (team < rows) count_row(team, 0, 0);
  __syncthreads();
  if (SLOTS == 1) next_parity = 1;
  for (int64_t row = team; row < rows; row += teams) {
    if (SLOTS > 1 && row + teams < rows) count_row(row + teams, next_slot, next_parity);
    if (warp == 0) {
      const Stat all = collect<P>(cells + row * blocks, counters + row, blocks);
      if (lane == 0) of_all = all;
    }
    __syncthreads();
    const Stat stat = of_all;
    const typename P::Ready ready = policy.prepare(stat, row);
    if (rank == 0 && threadIdx.x == 0) policy.once(stat, ready, row);
    {
      const RowSpan span(row, cols);
      const int64_t from = begin(span);
      const int count = size(span);
      const bool whole = span.whole();
      const float4* held = held_in(slot);
      for (int i0 = 0; i0 < count; i0 += 32 * N) {
        float4 v[N];
#pragma unroll
        for (int n = 0; n < N; ++n)
          if (i0 + n * 32 + lane < count) v[n] = held[i0 + n * 32 + lane];
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const int i = i0 + n * 32 + lane;
          if (i < count)
            policy.store(from + i, whole ? 0xfu : span.mask(from + i), v[n], ready, row, (from + i) * 4 - span.begin);
        }
      }
    }
    __syncwarp();
    if (lane == 0 && row + int64_t(SLOTS) * teams < rows) fetch(row + int64_t(SLOTS) * teams, slot);
    __syncwarp();
    if (SLOTS == 1 && row + teams < rows) count_row(row + teams, 0, next_parity), next_parity ^= 1;
    slot = slot + 1 == SLOTS ? 0 : slot + 1;
    if (SLOTS > 1) {
      next_slot = next_slot + 1 == SLOTS ? 0 : next_slot + 1;
      if (next_slot == 0) next_parity ^= 1;
    }
  }
}

// How a row of `cols` elements is shared on this device.
struct TeamPlan {
  int resident, blocks, teams, per_warp;
  size_t shared_bytes;
};
inline TeamPlan plan_team(int64_t rows, int64_t cols, int warps, int resident, int slots, int blocks) {
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  const int64_t packs = ceil_div(cols, 4) + (cols % 4 ? 1 : 0);
  TeamPlan plan = {};
  for (int r = resident; r >= 1; --r) {
    const int64_t room = ((int64_t(227) * 1024 - r * 2560) / r) / 16 / slots;  // packs of a block
    const int64_t least = ceil_div(packs, room / warps * warps);
    if (least > units && r > 1) continue;
    plan.resident = r;
    plan.blocks = int(blocks > least ? blocks : least);
    break;
  }
  const int64_t room = ((int64_t(227) * 1024 - plan.resident * 2560) / plan.resident) / 16 / slots;
  plan.per_warp = int(ceil_div(ceil_div(packs, plan.blocks), warps));
  while (plan.per_warp * int64_t(warps) > room) ++plan.blocks, plan.per_warp = int(ceil_div(ceil_div(packs, plan.blocks), warps));
  plan.teams = units * plan.resident / plan.blocks;
  if (plan.teams > rows) plan.teams = int(rows);
  plan.shared_bytes = size_t(plan.per_warp) * warps * 16 * slots;
  return plan;  // teams == 0: the row does not fit into the device
}
template <typename P>
int64_t team_workspace(int64_t rows, int64_t cols, int threads, int resident, int slots, int blocks) {
  const TeamPlan plan = plan_team(rows, cols, threads / 32, resident, slots, blocks);
  return ceil_div(rows * 4, 256) * 256 + rows * plan.blocks * int64_t(sizeof(typename P::Stat));
}
template <typename P, int THREADS, int RESIDENT, int SLOTS>
int team_launch(const P& policy, int64_t rows, int64_t cols, const TeamPlan& plan, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  auto kernel = row_team<P, THREADS, RESIDENT, SLOTS>;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(plan.shared_bytes));
  if (e != cudaSuccess) return int(e);
  e = cudaMemsetAsync(workspace, 0, size_t(rows) * 4, s);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(plan.blocks * plan.teams));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = plan.shared_bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  auto* counters = static_cast<unsigned*>(workspace);
  auto* cells = reinterpret_cast<typename P::Stat*>(static_cast<char*>(workspace) + ceil_div(rows * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, plan.blocks, plan.teams, plan.per_warp, counters, cells);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
// RESIDENT: blocks on a multiprocessor at most; blocks: least size of a team.
template <typename P, int THREADS, int RESIDENT, int SLOTS>
int team_rows(const P& policy, int64_t rows, int64_t cols, int blocks, void* workspace, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  const TeamPlan plan = plan_team(rows, cols, THREADS / 32, RESIDENT, SLOTS, blocks);
  if (plan.teams < 1) return launch_rows_twice(policy, rows, cols, stream);
  return team_launch<P, THREADS, RESIDENT, SLOTS>(policy, rows, cols, plan, workspace, stream);
}

}  // namespace warpsmith
