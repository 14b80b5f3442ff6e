// Group normalisation (TUNE_INSTANCE=1: instance normalisation) of long rows. All blocks of the device go through one list
// of chunks: chunk c belongs to block c % blocks, so that all blocks together read and write a stretch of memory. Each
// warp of a block has one role, so that reading, reducing, meeting and writing overlap:
//   producer   fetches chunks into a ring of shared memory, as far ahead as there is room
//   readers    take the moments of chunks
//   speaker    tells the other blocks what the readers have found of a row: one store of 64 bits
//   listeners  read what all blocks have found, one row each in turn
//   writers    take chunks into registers, which makes room for the producer, and normalise them TUNE_HOLD chunks later,
//              when their rows are known
// Rows that are short or of an odd length go the way of the collection.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

#ifndef TUNE_INSTANCE
#define TUNE_INSTANCE 0
#endif
#ifndef TUNE_READERS
#define TUNE_READERS 8
#endif
#ifndef TUNE_WRITERS
#define TUNE_WRITERS 16
#endif
#ifndef TUNE_LISTENERS
#define TUNE_LISTENERS 2
#endif
#ifndef TUNE_CHUNK
#define TUNE_CHUNK 1024  // packs
#endif
#ifndef TUNE_ROOM
#define TUNE_ROOM 14  // chunks that a block has room for
#endif
#ifndef TUNE_HOLD
#define TUNE_HOLD 1  // chunks that the writers of a block hold in registers
#endif
#ifndef TUNE_REGISTERS
#define TUNE_REGISTERS 0  // of a writer, if not those of all threads
#endif
#ifndef TUNE_HINTS
#define TUNE_HINTS 0  // 1: what is read leaves the second-level cache first, 2: what is written, too
#endif
#ifndef TUNE_SHORTEST
#define TUNE_SHORTEST 32  // chunks of a row, at least
#endif

namespace {
using namespace warpsmith;
using Policy = GroupNorm<Same, TUNE_INSTANCE == 0>;
using Stat = Moments::Stat;

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
__device__ __forceinline__ void tell(uint64_t* cell, const Stat& s) {
  const unsigned mean = __float_as_uint(s.mean);
  store_cell(cell, uint64_t(__float_as_uint(s.square)) << 32 | (mean == ~0u ? 0x7fffffffu : mean));
}
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

// Moments of the packs `first`, `first + step`, ... below `count`, at most PACKS: the deviations are taken from their own
// mean, and that from the first element, so that equal elements have exactly their value and zero.
template <int PACKS, bool ALL>
__device__ __forceinline__ Stat moments_of(const float4* held, int first, int step, int packs) {
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

constexpr int kReaders = TUNE_READERS, kWriters = TUNE_WRITERS, kListeners = TUNE_LISTENERS;
constexpr int kWarps = kReaders + kWriters + kListeners + 2;
constexpr int kChunk = TUNE_CHUNK, kSlots = TUNE_ROOM, kHold = TUNE_HOLD, kRows = kSlots + kHold + 2;
constexpr int kTaken = kChunk / (kReaders * 32), kGiven = kChunk / (kWriters * 32);  // packs of a thread
static_assert(kTaken * kReaders * 32 == kChunk && kGiven * kWriters * 32 == kChunk, "whole packs for each thread");
static_assert(kReaders <= 32 && kWarps <= 32 && kHold <= 32, "a block");
static_assert(TUNE_REGISTERS == 0 || (kWriters % 4 == 0 && kWarps % 4 == 0), "registers change owner four warps at a time");
constexpr int kFewer = TUNE_REGISTERS > 0 ? (65536 / 32 - kWriters * TUNE_REGISTERS) / (kWarps - kWriters) / 8 * 8 : 0;

// The chunks of a block in order: chunk `number` of row `row`.
struct Walk {
  int row, number;
  __device__ __forceinline__ Walk(int chunks) : row(0), number(int(blockIdx.x)) { settle(chunks); }
  __device__ __forceinline__ void settle(int chunks) {
    while (number >= chunks) number -= chunks, ++row;
  }
  __device__ __forceinline__ void advance(int chunks) { number += int(gridDim.x), settle(chunks); }
  __device__ __forceinline__ bool first() const { return number < int(gridDim.x); }  // of the row, in this block
  __device__ __forceinline__ bool last(int chunks) const { return number + int(gridDim.x) >= chunks; }
};

// A row has `chunks` chunks, the last one with `rest` packs.
__global__ void __launch_bounds__(kWarps * 32, 1)
    relay(const __grid_constant__ Policy g, int rows, int chunks, int rest, int64_t packs, Divisor plane_packs, int even,
          uint64_t* cells) {
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[kRows][kReaders];
  __shared__ float2 of_row[kRows];
  __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots], found[kRows], known[kRows];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kSlots; ++k) barrier_init(&full[k], 1), barrier_init(&empty[k], kWriters + kReaders);
    for (int k = 0; k < kRows; ++k) barrier_init(&found[k], kReaders), barrier_init(&known[k], 1);
    barriers_initialised();
  }
  __syncthreads();
  Walk walk(chunks);
  Place<kSlots> place;
  Place<kRows> at;
  if (warp < kWriters) {
#if TUNE_REGISTERS > 0
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TUNE_REGISTERS));
#endif
    const uint64_t soon = leaves_first();
    const int column = int(threadIdx.x);
    Walk put(chunks);  // of what is written, as `walk` of what is taken
    float2 ready = make_float2(0.0f, 0.0f);
    float4 held[kHold][kGiven];
    float2 of_channel[kHold];  // weight and bias
    unsigned used = 0;         // which of them hold a chunk
    auto channel_at = [&](const Walk& w, unsigned pack) {
      const unsigned channel = unsigned(w.row) % g.groups * g.channels + plane_packs.quotient(pack);
      return make_float2(__ldg(g.weight + channel), __ldg(g.bias + channel));
    };
    while (put.row < rows) {
#pragma unroll
      for (int h = 0; h < kHold; ++h) {
        if (used >> h & 1u) {
          if (put.first()) {
            barrier_wait(&known[at.slot], at.parity);
            ready = of_row[at.slot];
          }
          if (put.last(chunks)) at.advance();
          const unsigned begin = unsigned(put.number) * kChunk + column;
          const int count = put.number == chunks - 1 ? rest : kChunk;
          float* out = g.out + (put.row * packs + begin) * 4;
#pragma unroll
          for (int p = 0; p < kGiven; ++p) {
            if (p * (kWriters * 32) + column >= count) break;
            if (!TUNE_INSTANCE && !even) of_channel[h] = channel_at(put, begin + p * (kWriters * 32));
            const float scale = ready.y * of_channel[h].x, shift = of_channel[h].y, mean = ready.x;
            const float4 v = held[h][p];
            const float4 r = make_float4(fmaf(v.x - mean, scale, shift), fmaf(v.y - mean, scale, shift),
                                         fmaf(v.z - mean, scale, shift), fmaf(v.w - mean, scale, shift));
            if (TUNE_HINTS == 2)
              store_hinted(out + p * (kWriters * 128), r, soon);
            else
              store_once(out + p * (kWriters * 128), r);
          }
          put.advance(chunks);
          used &= ~(1u << h);
        }
        if (walk.row < rows) {
          of_channel[h] = make_float2(1.0f, 0.0f);
          if (!TUNE_INSTANCE && even) of_channel[h] = channel_at(walk, unsigned(walk.number) * kChunk + column);
          const float4* from = memory + place.slot * kChunk;
          barrier_wait(&full[place.slot], place.parity);
#pragma unroll
          for (int p = 0; p < kGiven; ++p) held[h][p] = from[p * (kWriters * 32) + column];
          __syncwarp();
          if (lane == 0) barrier_arrive(&empty[place.slot]);
          used |= 1u << h;
          walk.advance(chunks), place.advance();
        }
      }
    }
    return;
  }
#if TUNE_REGISTERS > 0
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFewer));
#endif
  if (warp < kWriters + kReaders) {
    const int number = warp - kWriters, column = number * 32 + lane;
    Stat stat = Moments::none();
    for (; walk.row < rows; walk.advance(chunks), place.advance()) {
      const float4* held = memory + place.slot * kChunk;
      barrier_wait(&full[place.slot], place.parity);
      Stat more;
      if (walk.number < chunks - 1 || rest == kChunk) {
        more = moments_of<kTaken, true>(held, column, kReaders * 32, kTaken);
      } else {
        const int mine = (rest - column + kReaders * 32 - 1) / (kReaders * 32);
        more = mine > 0 ? moments_of<kTaken, false>(held, column, kReaders * 32, mine) : Moments::none();
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(&empty[place.slot]);
      stat = walk.first() ? more : Moments::merge(stat, more);
      if (!walk.last(chunks)) continue;
      const Stat all = warp_merge<Moments>(stat);
      if (lane == 0) {
        of_warps[at.slot][number] = all;
        barrier_arrive(&found[at.slot]);
      }
      __syncwarp();
      at.advance();
    }
  } else if (warp == kWriters + kReaders) {  // speaks
    for (; walk.row < rows; walk.advance(chunks)) {
      if (!walk.first()) continue;
      barrier_wait(&found[at.slot], at.parity);
      const Stat stat = warp_merge<Moments>(lane < kReaders ? of_warps[at.slot][lane] : Moments::none());
      if (lane == 0) tell(cells + int64_t(walk.row) * blocks + walk.number, stat);
      __syncwarp();
      at.advance();
    }
  } else if (warp == kWriters + kReaders + 1) {  // fetches
    const uint64_t soon = leaves_first();
    if (lane == 0)
      for (; walk.row < rows; walk.advance(chunks), place.advance()) {
        const unsigned bytes = unsigned(walk.number == chunks - 1 ? rest : kChunk) * 16;
        const float* from = g.x + (walk.row * packs + int64_t(walk.number) * kChunk) * 4;
        barrier_wait(&empty[place.slot], place.parity ^ 1);
        barrier_expect(&full[place.slot], bytes);
        if (TUNE_HINTS > 0)
          copy_hinted(memory + place.slot * kChunk, from, bytes, &full[place.slot], soon);
        else
          bulk_copy(memory + place.slot * kChunk, from, bytes, &full[place.slot]);
      }
    __syncwarp();
  } else {  // listens: the parts of a row are those of its first chunks, one of each block
    const int parts = chunks < blocks ? chunks : blocks;
    int turn = warp - (kWriters + kReaders + 2);  // rows until the next one of this warp
    for (; walk.row < rows; walk.advance(chunks)) {
      if (!walk.first()) continue;
      if (turn-- == 0) {
        turn = kListeners - 1;
        barrier_wait(&found[at.slot], at.parity);
        const uint64_t* cell = cells + int64_t(walk.row) * blocks;
        Stat all = Moments::none();
        for (int i0 = 0; i0 < parts; i0 += 128) {
          uint64_t word[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) word[k] = i0 + k * 32 + lane < parts ? load_cell(cell + i0 + k * 32 + lane) : 0;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int i = i0 + k * 32 + lane;
            if (i >= parts) break;
            while (word[k] == kNothing) {
              __nanosleep(20);
              word[k] = load_cell(cell + i);
            }
            const int whole = (chunks - i + blocks - 1) / blocks;  // chunks of that block
            int elements = whole * kChunk;
            if (i + (whole - 1) * blocks == chunks - 1) elements -= kChunk - rest;
            all = Moments::merge(all, {4.0f * float(elements), __uint_as_float(unsigned(word[k])),
                                       __uint_as_float(unsigned(word[k] >> 32))});
          }
        }
        __syncwarp();
        all = warp_merge<Moments>(all);
        if (lane == 0) {
          of_row[at.slot] = make_float2(all.mean, rsqrtf(all.square / all.count + g.eps));
          barrier_arrive(&known[at.slot]);
        }
        __syncwarp();
      }
      at.advance();
    }
  }
}

int units() {
  int device = 0, n = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}
bool can_relay(const Policy& g, int64_t rows, int64_t cols) {
  const int64_t packs = cols / 4, chunks = ceil_div(packs, kChunk);
  return cols % 4 == 0 && (TUNE_INSTANCE || g.whole_packs) && chunks >= TUNE_SHORTEST && packs < (int64_t(1) << 29) &&
         chunks <= int64_t(units()) * kSlots && rows < (int64_t(1) << 31);
}
int launch_relay(const Policy& g, int64_t rows, int64_t cols, void* workspace, void* stream) {
  constexpr int bytes = kSlots * kChunk * 16;
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t packs = cols / 4, chunks = ceil_div(packs, kChunk);
  const int blocks = units();
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
  const unsigned plane = g.plane.by / 4;
  e = cudaLaunchKernelEx(&config, relay, g, int(rows), int(chunks), int(packs - (chunks - 1) * kChunk), packs,
                         Divisor(plane < 1 ? 1 : plane), int(plane % kChunk == 0), static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
int64_t needed(int64_t rows, int64_t cols) {
  const int64_t other = rows_workspace<Policy>(rows, cols), cells = rows * units() * 8;
  return other > cells ? other : cells;
}
int normalise(const Policy& g, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows > 0 && cols > 0 && can_relay(g, rows, cols)) return launch_relay(g, rows, cols, workspace, stream);
  return reduce_any_rows(g, rows, cols, workspace, stream);
}
}  // namespace

#if TUNE_INSTANCE
extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return needed(batch * channels, height * width);
}
extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const auto g = group_norm_policy<Same, false>(x, nullptr, nullptr, out, eps, channels, channels, height * width);
  return normalise(g, batch * channels, height * width, workspace, stream);
}
#else
extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t height,
                                   int64_t width) {
  return needed(batch * groups, channels / groups * height * width);
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto g = group_norm_policy<Same, true>(x, weight, bias, out, eps, groups, channels, height * width);
  return normalise(g, batch * groups, channels / groups * height * width, workspace, stream);
}
#endif
