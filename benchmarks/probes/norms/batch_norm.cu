// Batch normalisation with the statistics of the batch. All blocks of the device share a channel, whose chunks they have in
// turn. A block keeps some chunks of a channel in registers and some in shared memory, and reads the others again while they
// are in the second-level cache. Each warp of a block has one role, so that reading, reducing, meeting and writing overlap:
//   writers    keep chunks in registers; when a channel is known they write them and load those of the next channel in their
//              place, then write what is in shared memory, then read the others again and write them
//   scouts     read the chunks that are kept nowhere for the first time, no more than some chunks ahead of the writers
//   producer   fetches the chunks that are kept in shared memory
//   readers    take their moments
//   messenger  tells the other blocks what was found of a channel, one store of 64 bits, and reads what they tell
// The meeting of a channel is over while the last chunks of the channel before are written. Channels of other sizes go the
// way of the collection.
#include <warpsmith/kept.cuh>
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
#ifndef TUNE_KEPT
#define TUNE_KEPT 216  // KB of shared memory
#endif

#ifndef TUNE_CHUNK
#define TUNE_CHUNK 1024  // packs
#endif
#ifndef TUNE_WRITERS
#define TUNE_WRITERS 8  // warps
#endif
#ifndef TUNE_SCOUTS
#define TUNE_SCOUTS 4
#endif
#ifndef TUNE_READERS
#define TUNE_READERS 2
#endif
#ifndef TUNE_BATCH
#define TUNE_BATCH 4  // packs that a reader takes at once
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 14  // chunks that a block keeps in shared memory
#endif
#ifndef TUNE_OWN
#define TUNE_OWN 6  // chunks that the writers of a block keep in registers
#endif
#ifndef TUNE_AHEAD
#define TUNE_AHEAD 2  // chunks that are on their way to a writer that reads again, and to a scout
#endif
#ifndef TUNE_EARLY
#define TUNE_EARLY 5  // chunks that scouts are ahead of writers
#endif
#ifndef TUNE_REGISTERS
#define TUNE_REGISTERS 168  // of a writer, and of a scout below; the other four warps have what is left; 0: all the same
#endif
#ifndef TUNE_SCOUT_REGISTERS
#define TUNE_SCOUT_REGISTERS 112
#endif
#ifndef TUNE_LAST
#define TUNE_LAST 0  // 1: what is read again is to leave the second-level cache last
#endif

namespace {
using namespace warpsmith;

constexpr int N = 4;  // packs of a thread that are loaded together
constexpr int kWarps = TUNE_THREADS / 32;
constexpr int kKept = TUNE_KEPT * 1024 / 16 / kWarps;  // packs that a warp keeps
constexpr int kStep = TUNE_THREADS * N;                // packs of a block that are loaded together
constexpr int kHeld = TUNE_HELD;
constexpr int kTogether = TUNE_TOGETHER;
static_assert(kHeld <= 16, "a bit for each element");

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
__global__ void __launch_bounds__(TUNE_THREADS, 1)
    normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
              float* __restrict__ out, float eps, int batch, int channels, Divisor planes, unsigned* counters,
              Moments::Stat* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 kept[];
  __shared__ Stat of_warps[kWarps];
  __shared__ Stat of_all;
  __shared__ __align__(8) uint64_t arrived[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = int(gridDim.x), rank = int(blockIdx.x);
  const unsigned plane_packs = planes.by;
  const int64_t packs = int64_t(batch) * plane_packs;
  // The first packs of a channel are kept, kKept of them by each warp; the others are shared out in steps.
  const int64_t mine = (int64_t(rank) * kWarps + warp) * kKept;
  const int count = int(packs <= mine ? 0 : packs - mine < kKept ? packs - mine : kKept);
  // Behind them come those that stay in registers, kHeld of each thread.
  unsigned in_registers = unsigned(blocks * kWarps * kKept + rank * (TUNE_THREADS * kHeld)) + threadIdx.x;
  const int64_t all_kept = int64_t(blocks) * (kWarps * kKept + TUNE_THREADS * kHeld);
  const uint64_t soon = leaves_first();
  const int64_t steps = packs > all_kept ? ceil_div(packs - all_kept, kStep) : 0;
  const int turns = int(steps > rank ? (steps - rank + blocks - 1) / blocks : 0);
  float4* held = kept + warp * kKept;
  if (lane == 0) {
    barrier_init(&arrived[warp], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  auto address = [&](unsigned p, int channel) -> int64_t {  // the element at which pack p of a channel begins
    const unsigned image = planes.quotient(p), inside = p - image * plane_packs;
    return ((int64_t(image) * channels + channel) * plane_packs + inside) * 4;
  };
  auto fetch = [&](int channel) {  // by lane 0
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrived[warp])),
                 "r"(unsigned(count) * 16)
                 : "memory");
    for (int i = 0; i < count;) {  // piece by piece where an image ends
      const unsigned p = unsigned(mine + i), left = plane_packs - p % plane_packs;
      const int piece = unsigned(count - i) < left ? count - i : int(left);
      copy_hinted(held + i, x + address(p, channel), unsigned(piece) * 16, &arrived[warp], soon);
      i += piece;
    }
  };
  if (lane == 0) fetch(0);
  __syncwarp();
  for (int channel = 0; channel < channels; ++channel) {
    auto place = [&](int turn, int n) -> int64_t {
      const int64_t p = all_kept + (int64_t(turn) * blocks + rank) * kStep + n * TUNE_THREADS + threadIdx.x;
      return p < packs ? address(unsigned(p), channel) : -1;
    };
    Stat stat = Moments::none();
    auto take = [&](const float4 (&v)[N], unsigned long long bits) {
      stat = Moments::merge(stat, Moments::local<N>(v, bits));
    };
    float4 own[kHeld > 0 ? kHeld : 1];
    unsigned long long own_bits = 0;
    asm volatile("" : "+r"(in_registers));  // or the addresses of all channels would be computed beforehand, and spilled
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const unsigned p = in_registers + h * TUNE_THREADS;
      own[h] = make_float4(0, 0, 0, 0);
      if (p < packs) own[h] = load_hinted(x + address(p, channel), soon), own_bits |= 0xfull << (4 * h);
    }
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      float4 v[N];
      unsigned long long bits = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int64_t at = place(turn, n);
        v[n] = make_float4(0, 0, 0, 0);
        if (at >= 0) v[n] = load_once(x + at), bits |= 0xfull << (4 * n);
      }
      take(v, bits);
    }
    if (kHeld > 0) stat = Moments::merge(stat, Moments::local<(kHeld > 0 ? kHeld : 1)>(own, own_bits));
    barrier_wait(&arrived[warp], channel & 1);
#pragma unroll 1
    for (int i0 = 0; i0 < count; i0 += 32 * N) {
      float4 v[N];
      unsigned long long bits = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        v[n] = make_float4(0, 0, 0, 0);
        if (i0 + n * 32 + lane < count) v[n] = held[i0 + n * 32 + lane], bits |= 0xfull << (4 * n);
      }
      take(v, bits);
    }
    stat = warp_merge<Moments>(stat);
    if (lane == 0) of_warps[warp] = stat;
    __syncthreads();
    if (warp == 0) {
      stat = warp_merge<Moments>(lane < kWarps ? of_warps[lane] : Moments::none());
      stat = meet<Moments>(stat, cells + int64_t(channel) * blocks, counters + channel, rank, blocks);
      if (lane == 0) of_all = stat;
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
    for (int i0 = 0; i0 < count; i0 += 32 * N)
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (i0 + n * 32 + lane < count) give(address(unsigned(mine + i0 + n * 32 + lane), channel), held[i0 + n * 32 + lane]);
    __syncwarp();
    if (lane == 0 && channel + 1 < channels) fetch(channel + 1);
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

// ---------------------------------------------------------------------------------------------------------------------
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
// The values of createpolicy.fractional for evict_first, evict_normal and evict_last with 1.0, as constants, which need no
// registers.
constexpr uint64_t kSoon = 0x12F0000000000000ull, kLate = TUNE_LAST ? 0x14F0000000000000ull : 0x1000000000000000ull;

// Moments of the packs of a thread: the deviations are taken from their own mean, and that from the first element, so that
// equal elements have exactly their value and zero.
template <int PACKS>
__device__ __forceinline__ Moments::Stat moments_of(const float4* v) {
  const float pivot = v[0].x;
  float low = 0.0f, high = 0.0f;
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    low += (v[p].x - pivot) + (v[p].y - pivot), high += (v[p].z - pivot) + (v[p].w - pivot);
  const float off = (low + high) * (1.0f / (4 * PACKS));
  low = high = 0.0f;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const float a = (v[p].x - pivot) - off, b = (v[p].y - pivot) - off;
    const float c = (v[p].z - pivot) - off, d = (v[p].w - pivot) - off;
    low = fmaf(a, a, fmaf(b, b, low)), high = fmaf(c, c, fmaf(d, d, high));
  }
  return {4.0f * PACKS, pivot + off, low + high};
}

constexpr int kWriters = TUNE_WRITERS, kScouts = TUNE_SCOUTS, kReaders = TUNE_READERS, kFinders = kWriters + kScouts + kReaders;
constexpr int kChunk = TUNE_CHUNK, kSlots = TUNE_SLOTS, kOwn = TUNE_OWN, kAhead = TUNE_AHEAD, kBatch = TUNE_BATCH;
constexpr int kWide = kWriters * 32, kGiven = kChunk / kWide, kSeen = kChunk / (kScouts * 32), kTaken = kReaders * 32 * kBatch;
constexpr int kRows = 4;      // channels of which something is remembered
constexpr int kOthers = 128;  // at most so many chunks are kept nowhere
static_assert(kGiven * kWide == kChunk && kSeen * kScouts * 32 == kChunk && kChunk % kTaken == 0, "whole packs");
// 512 threads begin with 128 registers each: what the roles take adds up to no more, or the first would wait for ever.
static_assert(TUNE_REGISTERS == 0 || kFinders == 14 && kWriters % 4 == 0 && kScouts % 4 == 0 && kReaders == 2,
              "groups of four warps have one role");
#if TUNE_REGISTERS > 0
constexpr int kServants =  // registers of the other warps
    (512 - TUNE_REGISTERS * (kWriters / 4) - TUNE_SCOUT_REGISTERS * (kScouts / 4)) / 8 * 8;
#endif

// A channel has `chunks` chunks, at least one for each block; an image has `per_plane` of them.
__global__ void __launch_bounds__((kFinders + 2) * 32, 1)
    relay(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
          float* __restrict__ out, float eps, int channels, int chunks, Divisor per_plane, uint64_t* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[kRows][kFinders];
  __shared__ float2 of_row[kRows];
  __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots], found[kRows], known[kRows], passed[kOthers];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kSlots; ++k) barrier_init(&full[k], 1), barrier_init(&empty[k], kWriters);
    for (int k = 0; k < kRows; ++k) barrier_init(&found[k], kFinders), barrier_init(&known[k], 1);
    for (int k = 0; k < kOthers; ++k) barrier_init(&passed[k], kWriters);
    barriers_initialised();
  }
  __syncthreads();
  // The chunks of this block in a channel: `first`, `first + blocks`, ... Those in registers come first, then those in
  // shared memory.
  int first = int(blockIdx.x);
  const int shift = chunks % blocks;  // the next channel begins so many blocks later
  auto after = [&](int now) { return now < shift ? now - shift + blocks : now - shift; };
  auto count_of = [&](int now) { return (chunks - now + blocks - 1) / blocks; };
  auto own_of = [&](int now) { return count_of(now) < kOwn ? count_of(now) : kOwn; };
  auto kept_of = [&](int now) { return count_of(now) - own_of(now) < kSlots ? count_of(now) - own_of(now) : kSlots; };
  auto others_of = [&](int now) { return count_of(now) - own_of(now) - kept_of(now); };
  auto address = [&](int channel, int now, int k) -> int64_t {  // the element at which chunk k of this block begins
    const unsigned chunk = unsigned(now + k * blocks), image = per_plane.quotient(chunk);
    return ((int64_t(image) * channels + channel) * per_plane.by + (chunk - image * per_plane.by)) * (kChunk * 4);
  };
  Place<kSlots> place;
  Place<kRows> at;
  auto tell_block = [&](Stat stat) {  // what this warp has found of a channel
    stat = warp_merge<Moments>(stat);
    if (lane == 0) {
      of_warps[at.slot][warp] = stat;
      barrier_arrive(&found[at.slot]);
    }
    __syncwarp();
  };
  auto wait_before = [&](int channel) {  // nobody is more than two channels ahead of what is known
    if (channel >= 2) barrier_wait(&known[(channel - 2) % kRows], ((channel - 2) / kRows) & 1);
  };
  if (warp < kWriters) {
#if TUNE_REGISTERS > 0
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TUNE_REGISTERS));
#endif
    const int column = int(threadIdx.x) * 4;
    float4 own[kOwn * kGiven];
    auto load_own = [&](int k, int channel, int now) {
      const float* from = x + address(channel, now, k) + column;
#pragma unroll
      for (int p = 0; p < kGiven; ++p) own[k * kGiven + p] = load_hinted(from + p * (kWide * 4), kSoon);
    };
    auto own_stat = [&](int count) {
      Stat stat = Moments::none();
#pragma unroll
      for (int k = 0; k < kOwn; ++k)
        if (k < count) stat = Moments::merge(stat, moments_of<kGiven>(own + k * kGiven));
      tell_block(stat);
    };
    Place<kRows> before;
#pragma unroll
    for (int k = 0; k < kOwn; ++k)
      if (k < own_of(first)) load_own(k, 0, first);
    own_stat(own_of(first));
    at.advance();
#pragma unroll 1
    for (int channel = 0; channel < channels; ++channel, before.advance()) {
      const int next = after(first), count = own_of(first), kept = kept_of(first), others = others_of(first);
      const bool more = channel + 1 < channels;
      const float gain = __ldg(weight + channel), low = __ldg(bias + channel);
      barrier_wait(&known[before.slot], before.parity);
      const float mean = of_row[before.slot].x, scale = of_row[before.slot].y * gain;
      auto give = [&](float* to, const float4& v) {
        store_hinted(to, make_float4(fmaf(v.x - mean, scale, low), fmaf(v.y - mean, scale, low), fmaf(v.z - mean, scale, low),
                                     fmaf(v.w - mean, scale, low)), kSoon);
      };
#pragma unroll
      for (int k = 0; k < kOwn; ++k) {
        if (k < count) {
          float* to = out + address(channel, first, k) + column;
#pragma unroll
          for (int p = 0; p < kGiven; ++p) give(to + p * (kWide * 4), own[k * kGiven + p]);
        }
        if (more && k < own_of(next)) load_own(k, channel + 1, next);
      }
#pragma unroll 1
      for (int k = 0; k < kept; ++k, place.advance()) {
        const float4* held = memory + place.slot * kChunk + threadIdx.x;
        float4 v[kGiven];
        barrier_wait(&full[place.slot], place.parity);
#pragma unroll
        for (int p = 0; p < kGiven; ++p) v[p] = held[p * kWide];
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[place.slot]);
        float* to = out + address(channel, first, count + k) + column;
#pragma unroll
        for (int p = 0; p < kGiven; ++p) give(to + p * (kWide * 4), v[p]);
      }
      // What is read again. The part of the next channel that is in registers is told on the way, when scouts have read
      // theirs.
      const int turn = others > TUNE_EARLY ? others - TUNE_EARLY : 0;
      float4 v[kAhead][kGiven];
      auto load_again = [&](int a, int k) {
        const float* from = x + address(channel, first, count + kept + k) + column;
#pragma unroll
        for (int p = 0; p < kGiven; ++p) v[a][p] = load_hinted(from + p * (kWide * 4), kSoon);
      };
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (a < others) load_again(a, a);
      bool told = !more;
#pragma unroll 1
      for (int k0 = 0; k0 < others; k0 += kAhead) {
        if (!told && k0 >= turn) own_stat(own_of(next)), told = true;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const int k = k0 + a;
          if (k >= others) break;
          float* to = out + address(channel, first, count + kept + k) + column;
#pragma unroll
          for (int p = 0; p < kGiven; ++p) give(to + p * (kWide * 4), v[a][p]);
          if (k + kAhead < others) load_again(a, k + kAhead);
          __syncwarp();
          if (lane == 0) barrier_arrive(&passed[k]);
        }
      }
      // Every phase of these barriers is a channel.
      if (lane == 0)
        for (int k = others; k < kOthers && k <= chunks / blocks; ++k) barrier_arrive(&passed[k]);
      __syncwarp();
      if (!told) own_stat(own_of(next));
      at.advance();
      first = next;
    }
  } else if (warp < kWriters + kScouts) {
#if TUNE_REGISTERS > 0
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(TUNE_SCOUT_REGISTERS));
#endif
    const int column = int(threadIdx.x - kWide) * 4;
#pragma unroll 1
    for (int channel = 0; channel < channels; ++channel, at.advance(), first = after(first)) {
      const int others = others_of(first), skipped = own_of(first) + kept_of(first);
      float4 v[kAhead][kSeen];
      auto load = [&](int a, int k) {
        // Chunk k waits until the writers have read chunk k - EARLY of the channel before.
        if (channel > 0 && k >= TUNE_EARLY) barrier_wait(&passed[k - TUNE_EARLY], (channel - 1) & 1);
        const float* from = x + address(channel, first, skipped + k) + column;
#pragma unroll
        for (int p = 0; p < kSeen; ++p) v[a][p] = load_hinted(from + p * (kScouts * 128), kLate);
      };
      Stat stat = Moments::none();
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (a < others) load(a, a);
#pragma unroll 1
      for (int k0 = 0; k0 < others; k0 += kAhead)
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (k0 + a >= others) break;
          stat = Moments::merge(stat, moments_of<kSeen>(v[a]));
          if (k0 + a + kAhead < others) load(a, k0 + a + kAhead);
        }
      wait_before(channel);
      tell_block(stat);
    }
  } else {
#if TUNE_REGISTERS > 0
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kServants));
#endif
    if (warp < kFinders) {
      const int column = (warp - kWriters - kScouts) * 32 + lane;
#pragma unroll 1
      for (int channel = 0; channel < channels; ++channel, at.advance(), first = after(first)) {
        const int kept = kept_of(first);
        Stat stat = Moments::none();
#pragma unroll 1
        for (int k = 0; k < kept; ++k, place.advance()) {
          barrier_wait(&full[place.slot], place.parity);
#pragma unroll 1
          for (int i = 0; i < kChunk; i += kTaken) {
            float4 v[kBatch];
#pragma unroll
            for (int p = 0; p < kBatch; ++p) v[p] = memory[place.slot * kChunk + i + p * (kReaders * 32) + column];
            stat = Moments::merge(stat, moments_of<kBatch>(v));
          }
        }
        wait_before(channel);
        tell_block(stat);
      }
    } else if (warp == kFinders) {  // fetches
      if (lane == 0)
        for (int channel = 0; channel < channels; ++channel, first = after(first)) {
          const int kept = kept_of(first), skipped = own_of(first);
          for (int k = 0; k < kept; ++k, place.advance()) {
            barrier_wait(&empty[place.slot], place.parity ^ 1);
            barrier_expect(&full[place.slot], kChunk * 16);
            copy_hinted(memory + place.slot * kChunk, x + address(channel, first, skipped + k), kChunk * 16,
                        &full[place.slot], kSoon);
          }
        }
      __syncwarp();
    } else {  // carries messages
      int begins = 0;  // the block that has the first chunk of the channel
#pragma unroll 1
      for (int channel = 0; channel < channels; ++channel, at.advance()) {
        uint64_t* cell = cells + int64_t(channel) * blocks;
        barrier_wait(&found[at.slot], at.parity);
        Stat all = warp_merge<Moments>(lane < kFinders ? of_warps[at.slot][lane] : Moments::none());
        if (lane == 0) tell(cell + blockIdx.x, all);
        __syncwarp();
        uint64_t word[kCells];
#pragma unroll
        for (int k = 0; k < kCells; ++k) word[k] = k * 32 + lane < blocks ? load_cell(cell + k * 32 + lane) : 0;
        all = Moments::none();
#pragma unroll
        for (int k = 0; k < kCells; ++k) {
          const int i = k * 32 + lane;
          if (i >= blocks) break;
          while (word[k] == kNothing) {
            __nanosleep(20);
            word[k] = load_cell(cell + i);
          }
          const int elements = count_of(i < begins ? i - begins + blocks : i - begins) * (kChunk * 4);
          all = Moments::merge(all, {float(elements), __uint_as_float(unsigned(word[k])),
                                     __uint_as_float(unsigned(word[k] >> 32))});
        }
        __syncwarp();
        all = warp_merge<Moments>(all);
        if (lane == 0) {
          of_row[at.slot] = make_float2(all.mean, rsqrtf(all.square / all.count + eps));
          barrier_arrive(&known[at.slot]);
        }
        __syncwarp();
        begins = (begins + shift) % blocks;
      }
    }
  }
}
int launch_relay(const float* x, const float* weight, const float* bias, float* out, float eps, int64_t batch,
                 int64_t channels, int64_t plane_packs, int blocks, void* workspace, cudaStream_t s) {
  constexpr int bytes = kSlots * kChunk * 16;
  cudaError_t e = cudaFuncSetAttribute(relay, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e == cudaSuccess) e = cudaMemsetAsync(workspace, 0xff, size_t(channels) * blocks * 8, s);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3((kFinders + 2) * 32);
  config.dynamicSmemBytes = bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  const int64_t per_plane = plane_packs / kChunk;
  e = cudaLaunchKernelEx(&config, relay, x, weight, bias, out, eps, int(channels), int(batch * per_plane),
                         Divisor(unsigned(per_plane)), static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return ceil_div(channels * 4, 256) * 256 + channels * units() * int64_t(sizeof(Moments::Stat));
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t plane = height * width;
  if (batch * channels * plane == 0) return 0;
  if (plane % 4 != 0 || batch * plane / 4 >= (int64_t(1) << 31)) {
    single<<<unsigned(channels), 1024, 0, s>>>(x, weight, bias, out, float(eps), batch, channels, plane);
    return int(cudaGetLastError());
  }
  const int64_t chunks = batch * (plane / 4 / kChunk);
  const int blocks = units();
  if (plane / 4 % kChunk == 0 && blocks <= kCells * 32 && chunks >= blocks && chunks < (int64_t(1) << 24) &&
      chunks / blocks < kOwn + kSlots + kOthers)
    return launch_relay(x, weight, bias, out, float(eps), batch, channels, plane / 4, blocks, workspace, s);
  const size_t bytes = size_t(kKept) * kWarps * 16;
  cudaError_t e = cudaFuncSetAttribute(normalise, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (e != cudaSuccess) return int(e);
  e = cudaMemsetAsync(workspace, 0, size_t(channels) * 4, s);
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
  auto* cells = reinterpret_cast<Moments::Stat*>(static_cast<char*>(workspace) + ceil_div(channels * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, normalise, x, weight, bias, out, float(eps), int(batch), int(channels),
                         Divisor(unsigned(plane / 4)), static_cast<unsigned*>(workspace), cells);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
