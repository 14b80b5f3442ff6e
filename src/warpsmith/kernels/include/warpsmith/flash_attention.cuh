// Causal attention with float32 accuracy on the fp16 tensor cores of sm_90a; scores never reach global memory.
//
// q, k, v lie side by side: [batch, length, 3, heads, width]; the result is [batch, length, heads, width].
//
//   1. prepare() of split_product.cuh writes q, k (along the width) and v (along the keys) as pairs of fp16 planes with
//      scales: one scale per position of q and k, one per column and 64 keys of v.
//   2. flash_kernel: one warpgroup owns 64 queries and goes through the keys, 64 at a time, up to the diagonal. One
//      thread copies blocks of k and v to shared memory (cp.async.bulk, a ring of stages) for all warpgroups of a block.
//      A warpgroup computes scores by three products (lo * hi, hi * lo, hi * hi), turns the scores into probabilities
//      with a running maximum, splits the probabilities into hi and lo in registers, and multiplies them by v. The
//      products with each block of v have an accumulator of their own, which is added to the result by float32 adds.
//      A thread block takes two tiles of queries from the beginning and two from the end of a sequence, so that all
//      thread blocks do the same work.
//   3. Rows that come out as NaN (the planes do not hold NaN, infinity and extreme values) are computed again from the
//      float32 values with ordinary arithmetic.
//
// Heads of another width than 64 take plain_kernel: ordinary arithmetic, one warp per query.
#pragma once

#include <warpsmith/split_product.cuh>

namespace warpsmith {
namespace flash {

constexpr int TILE = 64;    // queries of a warpgroup, keys of a step
constexpr int WIDTH = 64;   // of a head
constexpr int BLOCK_BYTES = TILE * WIDTH * 2 * 2;  // hi and lo
constexpr int PLANE_BYTES = BLOCK_BYTES / 2;
constexpr int STEP_BYTES = 2 * TILE * 16;  // 16 terms of a plane
constexpr int MOST_WIDTH = 256;

struct Heads {
  const float* qkv;
  float* out;
  int batch, heads, length, width;
  float scale;  // of the scores
  __host__ __device__ int64_t step() const { return int64_t(3) * heads * width; }
};

// Row `d` of register i of an accumulator or of a first factor that a lane holds: see wgmma.cuh.
__host__ __device__ constexpr int row_of(int warp, int lane, int i) { return 16 * warp + lane / 4 + 8 * (i / 2 % 2); }
__host__ __device__ constexpr int column_of(int lane, int i) { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float warp_max(float x) {
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// One query by ordinary arithmetic: a lane computes the scores of every 32nd key and PARTS columns of the result.
template <int PARTS>
__device__ __forceinline__ void plain_row(const Heads& h, int batch, int head, int row) {
  const int lane = threadIdx.x % 32;
  const int64_t step = h.step(), wide = int64_t(h.heads) * h.width;
  const float* keys = h.qkv + int64_t(batch) * h.length * step + wide + int64_t(head) * h.width;
  const float* query = keys + row * step - wide;
  float top = -INFINITY, sum = 0.f, total[PARTS] = {};
#pragma unroll 1
  for (int first = 0; first <= row; first += 32) {
    const int key = first + lane;
    float score = -INFINITY;
    if (key <= row) {
      score = 0.f;
#pragma unroll 1
      for (int d = 0; d < h.width; ++d) score = fmaf(__ldg(query + d), __ldg(keys + key * step + d), score);
      score *= h.scale;
    }
    // fmaxf drops NaN; the exponential of a NaN score is NaN and reaches the sum.
    const float next = fmaxf(top, warp_max(score)), fade = top == next ? 1.f : expf(top - next);
    const float p = key <= row ? expf(score - next) : 0.f;
    sum = fmaf(sum, fade, warp_sum(p));
    top = next;
    float part[PARTS] = {};
    const int count = min(32, row + 1 - first);
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const float weight = __shfl_sync(0xffffffffu, p, j);
      const float* value = keys + (first + j) * step + wide;
#pragma unroll
      for (int i = 0; i < PARTS; ++i)
        if (lane + 32 * i < h.width) part[i] = fmaf(weight, __ldg(value + lane + 32 * i), part[i]);
    }
#pragma unroll
    for (int i = 0; i < PARTS; ++i) total[i] = fmaf(total[i], fade, part[i]);
  }
  float* to = h.out + (int64_t(batch) * h.length + row) * wide + int64_t(head) * h.width;
#pragma unroll
  for (int i = 0; i < PARTS; ++i)
    if (lane + 32 * i < h.width) to[lane + 32 * i] = total[i] / sum;
}

template <int PARTS>
__global__ void __launch_bounds__(256) plain_kernel(const Heads h) {
  const int64_t works = int64_t(h.batch) * h.heads * h.length;
  for (int64_t work = int64_t(blockIdx.x) * 8 + threadIdx.x / 32; work < works; work += int64_t(gridDim.x) * 8)
    plain_row<PARTS>(h, int(work / h.length / h.heads), int(work / h.length % h.heads), int(work % h.length));
}

// d = a * b + (keep ? d : 0), where the first factor (64 x 16) is in registers: a[0], a[1] hold columns 2 * (lane % 4)
// and the next one of rows lane / 4 and lane / 4 + 8 of the warp, a[2], a[3] the columns that are 8 further on.
__device__ __forceinline__ void multiply_registers(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
}

// Two probabilities as fp16 pairs.
__device__ __forceinline__ void split_pair(float u, float v, uint32_t& hi, uint32_t& lo) {
  const __half2 high = __floats2half2_rn(u, v);
  const float2 back = __half22float2(high);
  const __half2 low = __floats2half2_rn(u - back.x, v - back.y);
  hi = *reinterpret_cast<const uint32_t*>(&high);
  lo = *reinterpret_cast<const uint32_t*>(&low);
}

__device__ __forceinline__ float2 load_pair(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

template <int GROUPS_, int STAGES_>
struct Shape {
  static constexpr int GROUPS = GROUPS_;  // warpgroups, each with a tile of queries
  static constexpr int STAGES = STAGES_;
  static constexpr int THREADS = GROUPS * 128;
  static constexpr int STAGE_BYTES = 2 * BLOCK_BYTES + 2 * TILE * 4;  // k, v, their scales
  static constexpr int SHARED_BYTES = GROUPS * BLOCK_BYTES + STAGES * STAGE_BYTES + (2 * STAGES + 1) * 8 + 128;
  static_assert(SHARED_BYTES <= 232448, "too much shared memory");
};

// The tile of queries of a warpgroup; -1: none. The first two warpgroups of a thread block take tiles from the
// beginning, the others from the end of the sequence.
__host__ __device__ constexpr int blocks_for(int tiles, int groups) { return (tiles + groups - 1) / groups; }
__host__ __device__ constexpr int tile_of(int block, int group, int tiles, int groups) {
  const int early = 2 * blocks_for(tiles, groups);
  if (group < 2) return 2 * block + group < tiles ? 2 * block + group : -1;
  const int late = tiles - 1 - (groups - 2) * block - (group - 2);
  return late >= early ? late : -1;
}

// qk: planes of [batch][length] rows and 2 * heads * 64 terms; v: planes of [batch][heads * 64] rows and `length` terms.
template <class S>
__global__ void __launch_bounds__(S::THREADS, 4 / S::GROUPS)
    flash_kernel(const Heads h, const split::Planes qk, const split::Planes v) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t queries = (split::shared_address(memory) + 127) / 128 * 128;
  const uint32_t stages = queries + S::GROUPS * BLOCK_BYTES;
  const uint32_t full = stages + S::STAGES * S::STAGE_BYTES, empty = full + S::STAGES * 8, ready = empty + S::STAGES * 8;
  const int tiles = qk.tiles, blocks = blocks_for(tiles, S::GROUPS);
  const int block = blockIdx.x % blocks, head = blockIdx.x / blocks % h.heads, batch = blockIdx.x / blocks / h.heads;
  int steps = 0;  // blocks of keys
#pragma unroll
  for (int g = 0; g < S::GROUPS; ++g) steps = max(steps, tile_of(block, g, tiles, S::GROUPS) + 1);

  if (threadIdx.x == 0) {
    for (int s = 0; s < S::STAGES; ++s) {
      split::barrier_init(full + 8 * s, 1);
      split::barrier_init(empty + 8 * s, S::GROUPS * 128);
    }
    split::barrier_init(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  const int64_t chunk = int64_t(batch) * qk.chunks + head, tile_step = int64_t(qk.term_blocks) * BLOCK_BYTES;
  const char* first = qk.blocks + (int64_t(batch) * tiles * qk.term_blocks + head) * BLOCK_BYTES;  // of the queries
  // Where the keys, the values and their scales of step 0 are, in shared memory since registers are scarce.
  __shared__ const char* sources[4];
  // Starts to copy the keys and values of a step to a stage.
  auto fill = [&](int step, int stage) {
    const char* volatile* from = sources;
    const uint32_t arrived = full + 8 * stage, to = stages + stage * S::STAGE_BYTES;
    split::barrier_expect(arrived, S::STAGE_BYTES);
    split::bulk_copy(to, from[0] + int64_t(step) * qk.term_blocks * BLOCK_BYTES, BLOCK_BYTES, arrived);
    split::bulk_copy(to + 2 * BLOCK_BYTES, from[1] + step * (TILE * 4), TILE * 4, arrived);
    split::bulk_copy(to + BLOCK_BYTES, from[2] + int64_t(step) * BLOCK_BYTES, BLOCK_BYTES, arrived);
    split::bulk_copy(to + 2 * BLOCK_BYTES + TILE * 4, from[3] + int64_t(step) * v.tiles * (TILE * 4), TILE * 4, arrived);
  };
  if (threadIdx.x == 0) {
    sources[0] = first + int64_t(h.heads) * BLOCK_BYTES;
    sources[1] = reinterpret_cast<const char*>(qk.scales + (chunk + h.heads) * tiles * TILE);
    sources[2] = v.blocks + (int64_t(batch) * v.tiles + head) * v.term_blocks * BLOCK_BYTES;
    sources[3] = reinterpret_cast<const char*>(v.scales + (int64_t(batch) * v.chunks * v.tiles + head) * TILE);
    int bytes = 0;
    for (int g = 0; g < S::GROUPS; ++g) bytes += tile_of(block, g, tiles, S::GROUPS) < 0 ? 0 : BLOCK_BYTES;
    split::barrier_expect(ready, bytes);
    for (int g = 0; g < S::GROUPS; ++g) {
      const int tile = tile_of(block, g, tiles, S::GROUPS);
      if (tile >= 0) split::bulk_copy(queries + g * BLOCK_BYTES, first + tile * tile_step, BLOCK_BYTES, ready);
    }
    for (int s = 0; s < S::STAGES && s < steps; ++s) fill(s, s);
  }

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
  const int tile = tile_of(block, group, tiles, S::GROUPS);
  uint32_t mine = queries + group * BLOCK_BYTES;
  // Scores are kept as exponents of two. Probabilities are multiplied by 2^7, which keeps small ones out of the
  // subnormal numbers of fp16; the rounding of an exponent that large cannot take them beyond 2^8.
  constexpr float SHIFT = 7.f;
  float rows[2] = {1.f, 1.f};  // factors of the scores
  if (tile >= 0) {
    const float* scales = qk.scales + chunk * tiles * TILE + tile * TILE;
    rows[0] = __ldg(scales + row_of(warp, lane, 0)) * (h.scale * 1.4426950408889634f);
    rows[1] = __ldg(scales + row_of(warp, lane, 2)) * (h.scale * 1.4426950408889634f);
  }
  float base[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};  // running maximum less SHIFT; sum of this lane
  float result[32], scores[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) result[i] = scores[i] = 0.f;
  split::barrier_wait<false>(ready, 0);

  int stage = 0, phase = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    // The stage of the step before the last one is filled again when all warpgroups have left it.
    const int left = step - 2;
    if (threadIdx.x == 0 && left >= 0 && left + S::STAGES < steps) {
      split::barrier_wait<false>(empty + 8 * (left % S::STAGES), left / S::STAGES % 2);
      fill(left + S::STAGES, left % S::STAGES);
    }
    __syncwarp();
    split::barrier_wait<false>(full + 8 * stage, phase);
    if (step <= tile) {
      const uint32_t keys = stages + stage * S::STAGE_BYTES, values = keys + BLOCK_BYTES;
      const uint32_t key_scales = keys + 2 * BLOCK_BYTES + lane % 4 * 8, value_scales = key_scales + TILE * 4;
      asm volatile("" : "+r"(mine));  // descriptors are computed in each step: registers are scarce
      split::touch(scores);
      split::wgmma_begin();
#pragma unroll
      for (int k = 0; k < WIDTH / 16; ++k) {
        const uint32_t a = mine + k * STEP_BYTES, b = keys + k * STEP_BYTES;
        Wgmma<64>::run(scores, split::describe<TILE>(a + PLANE_BYTES), split::describe<TILE>(b), k > 0);
        Wgmma<64>::run(scores, split::describe<TILE>(a), split::describe<TILE>(b + PLANE_BYTES), 1);
      }
#pragma unroll
      for (int k = 0; k < WIDTH / 16; ++k)
        Wgmma<64>::run(scores, split::describe<TILE>(mine + k * STEP_BYTES),
                       split::describe<TILE>(keys + k * STEP_BYTES), 1);
      split::wgmma_commit();
      split::wgmma_wait<0>();
      split::touch(scores);

#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 scale = load_pair(key_scales + j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[4 * j + i] = scores[4 * j + i] * (i % 2 ? scale.y : scale.x) * rows[i / 2];
      }
      if (step == tile) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
          if (column_of(lane, i) > row_of(warp, lane, i)) scores[i] = -INFINITY;
      }
      float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int i = 0; i < 32; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
      float fade[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
        const float next = fmaxf(base[r], top[r] - SHIFT);
        fade[r] = exp2_approximate(base[r] - next);
        base[r] = next;
        sum[r] *= fade[r];
      }
      uint32_t hi[16], lo[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int r = i % 2;
        const float u = exp2_approximate(scores[2 * i] - base[r]), w = exp2_approximate(scores[2 * i + 1] - base[r]);
        sum[r] += u + w;
        split_pair(u, w, hi[i], lo[i]);
      }

#pragma unroll
      for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(hi[i]), "+r"(lo[i])::"memory");
      split::touch(scores);
      split::wgmma_begin();
#pragma unroll
      for (int k = 0; k < TILE / 16; ++k) {
        const uint32_t b = values + k * STEP_BYTES;
        multiply_registers(scores, lo + 4 * k, split::describe<TILE>(b), k > 0);
        multiply_registers(scores, hi + 4 * k, split::describe<TILE>(b + PLANE_BYTES), 1);
      }
#pragma unroll
      for (int k = 0; k < TILE / 16; ++k)
        multiply_registers(scores, hi + 4 * k, split::describe<TILE>(values + k * STEP_BYTES), 1);
      split::wgmma_commit();
#pragma unroll
      for (int i = 0; i < 32; ++i) result[i] *= fade[i / 2 % 2];
      split::wgmma_wait<0>();
      split::touch(scores);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 scale = load_pair(value_scales + j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          result[4 * j + i] = fmaf(scores[4 * j + i], i % 2 ? scale.y : scale.x, result[4 * j + i]);
      }
    }
    split::barrier_arrive(empty + 8 * stage);  // every lane for what it has read itself: racecheck follows no other way
    if (++stage == S::STAGES) stage = 0, phase ^= 1;
  }
  if (tile < 0) return;

  bool flawed[2] = {false, false};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    const int row = tile * TILE + row_of(warp, lane, 2 * r);
    const float factor = 1.f / sum[r];
    float* to = h.out + ((int64_t(batch) * h.length + row) * h.heads + head) * WIDTH + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = result[4 * j + 2 * r] * factor, y = result[4 * j + 2 * r + 1] * factor;
      flawed[r] = flawed[r] || x != x || y != y;
      if (row < h.length) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(x, y);
    }
    flawed[r] = flawed[r] && row < h.length;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t lanes = __ballot_sync(0xffffffffu, flawed[r]);
    if (lanes == 0) continue;
    __syncwarp();
#pragma unroll 1
    for (int quad = 0; quad < 8; ++quad)
      if (lanes >> (4 * quad) & 15) plain_row<WIDTH / 32>(h, batch, head, tile * TILE + row_of(warp, 4 * quad, 2 * r));
  }
}

inline bool fits(const Heads& h) { return h.width == WIDTH && h.batch < 65536; }

inline int64_t plane_bytes(const Heads& h) {
  return fits(h) ? split::plane_bytes(h.batch, h.length, 2 * h.heads * WIDTH, TILE, TILE, TILE).total() +
                       split::plane_bytes(h.batch, h.heads * WIDTH, h.length, TILE, TILE, TILE).total()
                 : 0;
}

template <class S>
inline cudaError_t run(const Heads& h, const split::Planes& qk, const split::Planes& v, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(flash_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
  if (error != cudaSuccess) return error;
  const int64_t blocks = int64_t(h.batch) * h.heads * blocks_for(qk.tiles, S::GROUPS);
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  flash_kernel<S><<<unsigned(blocks), S::THREADS, S::SHARED_BYTES, stream>>>(h, qk, v);
  return cudaGetLastError();
}

// Causal attention; `workspace` has plane_bytes() bytes.
inline cudaError_t attend(const Heads& h, void* workspace, cudaStream_t stream) {
  if (h.width > MOST_WIDTH) return cudaErrorInvalidValue;
  if (!fits(h)) {
    const int64_t blocks = (int64_t(h.batch) * h.heads * h.length + 7) / 8;
    plain_kernel<MOST_WIDTH / 32><<<unsigned(blocks < (1 << 30) ? blocks : (1 << 30)), 256, 0, stream>>>(h);
    return cudaGetLastError();
  }
  char* memory = static_cast<char*>(workspace);
  const int wide = h.heads * WIDTH;
  const split::Planes qk = split::planes_at(memory, h.batch, h.length, 2 * wide, TILE, TILE, TILE);
  memory += split::plane_bytes(h.batch, h.length, 2 * wide, TILE, TILE, TILE).total();
  const split::Planes v = split::planes_at(memory, h.batch, wide, h.length, TILE, TILE, TILE);
  const int64_t step = h.step();
  cudaError_t error =
      split::prepare<TILE, TILE, TILE>(split::Matrix{h.qkv, step, 1, h.length * step}, qk, h.batch, stream);
  if (error == cudaSuccess)
    error = split::prepare<TILE, TILE, TILE>(split::Matrix{h.qkv + 2 * wide, 1, step, h.length * step}, v, h.batch, stream);
  if (error != cudaSuccess) return error;
  return qk.tiles <= 2 ? run<Shape<2, 2>>(h, qk, v, stream) : run<Shape<4, 4>>(h, qk, v, stream);
}

}  // namespace flash
}  // namespace warpsmith
