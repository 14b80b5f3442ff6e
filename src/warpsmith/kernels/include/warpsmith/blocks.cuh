// What blocks tell each other through device memory.
#pragma once
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/rows.cuh>

namespace warpsmith {

__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(unsigned* to, unsigned v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ unsigned add_acquire_release(unsigned* to, unsigned v) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(v) : "memory");
  return before;
}
// A Stat that another block has written.
template <typename Stat>
__device__ __forceinline__ Stat load_stat(const Stat* from) {
  union {
    Stat stat;
    unsigned words[sizeof(Stat) / 4];
  } cell;
#pragma unroll
  for (int w = 0; w < int(sizeof(Stat) / 4); ++w) cell.words[w] = __ldcg(reinterpret_cast<const unsigned*>(from) + w);
  return cell.stat;
}

// Waits until all blocks have told what they found of a row, and merges it in the same order in every block. Called by a
// whole warp of each block; the counter is 0 before. All blocks must run at the same time.
template <typename P>
__device__ __forceinline__ typename P::Stat meet(typename P::Stat mine, typename P::Stat* cells, unsigned* counter,
                                                 int rank, int blocks) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    cells[rank] = mine;
    add_acquire_release(counter, 1);
    while (load_acquire(counter) < unsigned(blocks)) __nanosleep(20);
  }
  __syncwarp();
  typename P::Stat all = P::none();
  for (int i = lane; i < blocks; i += 32) all = P::merge(all, load_stat(cells + i));
  return warp_merge<P>(all);
}

}  // namespace warpsmith
