// Layer normalisation of long rows, with weight and bias for every element of a row. All blocks of the device share a row:
// a warp has the same columns of every row, whose weights stay in its registers. A row is read once, by bulk copies into a
// ring of shared memory of each warp, and the next row follows as far as there is room. Blocks tell each other what they
// found of a row in words of 64 bits that are written and read whole, so that a meeting is one store and one load.
// Rows that do not fit go another way: the first kernel takes the moments of short pieces, the second brings them together,
// the third normalises.
#include <warpsmith/blocks.cuh>

#ifndef TUNE_ROWS
#define TUNE_ROWS 4
#endif
#ifndef TUNE_WARPS
#define TUNE_WARPS 12
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 22  // packs of a row that a lane has: so many weights stay in registers
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 18  // pieces of 64 packs that a warp has room for
#endif
#ifndef TUNE_EARLY
#define TUNE_EARLY 3  // pieces of the next row that are reduced before the row's moments are waited for
#endif
#ifndef TUNE_AHEAD
#define TUNE_AHEAD 4  // packs of bias that are loaded before they are used
#endif
#ifndef TUNE_ALIGN
#define TUNE_ALIGN 8  // packs: where the part of a warp may begin
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
__device__ __forceinline__ uint64_t leaves_last() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
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

constexpr int kWarps = TUNE_WARPS, kOwn = TUNE_PACKS, kSlots = TUNE_SLOTS;
constexpr int kStep = 2, kCopied = kStep * 32, kCopies = kOwn / kStep;  // packs of a lane and of a copy, copies per row
constexpr int kAhead = TUNE_AHEAD;
static_assert(kOwn % kStep == 0 && kSlots >= kCopies + TUNE_EARLY && TUNE_EARLY <= kCopies, "a row fits");

// A warp has `per` packs of every row.
__global__ void __launch_bounds__(kWarps * 32, 1)
    spread(const LayerNorm l, int rows, int64_t packs, int per, float each, float last, uint64_t* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ __align__(8) uint64_t full[kWarps][kSlots], found[2], known[2];
  __shared__ Stat of_warps[2][kWarps];
  __shared__ LayerNorm::Ready of_row[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < kWarps * kSlots; ++k) barrier_init(&full[0][k], 1);
    for (int k = 0; k < 2; ++k) barrier_init(&found[k], kWarps), barrier_init(&known[k], 1);
    barriers_initialised();
  }
  __syncthreads();
  const int64_t from = (int64_t(blockIdx.x) * kWarps + warp) * per, left = packs - from;
  const int count = int(left < per ? (left < 0 ? 0 : left) : per);  // packs of this warp
  int mine = (count - lane + 31) / 32;                              // of this lane
  const uint64_t soon = leaves_first(), late = leaves_last();
  float4* held = memory + warp * (kSlots * kCopied);
  const float* next = l.x + from * 4;  // what is fetched next, of the row of which `rest` packs are left
  int rest = count, copy = 0, rows_left = rows;
  auto fetch = [&](int slot) {  // by lane 0
    if (rows_left == 0) return;
    const unsigned bytes = rest <= 0 ? 0u : unsigned(rest < kCopied ? rest : kCopied) * 16;
    barrier_expect(&full[warp][slot], bytes);
    if (bytes > 0) copy_hinted(held + slot * kCopied, next, bytes, &full[warp][slot], soon);
    next += kCopied * 4, rest -= kCopied;
    if (++copy == kCopies) copy = 0, rest = count, --rows_left, next += (packs - kOwn * 32) * 4;
  };
  if (lane == 0)
    for (int k = 0; k < kSlots; ++k) fetch(k);
  __syncwarp();
  float4 w[kOwn];
  const int64_t at = from + lane;
#pragma unroll
  for (int p = 0; p < kOwn; ++p) {
    w[p] = make_float4(0, 0, 0, 0);
    if (p < mine) w[p] = load_hinted(l.weight + (at + p * 32) * 4, soon);
  }

  int slot = 0, again = 0, done = 0;  // `again`: the same slots once more; `done`: copies of the row that are reduced
  unsigned parity = 0;
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
  for (int row = 0; row < rows; ++row) {
    asm volatile("" : "+r"(mine));  // or comparisons with all pack numbers would be kept in registers
    reduce(kCopies);
    const unsigned turn = (row >> 1) & 1;
    uint64_t* cell = cells + int64_t(row) * blocks;
    Stat stat = warp_merge<Moments>(sums.stat(mine));
    if (lane == 0) {
      of_warps[row & 1][warp] = stat;
      barrier_arrive(&found[row & 1]);
    }
    __syncwarp();
    if (warp == 0) {  // speaks for the block
      barrier_wait(&found[row & 1], turn);
      stat = warp_merge<Moments>(lane < kWarps ? of_warps[row & 1][lane] : Moments::none());
      if (lane == 0) tell(cell + blockIdx.x, stat);
      __syncwarp();
    }
    done = 0;
    if (row + 1 < rows) reduce(TUNE_EARLY);
    if (warp == 0) {
      stat = hear(cell, blocks, each, last);
      if (lane == 0) {
        of_row[row & 1] = l.prepare(stat, row);
        barrier_arrive(&known[row & 1]);
      }
      __syncwarp();
    }
    float4 b[kAhead];
#pragma unroll
    for (int p = 0; p < kAhead; ++p)
      if (p < mine) b[p] = load_hinted(l.bias + (at + p * 32) * 4, late);
    barrier_wait(&known[row & 1], turn);
    const LayerNorm::Ready ready = of_row[row & 1];
    float* out = l.out + (row * packs + at) * 4;
#pragma unroll
    for (int p0 = 0; p0 < kOwn; p0 += kStep) {
      float4 v[kStep];
#pragma unroll
      for (int s = 0; s < kStep; ++s) v[s] = held[again * kCopied + s * 32 + lane];
      __syncwarp();
      if (lane == 0) fetch(again);
      if (++again == kSlots) again = 0;
#pragma unroll
      for (int s = 0; s < kStep; ++s) {
        const int p = p0 + s;
        if (p < mine) store_hinted(out + p * 128, LayerNorm::apply(v[s], w[p], b[p % kAhead], ready), soon);
        if (p + kAhead < kOwn && p + kAhead < mine) b[p % kAhead] = load_hinted(l.bias + (at + (p + kAhead) * 32) * 4, late);
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
// The packs of a warp where all blocks share a row; 0: rows are too short or too long for that.
int shared_out(int64_t packs) {
  const int n = units();
  const int64_t per = ceil_div(ceil_div(packs, int64_t(n) * kWarps), TUNE_ALIGN) * TUNE_ALIGN;
  return n <= kCells * 32 && per <= kOwn * 32 && per >= kOwn * 8 ? int(per) : 0;
}
int launch_spread(const LayerNorm& l, int64_t rows, int64_t packs, int per, void* workspace, cudaStream_t s) {
  constexpr int bytes = kWarps * kSlots * kCopied * 16;
  const int64_t blocks = ceil_div(packs, int64_t(per) * kWarps);
  cudaError_t e = cudaFuncSetAttribute(spread, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
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
  e = cudaLaunchKernelEx(&config, spread, l, int(rows), packs, per, float(per * kWarps * 4),
                         float((packs - (blocks - 1) * per * kWarps) * 4), static_cast<uint64_t*>(workspace));
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  const int64_t count = ceil_div(channels * height * width / 4, kPiece);
  const int64_t pieces = ceil_div(batch * 8, 256) * 256 + batch * count * int64_t(sizeof(Moments::Stat));
  return pieces > batch * kCells * 32 * 8 ? pieces : batch * kCells * 32 * 8;
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  LayerNorm l;
  l.x = x, l.weight = weight, l.bias = bias, l.out = out, l.eps = float(eps);
  const int64_t cols = channels * height * width, packs = cols / 4, count = ceil_div(packs, kPiece);
  if (batch == 0 || cols == 0) return 0;
  if (cols <= TUNE_SHORT || cols % 4 != 0) return reduce_rows(l, batch, cols, stream);
  if (const int per = batch < (int64_t(1) << 31) ? shared_out(packs) : 0)
    return launch_spread(l, batch, packs, per, workspace, s);
  auto* of_rows = static_cast<float2*>(workspace);
  auto* cells = reinterpret_cast<Moments::Stat*>(static_cast<char*>(workspace) + ceil_div(batch * 8, 256) * 256);
  pieces<<<unsigned(batch * count), kThreads, 0, s>>>(x, cells, unsigned(batch), packs);
  together<<<unsigned(batch), 1024, 0, s>>>(cells, of_rows, l.eps, count);
  normalise<<<unsigned(ceil_div(packs, 256)), 256, 0, s>>>(l, of_rows, int(batch), packs);
  return int(cudaGetLastError());
}
