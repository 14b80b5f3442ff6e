// swiglu: silu(x @ gate.T) * (x @ up.T).
//
// Many rows: the rows of gate and up are taken in turn as the columns of one product, so that both sums an element of the
// result needs are neighbours in one thread, which joins them before they are stored.
//
// At most 64 rows: `multiply` would spend most of its time on writing the split weights and reading them again, 12 bytes for
// each weight instead of 4. `multiply_few` reads gate and up once, as they are. The weights are the first factor of the
// tensor cores' products: each thread fetches its elements of 128 rows by 64 terms into a place of its own in shared memory,
// three such chunks ahead, and splits them in registers. x is split beforehand. The list of all chunks is cut into equal
// parts, one for each multiprocessor; where a part ends within a tile, the sums go through memory, as all do. 64 rows of x are
// the second factor of one instruction. More would take a second pass, which costs as much as the first: 0.32 ms for
// 64 x 4096 x 14336 on an H200, where `multiply` takes 0.44 ms, most of it for the weights and so the same for more rows.
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/flash_attention.cuh>
#include <warpsmith/matmul.cuh>

namespace {
using namespace warpsmith;

constexpr int kX = 64, kRows = 128, kChunk = 64, kXStages = 4, kAhead = 3, kSlots = kAhead + 1, kPieces = 8;
constexpr int kFlush = 2;  // chunks whose products are added on the tensor cores
constexpr int kWorkers = 256, kThreads = kWorkers + 32;
constexpr int kPlane = kX * kChunk * 2, kXBytes = 2 * kPlane;    // a chunk of x: hi, lo
constexpr int kStep = 2 * kX * 16;                               // 16 terms of a plane
constexpr int kWBytes = kWorkers * kPieces * 16;                 // a chunk of weights
constexpr int kShared = 1024 + kXStages * kXBytes + kSlots * kWBytes;
constexpr float kLow = 2048.f;

struct Weights {  // rows of gate and up in turn
  const float *gate, *up;
  int64_t cols;
  __device__ __forceinline__ const float* row(int64_t n) const { return (n % 2 ? up : gate) + n / 2 * cols; }
};
struct Parts {
  int tiles, chunks, blocks, segments;  // segments of a block: the most tiles it can have a part of
  float* sums;                          // [block, segment, x row, row of the tile]
  float* most;                          // [block, segment, row of the tile]: largest absolute value
  __host__ __device__ int64_t first(int block) const { return int64_t(tiles) * chunks * block / blocks; }
};

// The power of two that brings the largest element of a row of x between 1 and 2, and its inverse.
__global__ void __launch_bounds__(256) measure(const float* __restrict__ x, int64_t cols, float2* __restrict__ scales) {
  __shared__ float of_warps[8];
  float most = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 256) most = fmaxf(most, fabsf(x[blockIdx.x * cols + c]));
  most = flash::warp_max(most);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 1; w < 8; ++w) most = fmaxf(most, of_warps[w]);
  int exponent = 0;
  if (most > 0.f && most <= 3e38f) frexpf(most, &exponent), --exponent;
  exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
  scales[blockIdx.x] = make_float2(ldexpf(1.f, -exponent), ldexpf(1.f, exponent));
}

// The place of a term in its chunk: threads load eight neighbouring terms, of which an instruction takes four.
__device__ __forceinline__ int term_at(int place) {
  const int step = place / 16, q = place % 16, quad = q % 8 / 2, element = q / 8 * 2 + q % 2;
  return step / 2 * 32 + quad * 8 + step % 2 * 4 + element;
}
__global__ void __launch_bounds__(256) split_x(const float* __restrict__ x, int rows, int64_t cols,
                                               const float2* __restrict__ scales, char* __restrict__ to) {
  char* chunk = to + int64_t(blockIdx.x) * kXBytes;
  for (int i = int(threadIdx.x); i < kX * kChunk / 2; i += 256) {  // pairs of terms
    const int row = i / (kChunk / 2), place = i % (kChunk / 2) * 2;
    float v[2];
    for (int e = 0; e < 2; ++e) {
      const int64_t c = int64_t(blockIdx.x) * kChunk + term_at(place + e);
      v[e] = row < rows && c < cols ? x[row * cols + c] * scales[row].x : 0.f;
    }
    const __half2 high = __floats2half2_rn(v[0], v[1]);
    const float2 back = __half22float2(high);
    const __half2 low = __floats2half2_rn((v[0] - back.x) * kLow, (v[1] - back.y) * kLow);
    const int at = place / 8 * (kX * 16) + row * 16 + place % 8 * 2;
    *reinterpret_cast<__half2*>(chunk + at) = high;
    *reinterpret_cast<__half2*>(chunk + kPlane + at) = low;
  }
}

__device__ __forceinline__ void fetch_piece(uint32_t to, const float* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}
__device__ __forceinline__ float largest(const float4& v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

__global__ void __launch_bounds__(kThreads, 1)
    multiply_few(Weights weights, int64_t count, int64_t cols, const char* __restrict__ x, Parts parts) {
  extern __shared__ __align__(1024) char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + kXStages;
  char* of_x = memory + 1024;
  char* of_w = of_x + kXStages * kXBytes;
  const int64_t begin = parts.first(int(blockIdx.x)), end = parts.first(int(blockIdx.x) + 1);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kXStages; ++s) barrier_init(full + s, 1), barrier_init(empty + s, kWorkers / 32);
    barriers_initialised();
  }
  __syncthreads();
  if (threadIdx.x >= kWorkers) {  // fetches x
    if (threadIdx.x > kWorkers) return;
    int stage = 0;
    unsigned parity = 0;
    for (int64_t unit = begin; unit < end; ++unit) {
      barrier_wait(empty + stage, parity ^ 1);
      bulk_fetch(of_x + stage * kXBytes, x + unit % parts.chunks * kXBytes, kXBytes, full + stage);
      if (++stage == kXStages) stage = 0, parity ^= 1;
    }
    return;
  }
  const int lane = threadIdx.x % 32, row = int(threadIdx.x) / 32 * 16 + lane / 4;  // and the row eight further on
  const uint32_t mine = shared_address(of_w) + threadIdx.x * 16;
  auto fetch = [&](int64_t unit, int slot) {
    if (unit < end) {
      const int64_t n = unit / parts.chunks * kRows + row, c = unit % parts.chunks * kChunk + lane % 4 * 8;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {  // row, half of the chunk, four of the eight terms
        const int64_t of = n + p / 4 * 8, at = c + p / 2 % 2 * 32 + p % 2 * 4;
        const bool exists = of < count && at < cols;
        fetch_piece(mine + slot * kWBytes + p * (kWorkers * 16), exists ? weights.row(of) + at : weights.gate, exists);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int a = 0; a < kAhead; ++a) fetch(begin + a, a);
  float total[32], sum[32], small[32], most[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 32; ++i) total[i] = 0.f;
  int slot = 0, stage = 0, added = 0;  // added: chunks in `sum`
  unsigned parity = 0;
  bool fresh = true;  // nothing in `small`
  for (int64_t unit = begin; unit < end; ++unit) {
    fetch(unit + kAhead, slot + kAhead < kSlots ? slot + kAhead : slot + kAhead - kSlots);
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead) : "memory");
    uint32_t hi[16], lo[16];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const float4 v = *reinterpret_cast<const float4*>(of_w + slot * kWBytes + p * (kWorkers * 16) + threadIdx.x * 16);
      most[p / 4] = fmaxf(most[p / 4], largest(v));
      const int at = p % 4 * 4 + p / 4;  // step * 4 + which of the two rows
      const __half2 a = __floats2half2_rn(v.x, v.y), b = __floats2half2_rn(v.z, v.w);
      const float2 u = __half22float2(a), w = __half22float2(b);
      const __half2 c = __floats2half2_rn((v.x - u.x) * kLow, (v.y - u.y) * kLow);
      const __half2 d = __floats2half2_rn((v.z - w.x) * kLow, (v.w - w.y) * kLow);
      hi[at] = *reinterpret_cast<const uint32_t*>(&a), hi[at + 2] = *reinterpret_cast<const uint32_t*>(&b);
      lo[at] = *reinterpret_cast<const uint32_t*>(&c), lo[at + 2] = *reinterpret_cast<const uint32_t*>(&d);
    }
    barrier_wait(full + stage, parity);
    const uint32_t planes = shared_address(of_x) + stage * kXBytes;
    split::touch(sum), split::touch(small);
    split::wgmma_begin();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint64_t high = split::describe<kX>(planes + s * kStep), low = split::describe<kX>(planes + kPlane + s * kStep);
      flash::multiply_registers(sum, hi + 4 * s, high, added > 0 || s > 0);
      flash::multiply_registers(small, hi + 4 * s, low, !fresh || s > 0);
      flash::multiply_registers(small, lo + 4 * s, high, 1);
    }
    split::wgmma_commit();
    split::wgmma_wait<0>();
    split::touch(sum), split::touch(small);
    if (lane == 0) barrier_arrive(empty + stage);
    __syncwarp();
    fresh = false, ++added;
    const bool last = unit % parts.chunks == parts.chunks - 1 || unit == end - 1;
    if (added == kFlush || last) {
      added = 0;
#pragma unroll
      for (int i = 0; i < 32; ++i) total[i] += sum[i];
    }
    if (last) {
      const int64_t segment = int64_t(blockIdx.x) * parts.segments + (unit / parts.chunks - begin / parts.chunks);
      float* to = parts.sums + segment * (kX * kRows);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        to[flash::column_of(lane, i) * kRows + row + 8 * (i / 2 % 2)] = total[i] + small[i] * (1.f / kLow);
        total[i] = 0.f;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        if (lane % 4 == 0) parts.most[segment * kRows + row + 8 * r] = most[r];
        most[r] = 0.f;
      }
      fresh = true;
    }
    if (++slot == kSlots) slot = 0;
    if (++stage == kXStages) stage = 0, parity ^= 1;
  }
}

// Adds the parts of two neighbouring rows of weights and joins them. Sums that fp16 cannot have given are computed again.
__global__ void __launch_bounds__(64) finish(const float* __restrict__ x, Weights weights, int rows, int64_t width,
                                             int64_t cols, const float2* __restrict__ scales, Parts parts,
                                             float* __restrict__ out) {
  const int tile = int(blockIdx.x), pair = int(threadIdx.x);
  const int64_t w = int64_t(tile) * (kRows / 2) + pair;
  if (w >= width) return;
  const int64_t begin = int64_t(tile) * parts.chunks, end = begin + parts.chunks;
  int first = int(begin * parts.blocks / (int64_t(parts.tiles) * parts.chunks));
  while (first > 0 && parts.first(first) > begin) --first;
  while (parts.first(first + 1) <= begin) ++first;
  float most[2] = {0.f, 0.f};
  for (int b = first; b < parts.blocks && parts.first(b) < end; ++b) {
    const int64_t segment = int64_t(b) * parts.segments + (tile - parts.first(b) / parts.chunks);
    const float2 m = *reinterpret_cast<const float2*>(parts.most + segment * kRows + 2 * pair);
    most[0] = fmaxf(most[0], m.x), most[1] = fmaxf(most[1], m.y);
  }
  for (int row = int(blockIdx.y); row < rows; row += int(gridDim.y)) {
    float sum[2] = {0.f, 0.f};
    for (int b = first; b < parts.blocks && parts.first(b) < end; ++b) {
      const int64_t segment = int64_t(b) * parts.segments + (tile - parts.first(b) / parts.chunks);
      const float2 s = *reinterpret_cast<const float2*>(parts.sums + (segment * kX + row) * kRows + 2 * pair);
      sum[0] += s.x, sum[1] += s.y;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      sum[e] *= scales[row].y;
      if (!(fabsf(sum[e]) <= 3e38f) || (most[e] < 0x1p-12f && most[e] > 0.f)) {
        const float* from = weights.row(2 * w + e);
        sum[e] = 0.f;
        for (int64_t c = 0; c < cols; ++c) sum[e] = fmaf(x[row * cols + c], from[c], sum[e]);
      }
    }
    out[row * width + w] = sum[0] / (1.f + expf(-sum[0])) * sum[1];
  }
}

struct Gated {
  static constexpr bool REPAIRS = true;
  float* out;
  int64_t width;
  __device__ __forceinline__ bool by_rows() const { return false; }
  __device__ __forceinline__ float* row_at(int64_t, int) const { return out; }
  __device__ __forceinline__ void finish(int64_t, int, int, float&, float&) const {}
  __device__ __forceinline__ void store(int64_t, int64_t, int row, int column, float gate, float up) const {
    out[row * width + column / 2] = gate / (1.f + expf(-gate)) * up;
  }
};

bool few(int64_t rows, int64_t cols, int64_t width) {
  return rows > 0 && rows <= kX && cols > 0 && cols % 4 == 0 && width > 0;
}
Parts parts_of(int64_t cols, int64_t width) {
  Parts p = {};
  p.tiles = int((2 * width + kRows - 1) / kRows), p.chunks = int((cols + kChunk - 1) / kChunk);
  const int64_t units = int64_t(p.tiles) * p.chunks, sms = split::multiprocessors();
  p.blocks = int(units < sms ? units : sms);
  p.segments = int(units / p.blocks / p.chunks + 2);
  return p;
}
int64_t aligned(int64_t bytes) { return split::round_up(bytes, 256); }
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols, int64_t width) {
  if (!few(rows, cols, width)) return multiply_bytes({1, rows, cols, 2 * width, true});
  const Parts p = parts_of(cols, width);
  const int64_t segments = int64_t(p.blocks) * p.segments;
  return 1024 + int64_t(p.chunks) * kXBytes + aligned(segments * kX * kRows * 4) + segments * kRows * 4;
}

extern "C" int launch(const float* x, const float* gate, const float* up, float* out, int64_t rows, int64_t cols,
                      int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (!few(rows, cols, width)) {
    const Product p{1, rows, cols, 2 * width, true};
    return int(multiply(p, plain(x, rows, cols), split::Interleaved{gate, up, cols}, Gated{out, width}, workspace, s));
  }
  Parts p = parts_of(cols, width);
  char* memory = static_cast<char*>(workspace);
  float2* scales = reinterpret_cast<float2*>(memory);
  char* planes = memory + 1024;
  p.sums = reinterpret_cast<float*>(planes + int64_t(p.chunks) * kXBytes);
  p.most = reinterpret_cast<float*>(reinterpret_cast<char*>(p.sums) + aligned(int64_t(p.blocks) * p.segments * kX * kRows * 4));
  const Weights weights{gate, up, cols};
  const cudaError_t e = cudaFuncSetAttribute(multiply_few, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (e != cudaSuccess) return int(e);
  measure<<<unsigned(rows), 256, 0, s>>>(x, cols, scales);
  split_x<<<unsigned(p.chunks), 256, 0, s>>>(x, int(rows), cols, scales, planes);
  multiply_few<<<unsigned(p.blocks), kThreads, kShared, s>>>(weights, 2 * width, cols, planes, p);
  finish<<<dim3(unsigned(p.tiles), 8), 64, 0, s>>>(x, weights, int(rows), width, cols, scales, p, out);
  return int(cudaGetLastError());
}
