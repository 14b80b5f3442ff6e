"""Device functions that generated CUDA files contain: packs of elements, and reductions across threads."""

from __future__ import annotations

from warpsmith.lowering.plan_switches import PlanSwitches

_PACK = """
// Several neighbouring elements that are loaded and stored as one.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int BYTES> struct Word { using type = uint4; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<4> { using type = unsigned int; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<1> { using type = unsigned char; };

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  using W = typename Word<sizeof(Pack<T, N>)>::type;
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < int(sizeof(pack) / sizeof(W)); ++i)
    reinterpret_cast<W*>(&pack)[i] = LOAD;
  return pack;
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
  using W = typename Word<sizeof(Pack<T, N>)>::type;
#pragma unroll
  for (int i = 0; i < int(sizeof(pack) / sizeof(W)); ++i)
    STORE;
}
"""

_OPERATIONS = """
struct sum_of { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct prod_of { template <typename T> __device__ T operator()(T a, T b) const { return a * b; } };
struct max_of { template <typename T> __device__ T operator()(T a, T b) const { return a < b ? b : a; } };
struct min_of { template <typename T> __device__ T operator()(T a, T b) const { return b < a ? b : a; } };
"""

_WARP = """
// Afterwards every lane of the warp has the result.
template <typename T, typename Op>
__device__ __forceinline__ T across_warp(T value, Op op) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
"""

_BLOCK_SHUFFLE = """
// Afterwards every thread of the block has the result.
template <typename T, typename Op>
__device__ __forceinline__ T across_block(T value, Op op) {
  __shared__ T cells[32];
  value = across_warp(value, op);
  if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = value;
  __syncthreads();
  constexpr int WARPS = THREADS / 32;
  static_assert((WARPS & (WARPS - 1)) == 0, "THREADS has to be a power of two");
  value = cells[threadIdx.x % WARPS];
#pragma unroll
  for (int step = WARPS / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
  __syncthreads();
  return value;
}
"""

_BLOCK_TREE = """
// Afterwards every thread of the block has the result.
template <typename T, typename Op>
__device__ __forceinline__ T across_block(T value, Op op) {
  __shared__ T cells[THREADS];
  cells[threadIdx.x] = value;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) cells[threadIdx.x] = op(cells[threadIdx.x], cells[threadIdx.x + half]);
    __syncthreads();
  }
  value = cells[0];
  __syncthreads();
  return value;
}
"""

_CLUSTER = """
// Afterwards every thread of the cluster has the result. Every reduction has a SLOT of its own, which is written once:
// one barrier after the writes is enough. A barrier at the end of the kernel keeps the shared memory of a block until
// the other blocks have read its last slot.
template <int SLOT, typename T, typename Op>
__device__ __forceinline__ T across_cluster(T value, Op op) {
  __shared__ T part;
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  value = across_block(value, op);
  if (threadIdx.x == 0) part = value;
  cluster.sync();
  GATHER
  return value;
}
"""
# How threads read the parts: with shuffles each thread reads one part, without them each thread reads all.
_GATHER_SHUFFLE = """
  static_assert((CLUSTER & (CLUSTER - 1)) == 0, "CLUSTER has to be a power of two");
  value = *cluster.map_shared_rank(&part, threadIdx.x % CLUSTER);
#pragma unroll
  for (int step = CLUSTER / 2; step > 0; step /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
"""
_GATHER_LOOP = """
  value = *cluster.map_shared_rank(&part, 0);
#pragma unroll
  for (int rank = 1; rank < CLUSTER; ++rank) value = op(value, *cluster.map_shared_rank(&part, rank));
"""

_SMS = """
static int multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 1;
  return count;
}
"""


def library(on: PlanSwitches, kernels: str, *, counts: bool) -> str:
    """The device functions that the kernels of a file call."""
    source = "reinterpret_cast<const W*>(from)"
    load = f"__ldg({source} + i)" if "read-only-loads" in on else f"{source}[i]"
    word = "reinterpret_cast<const W*>(&pack)[i]"
    streams = "streaming-stores" in on
    store = f"__stcs(reinterpret_cast<W*>(to) + i, {word})" if streams else f"reinterpret_cast<W*>(to)[i] = {word}"
    text = _PACK.replace("LOAD", load).replace("STORE", store)
    if "_of()" in kernels:
        text += _OPERATIONS
    shuffles, clusters = "warp-shuffle-reduction" in on, "across_cluster<" in kernels
    blocks = "across_block(" in kernels or clusters
    if "across_warp(" in kernels or (blocks and shuffles):
        text += _WARP
    if blocks:
        text += _BLOCK_SHUFFLE if shuffles else _BLOCK_TREE
    if clusters:
        text += _CLUSTER.replace("  GATHER", (_GATHER_SHUFFLE if shuffles else _GATHER_LOOP).strip("\n"))
    return text + (_SMS if counts else "")
