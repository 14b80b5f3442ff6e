// Group normalisation of images. All blocks of the device share a group: a warp has the same part of every group, which it
// reads once, by bulk copies into a ring of shared memory of its own. While the blocks learn what the others found of a
// group, the next ones are reduced. Blocks tell each other what they found in words of 64 bits that are written and read
// whole, so that a meeting is one store and one load. Groups that are too short or too long for that go the usual way.
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
#ifndef TUNE_BEHIND
#define TUNE_BEHIND 1  // groups that are reduced before one is written
#endif
#ifndef TUNE_ALIGN
#define TUNE_ALIGN 8  // packs: where the part of a warp may begin
#endif
#ifndef TUNE_LONG
#define TUNE_LONG 64  // packs of a warp, from which on all blocks share a group
#endif

namespace {
using namespace warpsmith;
using Policy = GroupNorm<Same, true>;

// What blocks tell each other: mean and squared deviations in one word. All ones: nothing yet.
constexpr uint64_t kNothing = ~uint64_t(0);
constexpr int kCells = 5;  // of a lane: at most 160 blocks

__device__ __forceinline__ uint64_t load_cell(const uint64_t* from) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_cell(uint64_t* to, uint64_t v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
}
__device__ __forceinline__ void tell(uint64_t* cell, const Moments::Stat& s) {
  const unsigned mean = __float_as_uint(s.mean);
  store_cell(cell, uint64_t(__float_as_uint(s.square)) << 32 | (mean == ~0u ? 0x7fffffffu : mean));
}
// What all blocks found together, merged in the same order in every block; by a whole warp. Each block has `each`
// elements, the last one `last`.
__device__ __forceinline__ Moments::Stat hear(const uint64_t* cells, int blocks, float each, float last) {
  const int lane = threadIdx.x % 32;
  uint64_t cell[kCells];
#pragma unroll
  for (int k = 0; k < kCells; ++k) cell[k] = k * 32 + lane < blocks ? load_cell(cells + k * 32 + lane) : 0;
  Moments::Stat all = Moments::none();
#pragma unroll
  for (int k = 0; k < kCells; ++k) {
    const int i = k * 32 + lane;
    if (i >= blocks) break;
    while (cell[k] == kNothing) {
      __nanosleep(20);
      cell[k] = load_cell(cells + i);
    }
    all = Moments::merge(all, {i == blocks - 1 ? last : each, __uint_as_float(unsigned(cell[k])),
                               __uint_as_float(unsigned(cell[k] >> 32))});
  }
  __syncwarp();
  return warp_merge<Moments>(all);
}

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

constexpr int kWarps = TUNE_WARPS, kStep = TUNE_STEP, kCopied = kStep * 32;
constexpr int kSlots = TUNE_ROOM * 1024 / 16 / (kWarps * kCopied);  // copies that a warp has room for
constexpr int kRows = 4;                                            // groups of which something is remembered
static_assert(TUNE_BEHIND >= 0 && TUNE_BEHIND < kRows, "a group is forgotten before it is written");

// A warp has `per` packs of every group, in `copies` copies.
__global__ void __launch_bounds__(kWarps * 32 + 32, 1)
    spread(const __grid_constant__ Policy g, int rows, int64_t packs, int per, int copies, int behind, float each, float last,
           Divisor plane_packs, uint64_t* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ __align__(8) uint64_t full[kWarps][kSlots], found[kRows], known[kRows];
  __shared__ Stat of_warps[kRows][kWarps];
  __shared__ float2 of_row[kRows];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kWarps * kSlots; ++k) barrier_init(&full[0][k], 1);
    for (int k = 0; k < kRows; ++k) barrier_init(&found[k], kWarps), barrier_init(&known[k], 1);
    barriers_initialised();
  }
  __syncthreads();
  if (warp == kWarps) {  // learns what all blocks have found
    for (int row = 0; row < rows; ++row) {
      const int k = row % kRows;
      uint64_t* cell = cells + int64_t(row) * blocks;
      barrier_wait(&found[k], (row / kRows) & 1);
      Stat stat = warp_merge<Moments>(lane < kWarps ? of_warps[k][lane] : Moments::none());
      if (lane == 0) tell(cell + blockIdx.x, stat);
      __syncwarp();
      stat = hear(cell, blocks, each, last);
      if (lane == 0) {
        of_row[k] = make_float2(stat.mean, rsqrtf(stat.square / stat.count + g.eps));
        barrier_arrive(&known[k]);
      }
      __syncwarp();
    }
    return;
  }
  const int64_t from = (int64_t(blockIdx.x) * kWarps + warp) * per, left = packs - from;
  const int count = int(left < per ? (left < 0 ? 0 : left) : per);  // packs of this warp
  const int mine = (count - lane + 31) / 32;                        // of this lane
  const uint64_t soon = leaves_first();
  float4* held = memory + warp * (kSlots * kCopied);
  const float* next = g.x + from * 4;  // what is fetched next, of the group of which `rest` packs are left
  int rest = count, copy = 0, rows_left = rows;
  auto fetch = [&](int slot) {  // by lane 0
    if (rows_left == 0) return;
    const unsigned bytes = rest <= 0 ? 0u : unsigned(rest < kCopied ? rest : kCopied) * 16;
    barrier_expect(&full[warp][slot], bytes);
    if (bytes > 0) copy_hinted(held + slot * kCopied, next, bytes, &full[warp][slot], soon);
    next += kCopied * 4, rest -= kCopied;
    if (++copy == copies) copy = 0, rest = count, --rows_left, next += (packs - int64_t(copies) * kCopied) * 4;
  };
  if (lane == 0)
    for (int k = 0; k < kSlots; ++k) fetch(k);
  __syncwarp();
  // Most warps have elements of one channel of each group only.
  const unsigned channel = count > 0 ? plane_packs.quotient(unsigned(from)) : 0;
  const bool one = count == 0 || plane_packs.quotient(unsigned(from + count - 1)) == channel;

  int slot = 0, again = 0;  // `again`: the same slots once more
  unsigned parity = 0;
#pragma unroll 1
  for (int row = 0; row < rows + behind; ++row) {
    if (row < rows) {
      Sums sums;
#pragma unroll 1
      for (int c = 0; c < copies; ++c) {
        barrier_wait(&full[warp][slot], parity);
        const float4* v = held + slot * kCopied + lane;
        if (c == 0) sums.begin(v[0]);
#pragma unroll
        for (int s = 0; s < kStep; ++s)
          if (c * kStep + s < mine) sums.add(v[s * 32]);
        if (++slot == kSlots) slot = 0, parity ^= 1;
      }
      const Stat stat = warp_merge<Moments>(sums.stat(mine));
      if (lane == 0) {
        of_warps[row % kRows][warp] = stat;
        barrier_arrive(&found[row % kRows]);
      }
      __syncwarp();
    }
    if (row >= behind) {
      const int written = row - behind, k = written % kRows;
      const unsigned first = unsigned(written) % g.groups * g.channels;
      float weight = __ldg(g.weight + first + channel), shift = __ldg(g.bias + first + channel);
      barrier_wait(&known[k], (written / kRows) & 1);
      const float mean = of_row[k].x, scale = of_row[k].y;
      weight *= scale;
      float* out = g.out + (written * packs + from + lane) * 4;
#pragma unroll 1
      for (int c = 0; c < copies; ++c, out += kCopied * 4) {
        float4 v[kStep];
#pragma unroll
        for (int s = 0; s < kStep; ++s) v[s] = held[again * kCopied + s * 32 + lane];
        __syncwarp();
        if (lane == 0) fetch(again);
        if (++again == kSlots) again = 0;
#pragma unroll
        for (int s = 0; s < kStep; ++s) {
          const int p = c * kStep + s;
          if (p >= mine) continue;
          if (!one) {
            const unsigned other = first + plane_packs.quotient(unsigned(from) + p * 32 + lane);
            weight = __ldg(g.weight + other) * scale, shift = __ldg(g.bias + other);
          }
          const float4 r = make_float4(fmaf(v[s].x - mean, weight, shift), fmaf(v[s].y - mean, weight, shift),
                                       fmaf(v[s].z - mean, weight, shift), fmaf(v[s].w - mean, weight, shift));
          store_hinted(out + s * 128, r, soon);
        }
      }
    }
  }
}

int units() {
  int device = 0, n = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}
// The packs of a warp where all blocks share a group; 0: groups are too short or too long for that.
int shared_out(int64_t packs) {
  const int n = units();
  const int64_t per = ceil_div(ceil_div(packs, int64_t(n) * kWarps), TUNE_ALIGN) * TUNE_ALIGN;
  return n <= kCells * 32 && packs < (int64_t(1) << 29) && per >= TUNE_LONG && per <= kSlots * kCopied ? int(per) : 0;
}
int launch_shared(const Policy& g, int64_t rows, int64_t packs, int per, void* workspace, void* stream) {
  constexpr int bytes = kWarps * kSlots * kCopied * 16;
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t blocks = ceil_div(packs, int64_t(per) * kWarps);
  cudaError_t e = cudaFuncSetAttribute(spread, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e == cudaSuccess) e = cudaMemsetAsync(workspace, 0xff, size_t(rows * blocks) * 8, s);
  if (e != cudaSuccess) return int(e);
  const int copies = int(ceil_div(per, kCopied)), room = kSlots / copies - 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(kWarps * 32 + 32);
  config.dynamicSmemBytes = bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  e = cudaLaunchKernelEx(&config, spread, g, int(rows), packs, per, copies, room < TUNE_BEHIND ? room : TUNE_BEHIND,
                         float(per * kWarps * 4), float((packs - (blocks - 1) * per * kWarps) * 4),
                         Divisor(g.plane.by / 4), static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t height,
                                   int64_t width) {
  const int64_t other = rows_workspace<Policy>(batch * groups, channels / groups * height * width);
  const int64_t cells = batch * groups * kCells * 32 * 8;
  return other > cells ? other : cells;
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto g = group_norm_policy<Same, true>(x, weight, bias, out, eps, groups, channels, height * width);
  const int64_t rows = batch * groups, cols = channels / groups * height * width;
  if (rows > 0 && cols > 0 && rows < (int64_t(1) << 31) && g.whole_packs)
    if (const int per = shared_out(cols / 4)) return launch_shared(g, rows, cols / 4, per, workspace, stream);
  return reduce_any_rows(g, rows, cols, workspace, stream);
}
