// Layer normalisation of long rows, with weight and bias for every element of a row. All blocks of the device share a row
// and have the same columns of every row. Each warp of a block has one role, so that reading, reducing, meeting and writing
// overlap:
//   producer   fetches chunks of a row into a ring of shared memory, as far ahead as there is room
//   readers    take the moments of chunks
//   messenger  tells the other blocks what the readers have found of a row, one store of 64 bits, and reads what they tell
//   writers    normalise chunks of known rows; a thread keeps its weights in registers, and some of its biases, and reads
//              the others again for each row, from the second-level cache
// Rows that do not fit go the way of the collection: the first kernel takes the moments of short pieces, the second brings
// them together, the third normalises.
#include <warpsmith/kept.cuh>

#ifndef TUNE_ROWS
#define TUNE_ROWS 4
#endif
#ifndef TUNE_WRITERS
#define TUNE_WRITERS 12  // warps
#endif
#ifndef TUNE_STEP
#define TUNE_STEP 3  // packs of a writer in a chunk
#endif
#ifndef TUNE_CHUNKS
#define TUNE_CHUNKS 7  // of a row, for one block
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 12  // chunks that a block has room for
#endif
#ifndef TUNE_READERS
#define TUNE_READERS 2
#endif
#ifndef TUNE_BATCH
#define TUNE_BATCH 6  // packs that a reader takes at once
#endif
#ifndef TUNE_BIASES
#define TUNE_BIASES 2  // last chunks of a row of which a writer keeps the biases, too
#endif
#ifndef TUNE_AHEAD
#define TUNE_AHEAD 2  // chunks of which a writer has the biases on their way; those of the first are, while blocks meet
#endif
#ifndef TUNE_REGISTERS
#define TUNE_REGISTERS 152  // of a writer, taken from the other warps (of which there are four); 0: all have the same
#endif
#ifndef TUNE_HINTS
#define TUNE_HINTS 1  // what is used once leaves the second-level cache first, biases last
#endif
#ifndef TUNE_SHORT
#define TUNE_SHORT 16384  // elements of rows that a cluster keeps in registers
#endif

namespace {
using namespace warpsmith;

constexpr int kThreads = 256, kPacks = 4, kPiece = kThreads * kPacks;

struct LayerNorm : Moments {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  float eps;
  struct Ready {
    float mean, scale;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const {
    return {s.mean, rsqrtf(s.square / s.count + eps)};
  }
  static __device__ __forceinline__ float4 apply(const float4& v, const float4& w, const float4& b, const Ready& r) {
    return make_float4(fmaf((v.x - r.mean) * r.scale, w.x, b.x), fmaf((v.y - r.mean) * r.scale, w.y, b.y),
                       fmaf((v.z - r.mean) * r.scale, w.z, b.z), fmaf((v.w - r.mean) * r.scale, w.w, b.w));
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t column) const {
    if (mask == 0xfu && column % 4 == 0) {
      store_once(out + p * 4, apply(v, load_shared_use(weight + column), load_shared_use(bias + column), r));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mask >> e & 1u)
          out[p * 4 + e] = fmaf((part(v, e) - r.mean) * r.scale, __ldg(weight + column + e), __ldg(bias + column + e));
    }
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};

__global__ void __launch_bounds__(kThreads) pieces(const float* __restrict__ x, Moments::Stat* __restrict__ cells,
                                                   unsigned rows, int64_t packs) {
  __shared__ Moments::Stat of_warps[kThreads / 32];
  const int64_t row = blockIdx.x % rows, piece = blockIdx.x / rows;
  float4 v[kPacks];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = piece * kPiece + p * kThreads + threadIdx.x;
    v[p] = make_float4(0, 0, 0, 0);
    if (i < packs) v[p] = load_once(x + (row * packs + i) * 4), bits |= 0xfull << (4 * p);
  }
  Moments::Stat s = warp_merge<Moments>(Moments::local<kPacks>(v, bits));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_merge<Moments>(threadIdx.x < kThreads / 32 ? of_warps[threadIdx.x] : Moments::none());
    if (threadIdx.x == 0) cells[row * (gridDim.x / rows) + piece] = s;
  }
}
__global__ void __launch_bounds__(1024) together(const Moments::Stat* __restrict__ cells, float2* __restrict__ of_rows,
                                                 float eps, int64_t count) {
  __shared__ Moments::Stat of_warps[32];
  Moments::Stat s = Moments::none();
  for (int64_t i = threadIdx.x; i < count; i += 1024) s = Moments::merge(s, cells[blockIdx.x * count + i]);
  s = warp_merge<Moments>(s);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_merge<Moments>(of_warps[threadIdx.x]);
    if (threadIdx.x == 0) of_rows[blockIdx.x] = make_float2(s.mean, rsqrtf(s.square / s.count + eps));
  }
}
__global__ void __launch_bounds__(256) normalise(const LayerNorm l, const float2* __restrict__ of_rows, int rows,
                                                 int64_t packs) {
  const int64_t i = int64_t(gridDim.x - 1 - blockIdx.x) * 256 + threadIdx.x;
  if (i >= packs) return;
  float4 w, b;
  for (int r0 = 0; r0 < rows; r0 += TUNE_ROWS) {
    float4 v[TUNE_ROWS];
#pragma unroll
    for (int r = 0; r < TUNE_ROWS; ++r)
      if (r0 + r < rows) v[r] = load_once(l.x + ((r0 + r) * packs + i) * 4);
    if (r0 == 0) w = load_once(l.weight + i * 4), b = load_once(l.bias + i * 4);
#pragma unroll
    for (int r = 0; r < TUNE_ROWS; ++r)
      if (r0 + r < rows) {
        const float2 m = __ldg(of_rows + r0 + r);
        store_once(l.out + ((r0 + r) * packs + i) * 4, LayerNorm::apply(v[r], w, b, {m.x, m.y}));
      }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// What blocks tell each other: mean and squared deviations in one word. All ones: nothing yet.
constexpr uint64_t kNothing = ~uint64_t(0);

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
// The values of createpolicy.fractional for evict_first and evict_last with 1.0, as constants, which need no registers.
__device__ __forceinline__ constexpr uint64_t leaves_first() { return 0x12F0000000000000ull; }
__device__ __forceinline__ constexpr uint64_t leaves_last() { return 0x14F0000000000000ull; }
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
__device__ __forceinline__ void fewer_registers() {
#if TUNE_REGISTERS > 0
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((65536 / 128 - TUNE_REGISTERS * TUNE_WRITERS / 4) / 8 * 8));
#endif
}
__device__ __forceinline__ void more_registers() {
#if TUNE_REGISTERS > 0
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TUNE_REGISTERS));
#endif
}

// Moments of the packs `first`, `first + step`, ... below `count`, at most PACKS: the deviations are taken from their own
// mean, and that from the first element, so that equal elements have exactly their value and zero.
template <int PACKS, bool ALL>
__device__ __forceinline__ Moments::Stat moments_of(const float4* held, int first, int step, int packs) {
  float4 v[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (ALL || p < packs) v[p] = held[first + p * step];
  const float pivot = v[0].x;
  float low = 0.0f, high = 0.0f;
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (ALL || p < packs) {
      v[p].x -= pivot, v[p].y -= pivot, v[p].z -= pivot, v[p].w -= pivot;
      low += v[p].x + v[p].y, high += v[p].z + v[p].w;
    }
  const float count = ALL ? 4.0f * PACKS : 4.0f * float(packs);
  const float mean = ALL ? (low + high) * (1.0f / (4 * PACKS)) : __fdividef(low + high, count);
  low = high = 0.0f;
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (ALL || p < packs) {
      const float a = v[p].x - mean, b = v[p].y - mean, c = v[p].z - mean, d = v[p].w - mean;
      low = fmaf(a, a, fmaf(b, b, low)), high = fmaf(c, c, fmaf(d, d, high));
    }
  return {count, pivot + mean, low + high};
}

constexpr int kWriters = TUNE_WRITERS, kReaders = TUNE_READERS, kWarps = kWriters + kReaders + 2;
constexpr int kStep = TUNE_STEP, kChunks = TUNE_CHUNKS, kSlots = TUNE_SLOTS, kBiases = TUNE_BIASES;
constexpr int kFetched = kChunks - kBiases;  // chunks of which the biases are read for each row
constexpr int kAhead = TUNE_AHEAD < kFetched ? TUNE_AHEAD : kFetched;
constexpr int kWide = kWriters * 32, kChunk = kWide * kStep, kBatch = TUNE_BATCH, kTaken = kReaders * 32 * kBatch;
constexpr int kRows = kSlots + 2;  // rows of which something is remembered
constexpr int kCells = 5;          // of a lane: at most 160 blocks
static_assert(kChunk % kTaken == 0, "whole batches for the readers");
static_assert(kSlots >= kChunks && kBiases <= kChunks && TUNE_AHEAD >= 1, "a row fits");
// 512 threads begin with 128 registers each: what the roles take adds up to no more, or the first would wait for ever.
static_assert(TUNE_REGISTERS == 0 || kWarps == 16 && kReaders == 2 && kWriters % 4 == 0, "groups of four warps have one role");

// A block has `each` packs of every row, the last one `last`.
__global__ void __launch_bounds__(kWarps * 32, 1)
    relay(const LayerNorm l, int rows, int64_t packs, int each, int last, uint64_t* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[kRows][kReaders];
  __shared__ float2 of_row[kRows];
  __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots], found[kRows], known[kRows];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kSlots; ++k) barrier_init(&full[k], 1), barrier_init(&empty[k], kWriters);
    for (int k = 0; k < kRows; ++k) barrier_init(&found[k], kReaders), barrier_init(&known[k], 1);
    barriers_initialised();
  }
  __syncthreads();
  const int64_t from = int64_t(blockIdx.x) * each;
  const int count = int(blockIdx.x) == blocks - 1 ? last : each;
  const int chunks = (count + kChunk - 1) / kChunk;
  Place<kSlots> place;
  Place<kRows> at;
  if (warp < kWriters) {
    more_registers();
    const uint64_t soon = leaves_first(), late = leaves_last();
    int mine = count - int(threadIdx.x);  // pack p of this thread exists if p * kWide < mine
    const float* bias = l.bias + (from + threadIdx.x) * 4;
    float4 w[kChunks * kStep], kept[kBiases > 0 ? kBiases * kStep : 1];
    float4 next[kAhead > 0 ? kAhead : 1][kStep];
    auto fetch_bias = [&](int p) {
      return TUNE_HINTS ? load_hinted(bias + p * (kWide * 4), late) : load_shared_use(bias + p * (kWide * 4));
    };
#pragma unroll
    for (int p = 0; p < kChunks * kStep; ++p) {
      w[p] = make_float4(0, 0, 0, 0);
      const float* weight = l.weight + (from + threadIdx.x) * 4;
      if (p * kWide < mine)
        w[p] = TUNE_HINTS ? load_hinted(weight + p * (kWide * 4), soon) : load_once(weight + p * (kWide * 4));
    }
#pragma unroll
    for (int p = 0; p < kBiases * kStep; ++p) {
      kept[p] = make_float4(0, 0, 0, 0);
      const int at = (kFetched * kStep + p) * kWide;
      if (at < mine) kept[p] = TUNE_HINTS ? load_hinted(bias + at * 4, soon) : load_once(bias + at * 4);
    }
    float* out = l.out + (from + threadIdx.x) * 4;
#pragma unroll 1
    for (int row = 0; row < rows; ++row, at.advance(), out += packs * 4) {
      asm volatile("" : "+r"(mine));  // or the comparisons with all pack numbers would be kept in registers
#pragma unroll
      for (int p = 0; p < kAhead * kStep; ++p)
        if (p * kWide < mine) next[p / kStep][p % kStep] = fetch_bias(p);
      barrier_wait(&known[at.slot], at.parity);
      const float mean = of_row[at.slot].x, scale = of_row[at.slot].y;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (c >= chunks) break;
        const float4* held = memory + place.slot * kChunk + threadIdx.x;
        float4 v[kStep];
        barrier_wait(&full[place.slot], place.parity);
#pragma unroll
        for (int s = 0; s < kStep; ++s) v[s] = held[s * kWide];
        __syncwarp();
        if (lane == 0) barrier_arrive(&empty[place.slot]);
        place.advance();
#pragma unroll
        for (int s = 0; s < kStep; ++s) {
          const int p = c * kStep + s;
          const bool fetched = c < kFetched;  // known to the compiler, as the loops are unrolled
          v[s] = LayerNorm::apply(v[s], w[p], fetched ? next[fetched ? c % (kAhead > 0 ? kAhead : 1) : 0][s]
                                                      : kept[fetched ? 0 : p - kFetched * kStep], {mean, scale});
        }
        if (c + kAhead < kFetched) {
#pragma unroll
          for (int s = 0; s < kStep; ++s) {
            const int p = (c + kAhead) * kStep + s;
            if (p * kWide < mine) next[c % (kAhead > 0 ? kAhead : 1)][s] = fetch_bias(p);
          }
        }
#pragma unroll
        for (int s = 0; s < kStep; ++s) {
          const int p = c * kStep + s;
          if (p * kWide >= mine) continue;
          if (TUNE_HINTS)
            store_hinted(out + p * (kWide * 4), v[s], soon);
          else
            store_once(out + p * (kWide * 4), v[s]);
        }
      }
    }
  } else {
    fewer_registers();
    if (warp < kWriters + kReaders) {
      const int number = warp - kWriters, column = number * 32 + lane;
#pragma unroll 1
      for (int row = 0; row < rows; ++row, at.advance()) {
        Stat stat = Moments::none();
#pragma unroll 1
        for (int c = 0; c < chunks; ++c, place.advance()) {
          const float4* held = memory + place.slot * kChunk;
          barrier_wait(&full[place.slot], place.parity);
#pragma unroll 1
          for (int i = 0; i < kChunk; i += kTaken) {
            const int left = count - c * kChunk - i, mine = (left - column + kReaders * 32 - 1) / (kReaders * 32);
            if (left >= kTaken)
              stat = Moments::merge(stat, moments_of<kBatch, true>(held + i, column, kReaders * 32, kBatch));
            else if (left > column)
              stat = Moments::merge(stat, moments_of<kBatch, false>(held + i, column, kReaders * 32, mine));
          }
        }
        __syncwarp();
        stat = warp_merge<Moments>(stat);
        if (lane == 0) {
          of_warps[at.slot][number] = stat;
          barrier_arrive(&found[at.slot]);
        }
        __syncwarp();
      }
    } else if (warp == kWriters + kReaders) {  // fetches
      const uint64_t soon = leaves_first();
      if (lane == 0)
        for (int row = 0; row < rows; ++row)
          for (int c = 0; c < chunks; ++c, place.advance()) {
            const int left = count - c * kChunk;
            const unsigned bytes = unsigned(left < kChunk ? left : kChunk) * 16;
            const float* source = l.x + (row * packs + from + c * kChunk) * 4;
            barrier_wait(&empty[place.slot], place.parity ^ 1);
            barrier_expect(&full[place.slot], bytes);
            if (TUNE_HINTS)
              copy_hinted(memory + place.slot * kChunk, source, bytes, &full[place.slot], soon);
            else
              bulk_copy(memory + place.slot * kChunk, source, bytes, &full[place.slot]);
          }
      __syncwarp();
    } else {  // carries messages
#pragma unroll 1
      for (int row = 0; row < rows; ++row, at.advance()) {
        uint64_t* cell = cells + int64_t(row) * blocks;
        barrier_wait(&found[at.slot], at.parity);
        Stat all = warp_merge<Moments>(lane < kReaders ? of_warps[at.slot][lane] : Moments::none());
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
          all = Moments::merge(all, {4.0f * float(i == blocks - 1 ? last : each), __uint_as_float(unsigned(word[k])),
                                     __uint_as_float(unsigned(word[k] >> 32))});
        }
        __syncwarp();
        all = warp_merge<Moments>(all);
        if (lane == 0) {
          of_row[at.slot] = make_float2(all.mean, rsqrtf(all.square / all.count + l.eps));
          barrier_arrive(&known[at.slot]);
        }
        __syncwarp();
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
// The packs of a block where all blocks share a row; 0: rows are too short or too long for that.
int shared_out(int64_t packs) {
  const int n = units();
  const int64_t each = ceil_div(ceil_div(packs, n), 8) * 8;
  return n <= kCells * 32 && each * 4 >= TUNE_SHORT / 4 && each <= kChunks * kChunk ? int(each) : 0;
}
int launch_relay(const LayerNorm& l, int64_t rows, int64_t packs, int each, void* workspace, void* stream) {
  constexpr int bytes = kSlots * kChunk * 16;
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t blocks = ceil_div(packs, each);
  cudaError_t e = cudaFuncSetAttribute(relay, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e == cudaSuccess) e = cudaMemsetAsync(workspace, 0xff, size_t(rows * blocks) * 8, s);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(kWarps * 32);
  config.dynamicSmemBytes = bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  e = cudaLaunchKernelEx(&config, relay, l, int(rows), packs, each, int(packs - (blocks - 1) * each),
                         static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  const int64_t count = ceil_div(channels * height * width / 4, kPiece), cells = batch * kCells * 32 * 8;
  const int64_t other = ceil_div(batch * 8, 256) * 256 + batch * count * int64_t(sizeof(Moments::Stat));
  return other > cells ? other : cells;
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  LayerNorm l;
  l.x = x, l.weight = weight, l.bias = bias, l.out = out, l.eps = float(eps);
  const int64_t cols = channels * height * width, packs = cols / 4, count = ceil_div(packs, kPiece);
  if (batch == 0 || cols == 0) return 0;
  if (cols <= TUNE_SHORT || cols % 4 != 0) return reduce_rows(l, batch, cols, stream);
  if (const int each = shared_out(packs))
    if (batch < (int64_t(1) << 31)) return launch_relay(l, batch, packs, each, workspace, stream);
  auto* of_rows = static_cast<float2*>(workspace);
  auto* cells = reinterpret_cast<Moments::Stat*>(static_cast<char*>(workspace) + ceil_div(batch * 8, 256) * 256);
  pieces<<<unsigned(batch * count), kThreads, 0, s>>>(x, cells, unsigned(batch), packs);
  together<<<unsigned(batch), 1024, 0, s>>>(cells, of_rows, l.eps, count);
  normalise<<<unsigned(ceil_div(packs, 256)), 256, 0, s>>>(l, of_rows, int(batch), packs);
  return int(cudaGetLastError());
}
