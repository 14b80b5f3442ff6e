// Batch normalisation with the statistics of the batch. All blocks of the device share a channel: each reads its part,
// keeps as much of it as shared memory and registers hold, tells the others what it found, and reads what it could not
// keep once more, last part first, while it is still in the second-level cache. Hints keep everything else out of there.
// Blocks tell each other what they found in words of 64 bits that are written and read whole, so that a meeting is one store
// and one load.
#include <warpsmith/blocks.cuh>
#include <warpsmith/divisor.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 512
#endif
#ifndef TUNE_HELD
#define TUNE_HELD 16  // packs of a thread that stay in registers
#endif
#ifndef TUNE_TOGETHER
#define TUNE_TOGETHER 1  // steps that are read again together
#endif
#ifndef TUNE_PREFETCH
#define TUNE_PREFETCH 0  // packs of a thread of the next channel that are brought to the cache during a meeting
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 216  // KB of shared memory
#endif

namespace {
using namespace warpsmith;

constexpr int N = 4;  // packs of a thread that are loaded together
constexpr int kWarps = TUNE_THREADS / 32;
constexpr int kKept = TUNE_KEPT * 1024 / 16 / kWarps;  // packs that a warp keeps
constexpr int kStep = TUNE_THREADS * N;                // packs of a block that are loaded together
constexpr int kHeld = TUNE_HELD;
constexpr int kTogether = TUNE_TOGETHER;
static_assert(kHeld >= 1 && TUNE_PREFETCH <= kHeld, "what stays in registers");

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
// What all blocks found together, merged in the same order in every block; by a whole warp. `elements`: how many
// each block has.
__device__ __forceinline__ Moments::Stat hear(const uint64_t* cells, int blocks, const float* elements) {
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
    all = Moments::merge(all, {elements[i], __uint_as_float(unsigned(cell[k])),
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
__device__ __forceinline__ void prefetch_bulk(const float* from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__global__ void __launch_bounds__(TUNE_THREADS, 1)
    normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
              float* __restrict__ out, float eps, int batch, int channels, Divisor planes, uint64_t* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 kept[];
  __shared__ Stat of_warps[kWarps];
  __shared__ Stat of_all;
  __shared__ float elements[kCells * 32];  // of a channel, by block
  __shared__ __align__(8) uint64_t arrived[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = int(gridDim.x), rank = int(blockIdx.x);
  const unsigned plane_packs = planes.by;
  const int64_t packs = int64_t(batch) * plane_packs;
  // The first packs of a channel are kept, kKept of them by each warp; behind them come those that stay in registers, kHeld of
  // each thread; the others are shared out in steps.
  const int64_t mine = (int64_t(rank) * kWarps + warp) * kKept;
  const int count = int(packs <= mine ? 0 : packs - mine < kKept ? packs - mine : kKept);
  const unsigned first_held = unsigned(blocks * kWarps * kKept + rank * (TUNE_THREADS * kHeld));
  unsigned in_registers = first_held + threadIdx.x;
  const int64_t all_kept = int64_t(blocks) * (kWarps * kKept + TUNE_THREADS * kHeld);
  const uint64_t soon = leaves_first();
  const int64_t steps = packs > all_kept ? ceil_div(packs - all_kept, kStep) : 0;
  const int turns = int(steps > rank ? (steps - rank + blocks - 1) / blocks : 0);
  float4* held = kept + warp * kKept;
  for (int i = threadIdx.x; i < blocks; i += TUNE_THREADS) {
    auto within = [&](int64_t from, int64_t most) { return packs <= from ? 0 : packs - from < most ? packs - from : most; };
    int64_t n = within(int64_t(i) * kWarps * kKept, kWarps * kKept) +
                within(int64_t(blocks) * kWarps * kKept + int64_t(i) * TUNE_THREADS * kHeld, TUNE_THREADS * kHeld);
    if (steps > i) n += (steps - i + blocks - 1) / blocks * kStep;
    if (steps > 0 && (steps - 1) % blocks == i) n -= all_kept + steps * kStep - packs;
    elements[i] = 4.0f * float(n);
  }
  if (lane == 0) {
    barrier_init(&arrived[warp], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  auto address = [&](unsigned p, int channel) -> int64_t {  // the element at which pack p of a channel begins
    const unsigned image = planes.quotient(p), inside = p - image * plane_packs;
    return ((int64_t(image) * channels + channel) * plane_packs + inside) * 4;
  };
  auto fetch = [&](int channel, int from, int to) {  // by lane 0: packs of this warp
    if (from == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrived[warp])),
                   "r"(unsigned(count) * 16)
                   : "memory");
    to = to < count ? to : count;
    for (int i = from; i < to;) {  // piece by piece where an image ends
      const unsigned p = unsigned(mine + i), left = plane_packs - (p - planes.quotient(p) * plane_packs);
      const int piece = unsigned(to - i) < left ? to - i : int(left);
      copy_hinted(held + i, x + address(p, channel), unsigned(piece) * 16, &arrived[warp], soon);
      i += piece;
    }
  };
  if (lane == 0) fetch(0, 0, count);
  __syncwarp();
#pragma unroll 1
  for (int channel = 0; channel < channels; ++channel) {
    auto place = [&](int turn, int n) -> int64_t {
      const int64_t p = all_kept + (int64_t(turn) * blocks + rank) * kStep + n * TUNE_THREADS + threadIdx.x;
      return p < packs ? address(unsigned(p), channel) : -1;
    };
    float4 own[kHeld];
    int owned = 0;
    asm volatile("" : "+r"(in_registers));  // or the addresses of all channels would be computed beforehand, and spilled
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const unsigned p = in_registers + h * TUNE_THREADS;
      own[h] = make_float4(0, 0, 0, 0);
      if (p < packs) own[h] = load_hinted(x + address(p, channel), soon), ++owned;
    }
    // What came while the channel before was written is reduced while that is on its way.
    Sums sums;
    barrier_wait(&arrived[warp], channel & 1);
    if (lane < count) sums.begin(held[lane]);
#pragma unroll 4
    for (int i = lane; i < count; i += 32) sums.add(held[i]);
    Stat stat = sums.stat((count - lane + 31) / 32);
    int seen = 0;
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      float4 v[N];
      bool there[N];
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int64_t at = place(turn, n);
        there[n] = at >= 0;
        v[n] = make_float4(0, 0, 0, 0);
        if (there[n]) v[n] = load_once(x + at);
      }
      if (turn == 0) sums.begin(v[0]);
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (there[n]) sums.add(v[n]), ++seen;
    }
    stat = Moments::merge(stat, sums.stat(seen));
    sums.begin(own[0]);
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (h < owned) sums.add(own[h]);
    stat = warp_merge<Moments>(Moments::merge(stat, sums.stat(owned)));
    if (lane == 0) of_warps[warp] = stat;
    __syncthreads();
    if (warp == 0) {
      stat = warp_merge<Moments>(lane < kWarps ? of_warps[lane] : Moments::none());
      if (lane == 0) tell(cells + int64_t(channel) * blocks + rank, stat);
      __syncwarp();
      stat = hear(cells + int64_t(channel) * blocks, blocks, elements);
      if (lane == 0) of_all = stat;
    } else if (TUNE_PREFETCH > 0 && lane == 0 && channel + 1 < channels) {
      // The part of the next channel that goes to registers, shared out among the warps that wait.
      constexpr int all = TUNE_THREADS * TUNE_PREFETCH, each = ceil_div(all, kWarps > 1 ? kWarps - 1 : 1);
      const unsigned begin = unsigned(warp - 1) * each;
      unsigned p = first_held + begin, end = first_held + (begin + each < all ? begin + each : all);
      if (end > packs) end = unsigned(packs);
      while (p < end) {
        const unsigned left = plane_packs - (p - planes.quotient(p) * plane_packs);
        const unsigned piece = end - p < left ? end - p : left;
        prefetch_bulk(x + address(p, channel + 1), piece * 16);
        p += piece;
      }
    }
    __syncthreads();
    stat = of_all;
    const float scale = rsqrtf(stat.square / stat.count + eps) * __ldg(weight + channel), shift = __ldg(bias + channel);
    const float mean = stat.mean;
    auto give = [&](int64_t at, const float4& v) {
      const float4 r = make_float4(fmaf(v.x - mean, scale, shift), fmaf(v.y - mean, scale, shift),
                                   fmaf(v.z - mean, scale, shift), fmaf(v.w - mean, scale, shift));
      store_hinted(out + at, r, soon);
    };
    // What was kept goes first: its room is loaded with the next channel while the rest is read again.
#pragma unroll 1
    for (int i0 = 0; i0 < count; i0 += 32 * N) {
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (i0 + n * 32 + lane < count) give(address(unsigned(mine + i0 + n * 32 + lane), channel), held[i0 + n * 32 + lane]);
      __syncwarp();
      if (lane == 0 && channel + 1 < channels) fetch(channel + 1, i0, i0 + 32 * N);
    }
    if (count == 0 && lane == 0 && channel + 1 < channels) fetch(channel + 1, 0, 0);
    __syncwarp();
    asm volatile("" : "+r"(in_registers));
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const unsigned p = in_registers + h * TUNE_THREADS;
      if (p < packs) give(address(unsigned(p), channel), own[h]);
    }
#pragma unroll 1
    for (int turn = turns - 1; turn >= 0; turn -= kTogether) {  // the last ones read are still in the cache
      float4 v[kTogether * N];
      int64_t at[kTogether * N];
#pragma unroll
      for (int n = 0; n < kTogether * N; ++n) {
        at[n] = turn >= n / N ? place(turn - n / N, n % N) : -1;
        if (at[n] >= 0) v[n] = load_hinted(x + at[n], soon);
      }
#pragma unroll
      for (int n = 0; n < kTogether * N; ++n)
        if (at[n] >= 0) give(at[n], v[n]);
    }
  }
}

// Any size: one block per channel, two reads.
__global__ void __launch_bounds__(1024) single(const float* __restrict__ x, const float* __restrict__ weight,
                                               const float* __restrict__ bias, float* __restrict__ out, float eps,
                                               int64_t batch, int64_t channels, int64_t plane) {
  using Stat = Moments::Stat;
  __shared__ Stat of_warps[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t channel = blockIdx.x;
  Stat stat = Moments::none();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = threadIdx.x; i < plane; i += 1024)
      stat = Moments::merge(stat, {1.0f, x[(b * channels + channel) * plane + i], 0.0f});
  stat = warp_merge<Moments>(stat);
  if (lane == 0) of_warps[warp] = stat;
  __syncthreads();
  stat = warp_merge<Moments>(of_warps[lane]);
  const float scale = rsqrtf(stat.square / stat.count + eps) * weight[channel], shift = bias[channel];
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = threadIdx.x; i < plane; i += 1024) {
      const int64_t at = (b * channels + channel) * plane + i;
      out[at] = fmaf(x[at] - stat.mean, scale, shift);
    }
}

int units() {
  int device = 0, n = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return channels * units() * 8;
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t plane = height * width;
  if (batch * channels * plane == 0) return 0;
  if (plane % 4 != 0 || units() > kCells * 32 || batch * plane / 4 >= (int64_t(1) << 31)) {
    single<<<unsigned(channels), 1024, 0, s>>>(x, weight, bias, out, float(eps), batch, channels, plane);
    return int(cudaGetLastError());
  }
  const size_t bytes = size_t(kKept) * kWarps * 16;
  cudaError_t e = cudaFuncSetAttribute(normalise, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (e != cudaSuccess) return int(e);
  e = cudaMemsetAsync(workspace, 0xff, size_t(channels) * units() * 8, s);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(units()));
  config.blockDim = dim3(TUNE_THREADS);
  config.dynamicSmemBytes = bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  e = cudaLaunchKernelEx(&config, normalise, x, weight, bias, out, float(eps), int(batch), int(channels),
                         Divisor(unsigned(plane / 4)), static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
