// Every channel of every image brought to mean zero and variance one. Planes that fit into the shared memory of a cluster of
// blocks are read once: a warp has the same part of every plane, which it reads by bulk copies into a ring of shared memory of
// its own, and the next plane follows as far as there is room. Other planes go the usual way.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

#ifndef TUNE_WARPS
#define TUNE_WARPS 16
#endif
#ifndef TUNE_STEP
#define TUNE_STEP 2  // packs of a lane that are copied together
#endif
#ifndef TUNE_ROOM
#define TUNE_ROOM 224  // KB of shared memory
#endif
#ifndef TUNE_BLOCKS
#define TUNE_BLOCKS 8  // of a cluster
#endif
#ifndef TUNE_EARLY
#define TUNE_EARLY 4  // copies of the next plane that are reduced before the plane's moments are waited for
#endif
#ifndef TUNE_LONG
#define TUNE_LONG 256  // packs of a warp, from which on planes go this way
#endif

namespace {
using namespace warpsmith;
using Policy = GroupNorm<Same, false>;

// Moments of the elements of a thread: sums of differences from the mean of its first pack. Equal elements give exactly their
// value and zero; the squares of differences are at most some times larger than what is left when the mean is known.
struct Sums {
  float pivot, sum, a, b;
  __device__ __forceinline__ void begin(const float4& v) {
    pivot = ((v.x + v.y) + (v.z + v.w)) * 0.25f, sum = a = b = 0.0f;
  }
  __device__ __forceinline__ void add(const float4& v) {
    const float x = v.x - pivot, y = v.y - pivot, z = v.z - pivot, w = v.w - pivot;
    sum += (x + y) + (z + w);
    a = fmaf(x, x, fmaf(y, y, a)), b = fmaf(z, z, fmaf(w, w, b));
  }
  __device__ __forceinline__ Moments::Stat stat(int packs) const {
    if (packs <= 0) return Moments::none();
    const float n = 4.0f * float(packs), mean = sum / n;
    return {n, pivot + mean, fmaxf(fmaf(-sum, mean, a + b), 0.0f)};
  }
};

__device__ __forceinline__ uint64_t leaves_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
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

constexpr int kWarps = TUNE_WARPS, kBlocks = TUNE_BLOCKS, kStep = TUNE_STEP, kCopied = kStep * 32;
constexpr int kSlots = TUNE_ROOM * 1024 / 16 / (kWarps * kCopied);  // copies that a warp has room for

// A warp has `per` packs of every plane, in `copies` copies.
__global__ void __launch_bounds__(kWarps * 32, 1)
    planes(const __grid_constant__ Policy g, int rows, int64_t packs, int per, int copies, int early) {
  namespace cg = cooperative_groups;
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ __align__(8) uint64_t full[kWarps][kSlots], found[2], told[2];
  __shared__ Stat of_warps[2][kWarps];
  __shared__ Stat of_blocks[2][kBlocks];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = int(blockIdx.x % kBlocks);
  const int first = int(blockIdx.x / kBlocks), step = int(gridDim.x / kBlocks);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kWarps * kSlots; ++k) barrier_init(&full[0][k], 1);
    for (int k = 0; k < 2; ++k) barrier_init(&found[k], kWarps), barrier_init(&told[k], kBlocks);
    barriers_initialised();
  }
  cluster_sync();
  const int64_t from = (int64_t(rank) * kWarps + warp) * per, left = packs - from;
  const int count = int(left < per ? (left < 0 ? 0 : left) : per);  // packs of this warp
  const int mine = (count - lane + 31) / 32;                        // of this lane
  const uint64_t soon = leaves_first();
  float4* held = memory + warp * (kSlots * kCopied);
  const float* next = g.x + (first * packs + from) * 4;  // what is fetched next, of the plane of which `rest` packs are left
  int rest = count, copy = 0, next_row = first;
  auto fetch = [&](int slot) {  // by lane 0
    if (next_row >= rows) return;
    const unsigned bytes = rest <= 0 ? 0u : unsigned(rest < kCopied ? rest : kCopied) * 16;
    barrier_expect(&full[warp][slot], bytes);
    if (bytes > 0) copy_hinted(held + slot * kCopied, next, bytes, &full[warp][slot], soon);
    next += kCopied * 4, rest -= kCopied;
    if (++copy == copies) copy = 0, rest = count, next_row += step, next += (step * packs - int64_t(copies) * kCopied) * 4;
  };
  if (lane == 0)
    for (int k = 0; k < kSlots; ++k) fetch(k);
  __syncwarp();

  int slot = 0, again = 0, done = 0;  // `again`: the same slots once more; `done`: copies of the plane that are reduced
  unsigned parity = 0, turn = 0;      // `turn`: planes done
  Sums sums;
  auto reduce = [&](int until) {
#pragma unroll 1
    for (; done < until; ++done) {
      barrier_wait(&full[warp][slot], parity);
      const float4* v = held + slot * kCopied + lane;
      if (done == 0) sums.begin(v[0]);
#pragma unroll
      for (int s = 0; s < kStep; ++s)
        if (done * kStep + s < mine) sums.add(v[s * 32]);
      if (++slot == kSlots) slot = 0, parity ^= 1;
    }
  };
#pragma unroll 1
  for (int row = first; row < rows; row += step, ++turn) {
    const unsigned side = turn & 1, phase = turn >> 1 & 1;
    reduce(copies);
    Stat stat = warp_merge<Moments>(sums.stat(mine));
    if (lane == 0) {
      of_warps[side][warp] = stat;
      barrier_arrive(&found[side]);
    }
    __syncwarp();
    if (warp == 0) {  // speaks for the block
      barrier_wait(&found[side], phase);
      stat = warp_merge<Moments>(lane < kWarps ? of_warps[side][lane] : Moments::none());
      if (lane < kBlocks) {
        *cg::this_cluster().map_shared_rank(&of_blocks[side][rank], lane) = stat;
        barrier_arrive_remote(&told[side], unsigned(lane));
      }
      __syncwarp();
    }
    done = 0;
    if (row + step < rows) reduce(early);
    barrier_wait_cluster(&told[side], phase);
    stat = warp_merge<Moments>(lane < kBlocks ? of_blocks[side][lane] : Moments::none());
    const float mean = stat.mean, scale = rsqrtf(stat.square / stat.count + g.eps);
    float* out = g.out + (row * packs + from + lane) * 4;
#pragma unroll 1
    for (int c = 0; c < copies; ++c, out += kCopied * 4) {
      float4 v[kStep];
#pragma unroll
      for (int s = 0; s < kStep; ++s) v[s] = held[again * kCopied + s * 32 + lane];
      __syncwarp();
      if (lane == 0) fetch(again);
      if (++again == kSlots) again = 0;
#pragma unroll
      for (int s = 0; s < kStep; ++s)
        if (c * kStep + s < mine)
          store_hinted(out + s * 128,
                       make_float4((v[s].x - mean) * scale, (v[s].y - mean) * scale, (v[s].z - mean) * scale,
                                   (v[s].w - mean) * scale),
                       soon);
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

int launch_planes(const Policy& g, int64_t rows, int64_t packs, int per, void* stream) {
  constexpr int bytes = kWarps * kSlots * kCopied * 16;
  const int copies = int(ceil_div(per, kCopied)), room = kSlots - copies;
  int early = TUNE_EARLY < room ? TUNE_EARLY : room, clusters = 0;
  if (early > copies) early = copies;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(kBlocks));
  config.blockDim = dim3(kWarps * 32);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(kBlocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(planes, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, planes, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * kBlocks));
  e = cudaLaunchKernelEx(&config, planes, g, int(rows), packs, per, copies, early);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return rows_workspace<Policy>(batch * channels, height * width);
}
extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const int64_t rows = batch * channels, cols = height * width;
  const auto g = group_norm_policy<Same, false>(x, nullptr, nullptr, out, eps, channels, channels, cols);
  const int64_t per = ceil_div(ceil_div(cols / 4, kBlocks * kWarps), 8) * 8;
  if (rows > 0 && rows < (int64_t(1) << 30) && cols % 4 == 0 && per >= TUNE_LONG && per <= kSlots * kCopied)
    return launch_planes(g, rows, cols / 4, int(per), stream);
  return reduce_any_rows(g, rows, cols, workspace, stream);
}
