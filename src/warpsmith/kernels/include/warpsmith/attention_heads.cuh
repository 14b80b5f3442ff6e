// Attention with float32 accuracy on the fp16 tensor cores of sm_90a, for q, k, v in three tensors:
// softmax(q * k^T * scale) * v for every head, causal or not, any lengths. Scores never reach global memory. A tensor is
// [heads, length, width], or [batch, length, heads, width]. For heads that are at most 128 wide; wider ones take plain
// arithmetic, which is slow.
//
//   1. prepare_heads writes q, k (along the width) and v (along the keys) as pairs of fp16 planes with scales, in the
//      layout of split_product.cuh: one scale per row of q and k, one per column and 64 keys of v. Heads are filled up
//      with zeros to a width of 64 or 128, lengths to a multiple of 64.
//   2. attention_kernel: one warpgroup owns 64 queries and goes through the keys, 64 at a time, as flash_kernel of
//      flash_attention.cuh does: scores by three products, a running maximum, probabilities split in registers, three
//      products with the values, whose sums are added to float32 registers after every 64 keys. One thread copies keys
//      and values to shared memory for the warpgroups of its block, one step ahead.
//   3. Rows that come out as NaN (the planes do not hold NaN, infinity and extreme values) are computed again from the
//      float32 values with ordinary arithmetic.
//
// A causal query r sees the keys 0 to r, and no later one, whatever the later ones hold.
// Few queries with few keys take ordinary arithmetic as well: one warp per query.
#pragma once

#include <warpsmith/flash_attention.cuh>

namespace warpsmith {
namespace attention {

constexpr int TILE = flash::TILE;  // queries of a warpgroup, keys of a step
constexpr int STAGES = 2;
constexpr int MOST_WIDTH = 128;              // of the tensor cores' kernel
constexpr int64_t MOST_BYTES = 256ll << 20;  // of planes at a time, where that is more than one head
constexpr int64_t MOST_BLOCKS = 1ll << 30;

// How many heads lie side by side at each position of a tensor: 1 for [heads, length, width].
struct Beside {
  int64_t q = 1, k = 1, v = 1, out = 1;
};

struct Heads {
  const float *q, *k, *v;
  float* out;
  int64_t stack, queries, keys, width;  // stack: heads, in all batches
  float scale;                          // of the scores
  bool safe;                            // a query all of whose scores are -inf gives zeros, otherwise NaN
  Beside beside = {};
  int64_t first = 0;  // the head with which the planes begin

  // Where a head begins. Its rows are width * beside numbers apart.
  __device__ __forceinline__ int64_t begin(int64_t head, int64_t length, int64_t beside) const {
    return head / beside * beside * length * width + head % beside * width;
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Ordinary arithmetic
// ---------------------------------------------------------------------------------------------------------------------

// One query: a lane computes the scores of every 32nd key and PARTS columns of the result, from `column` on. `head` counts
// from the beginning of the tensors.
template <int PARTS, bool CAUSAL>
__device__ __forceinline__ void plain_row(const Heads& h, int64_t head, int64_t row, int64_t column) {
  const int lane = threadIdx.x % 32;
  const int64_t width = h.width, last = CAUSAL && row + 1 < h.keys ? row + 1 : h.keys;
  const int64_t key_step = width * h.beside.k, value_step = width * h.beside.v;
  const float* query = h.q + h.begin(head, h.queries, h.beside.q) + row * width * h.beside.q;
  const float* keys = h.k + h.begin(head, h.keys, h.beside.k);
  const float* values = h.v + h.begin(head, h.keys, h.beside.v) + column + lane;
  float top = -INFINITY, sum = 0.f, total[PARTS] = {};
#pragma unroll 1
  for (int64_t first = 0; first < last; first += 32) {
    const int64_t key = first + lane;
    float score = -INFINITY;
    if (key < last) {
      score = 0.f;
#pragma unroll 1
      for (int64_t begin = 0; begin < width; begin += 64) {
        const int64_t end = begin + 64 < width ? begin + 64 : width;
        float part = 0.f;
#pragma unroll 1
        for (int64_t d = begin; d < end; ++d) part = fmaf(__ldg(query + d) * h.scale, __ldg(keys + key * key_step + d), part);
        score += part;
      }
    }
    // fmaxf drops NaN; the exponential of a NaN score is NaN and reaches the sum.
    const float next = fmaxf(top, flash::warp_max(score)), base = next == -INFINITY ? 0.f : next;
    const float fade = top == next ? 1.f : expf(top - base);
    const float p = key < last ? expf(score - base) : 0.f;
    sum = fmaf(sum, fade, flash::warp_sum(p));
    top = next;
    float part[PARTS] = {};
    const int count = last - first < 32 ? int(last - first) : 32;
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
      const float weight = __shfl_sync(0xffffffffu, p, j);
      const float* value = values + (first + j) * value_step;
#pragma unroll
      for (int i = 0; i < PARTS; ++i)
        if (column + lane + 32 * i < width) part[i] = fmaf(weight, __ldg(value + 32 * i), part[i]);
    }
#pragma unroll
    for (int i = 0; i < PARTS; ++i) total[i] = fmaf(total[i], fade, part[i]);
  }
  if (sum == 0.f && (h.safe || h.keys == 0)) sum = 1.f;
  float* to = h.out + h.begin(head, h.queries, h.beside.out) + row * width * h.beside.out + column + lane;
#pragma unroll
  for (int i = 0; i < PARTS; ++i)
    if (column + lane + 32 * i < width) to[32 * i] = total[i] / sum;
}

template <bool CAUSAL>
__global__ void __launch_bounds__(256) plain_kernel(const Heads h) {
  constexpr int PARTS = 4;
  const int64_t stretches = (h.width + 32 * PARTS - 1) / (32 * PARTS), works = h.stack * h.queries * stretches;
  for (int64_t work = int64_t(blockIdx.x) * 8 + threadIdx.x / 32; work < works; work += int64_t(gridDim.x) * 8) {
    const int64_t row = work / stretches;
    plain_row<PARTS, CAUSAL>(h, row / h.queries, row % h.queries, work % stretches * (32 * PARTS));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Planes
// ---------------------------------------------------------------------------------------------------------------------

struct Prepared {
  split::Planes q, k, v;
  bool vectors;  // rows begin at multiples of 16 bytes
};

// 64 rows of q or k, one scale per row: a warp takes 8 rows, 4 lanes share a row. x: the head; step: between its rows.
template <int WIDTH>
__device__ __forceinline__ void prepare_rows(const float* x, int64_t step, int width, const split::Planes& planes,
                                             int64_t head, int tile, bool vectors) {
  constexpr int STEPS = WIDTH / 32;
  const int lane = threadIdx.x % 32, quarter = lane % 4, row = tile * TILE + threadIdx.x / 32 * 8 + lane / 4;
  const float* from = x + row * step;
  float y[STEPS][8];
  unsigned largest = 0;
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    const int term = s * 32 + quarter * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i) y[s][i] = 0.f;
    if (row < planes.rows) {
      if (vectors && term + 8 <= width) {
        const float4 a = __ldg(reinterpret_cast<const float4*>(from + term));
        const float4 b = __ldg(reinterpret_cast<const float4*>(from + term) + 1);
        y[s][0] = a.x, y[s][1] = a.y, y[s][2] = a.z, y[s][3] = a.w;
        y[s][4] = b.x, y[s][5] = b.y, y[s][6] = b.z, y[s][7] = b.w;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (term + i < width) y[s][i] = __ldg(from + term + i);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < STEPS; ++s) largest = split::largest8(y[s], largest);
  largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  const float2 scale = split::scale_of(largest);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    uint4 hi, lo;
    split::split8(y[s], scale.x, hi, lo);
    split::store_split<TILE, WIDTH, 2>(planes, head, row, s * 4 + quarter, hi, lo);
  }
  if (quarter == 0) planes.scales[head * planes.tiles * TILE + row] = scale.y;
}

// 64 keys of 32 columns of v, one scale per column: a lane takes a column, a warp 8 keys.
template <int WIDTH>
__device__ __forceinline__ void prepare_values(const float* x, int64_t step, int width, const split::Planes& planes,
                                               int64_t head, int block, int columns) {
  __shared__ unsigned found[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = columns * 32 + lane, key = block * TILE + warp * 8;
  const float* from = x + key * step + column;
  float y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = column < width && key + i < planes.terms ? __ldg(from + i * step) : 0.f;
  unsigned largest = split::largest8(y, 0);
  found[warp][lane] = largest;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < 8; ++w) largest = max(largest, found[w][lane]);
  const float2 scale = split::scale_of(largest);
  uint4 hi, lo;
  split::split8(y, scale.x, hi, lo);
  split::store_split<WIDTH, TILE, 2>(planes, head, column, block * 8 + warp, hi, lo);
  if (warp == 0) planes.scales[(head * planes.chunks + block) * WIDTH + column] = scale.y;
}

template <int WIDTH>
__global__ void __launch_bounds__(256) prepare_heads(const Heads h, const Prepared p) {
  const int parts = p.q.tiles + p.k.tiles + p.v.term_blocks * (WIDTH / 32);
  const int64_t head = blockIdx.x / parts, source = h.first + head;
  const Beside& beside = h.beside;
  const int width = int(h.width);
  int part = blockIdx.x % parts;
  if (part < p.q.tiles) {
    prepare_rows<WIDTH>(h.q + h.begin(source, h.queries, beside.q), width * beside.q, width, p.q, head, part, p.vectors);
  } else if ((part -= p.q.tiles) < p.k.tiles) {
    prepare_rows<WIDTH>(h.k + h.begin(source, h.keys, beside.k), width * beside.k, width, p.k, head, part, p.vectors);
  } else {
    part -= p.k.tiles;
    prepare_values<WIDTH>(h.v + h.begin(source, h.keys, beside.v), width * beside.v, width, p.v, head,
                          part / (WIDTH / 32), part % (WIDTH / 32));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Scores, probabilities and the result
// ---------------------------------------------------------------------------------------------------------------------

template <int WIDTH_, int GROUPS_>
struct Shape {
  static constexpr int WIDTH = WIDTH_;
  static constexpr int GROUPS = GROUPS_;  // warpgroups, each with a tile of queries
  static constexpr int THREADS = GROUPS * 128;
  static constexpr int BLOCKS = WIDTH == 64 ? 2 : 1;        // on a multiprocessor at a time
  static constexpr int BLOCK_BYTES = TILE * WIDTH * 2 * 2;  // hi and lo
  static constexpr int PLANE_BYTES = BLOCK_BYTES / 2;
  static constexpr int ROW_STEP = 2 * TILE * 16;     // 16 terms of a plane of q or k
  static constexpr int VALUE_STEP = 2 * WIDTH * 16;  // 16 keys of a plane of v
  static constexpr int STAGE_BYTES = 2 * BLOCK_BYTES + (TILE + WIDTH) * 4;  // k, v, their scales
  static constexpr int SHARED_BYTES = GROUPS * BLOCK_BYTES + STAGES * STAGE_BYTES + (2 * STAGES + 1) * 8 + 128;
  static_assert(SHARED_BYTES * BLOCKS <= 230000, "too much shared memory");
};

template <class S, bool CAUSAL>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS) attention_kernel(const Heads h, const Prepared p) {
  constexpr int WIDTH = S::WIDTH, PARTS = WIDTH / 64;
  extern __shared__ __align__(128) char memory[];
  const uint32_t queries = (split::shared_address(memory) + 127) / 128 * 128;
  const uint32_t stages = queries + S::GROUPS * S::BLOCK_BYTES;
  const uint32_t full = stages + STAGES * S::STAGE_BYTES, empty = full + STAGES * 8, ready = empty + STAGES * 8;
  const int tiles = p.q.tiles, blocks = (tiles + S::GROUPS - 1) / S::GROUPS;
  const int64_t head = blockIdx.x / blocks;
  // The longest works of a head first.
  const int begin = (CAUSAL ? blocks - 1 - int(blockIdx.x % blocks) : int(blockIdx.x % blocks)) * S::GROUPS;
  const int count = min(S::GROUPS, tiles - begin);  // tiles of this block
  const int steps = CAUSAL ? min(begin + count, p.k.tiles) : p.k.tiles;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      split::barrier_init(full + 8 * s, 1);
      split::barrier_init(empty + 8 * s, S::THREADS);
    }
    split::barrier_init(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  // Where the keys, the values and their scales of step 0 are, in shared memory since registers are scarce.
  __shared__ const char* sources[4];
  // Starts to copy the keys and values of a step to a stage.
  auto fill = [&](int step, int stage) {
    const char* volatile* from = sources;
    const uint32_t arrived = full + 8 * stage, to = stages + stage * S::STAGE_BYTES, scales = to + 2 * S::BLOCK_BYTES;
    split::barrier_expect(arrived, S::STAGE_BYTES);
    split::bulk_copy(to, from[0] + int64_t(step) * S::BLOCK_BYTES, S::BLOCK_BYTES, arrived);
    split::bulk_copy(scales, from[1] + int64_t(step) * (TILE * 4), TILE * 4, arrived);
    split::bulk_copy(to + S::BLOCK_BYTES, from[2] + int64_t(step) * S::BLOCK_BYTES, S::BLOCK_BYTES, arrived);
    split::bulk_copy(scales + TILE * 4, from[3] + int64_t(step) * (WIDTH * 4), WIDTH * 4, arrived);
  };
  if (threadIdx.x == 0) {
    sources[0] = p.k.blocks + head * p.k.tiles * S::BLOCK_BYTES;
    sources[1] = reinterpret_cast<const char*>(p.k.scales + head * p.k.tiles * TILE);
    sources[2] = p.v.blocks + head * p.v.term_blocks * S::BLOCK_BYTES;
    sources[3] = reinterpret_cast<const char*>(p.v.scales + head * p.v.chunks * WIDTH);
    split::barrier_expect(ready, count * S::BLOCK_BYTES);
    split::bulk_copy(queries, p.q.blocks + (head * tiles + begin) * S::BLOCK_BYTES, count * S::BLOCK_BYTES, ready);
    for (int s = 0; s < STAGES && s < steps; ++s) fill(s, s);
  }

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
  const int tile = begin + group;
  const int mine_steps = group >= count ? 0 : CAUSAL ? min(tile + 1, p.k.tiles) : p.k.tiles;
  uint32_t mine = queries + group * S::BLOCK_BYTES;
  // Scores are kept as exponents of two. Probabilities are multiplied by 2^7, which keeps small ones out of the
  // subnormal numbers of fp16; the rounding of an exponent that large cannot take them beyond 2^8.
  constexpr float SHIFT = 7.f;
  float rows[2] = {1.f, 1.f};  // factors of the scores
  if (group < count) {
    const float* scales = p.q.scales + (head * tiles + tile) * TILE;
    rows[0] = __ldg(scales + flash::row_of(warp, lane, 0)) * (h.scale * 1.4426950408889634f);
    rows[1] = __ldg(scales + flash::row_of(warp, lane, 2)) * (h.scale * 1.4426950408889634f);
  }
  float base[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};  // running maximum less SHIFT; sum of this lane
  float result[PARTS][32], scores[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] = 0.f;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) result[part][i] = 0.f;
  }
  split::barrier_wait<false>(ready, 0);

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int stage = step % STAGES;
    // The stage of the last step is filled again when all warpgroups have left it.
    if (threadIdx.x == 0 && step > 0 && step - 1 + STAGES < steps) {
      split::barrier_wait<false>(empty + 8 * ((step - 1) % STAGES), (step - 1) / STAGES % 2);
      fill(step - 1 + STAGES, (step - 1) % STAGES);
    }
    __syncwarp();
    split::barrier_wait<false>(full + 8 * stage, step / STAGES % 2);
    if (step < mine_steps) {
      const uint32_t keys = stages + stage * S::STAGE_BYTES, values = keys + S::BLOCK_BYTES;
      const uint32_t key_scales = keys + 2 * S::BLOCK_BYTES + lane % 4 * 8, value_scales = key_scales + TILE * 4;
      asm volatile("" : "+r"(mine));  // descriptors are computed in each step: registers are scarce
      split::touch(scores);
      split::wgmma_begin();
#pragma unroll
      for (int k = 0; k < WIDTH / 16; ++k) {
        const uint32_t a = mine + k * S::ROW_STEP, b = keys + k * S::ROW_STEP;
        Wgmma<64>::run(scores, split::describe<TILE>(a + S::PLANE_BYTES), split::describe<TILE>(b), k > 0);
        Wgmma<64>::run(scores, split::describe<TILE>(a), split::describe<TILE>(b + S::PLANE_BYTES), 1);
      }
#pragma unroll
      for (int k = 0; k < WIDTH / 16; ++k)
        Wgmma<64>::run(scores, split::describe<TILE>(mine + k * S::ROW_STEP),
                       split::describe<TILE>(keys + k * S::ROW_STEP), 1);
      split::wgmma_commit();
      split::wgmma_wait<0>();
      split::touch(scores);

#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 scale = flash::load_pair(key_scales + j * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[4 * j + i] = scores[4 * j + i] * (i % 2 ? scale.y : scale.x) * rows[i / 2];
      }
      if ((CAUSAL && step == tile) || step == p.k.tiles - 1) {
        const int inside = p.k.rows - step * TILE, diagonal = (tile - step) * TILE;
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const int column = flash::column_of(lane, i);
          if (column >= inside || (CAUSAL && column > diagonal + flash::row_of(warp, lane, i))) scores[i] = -INFINITY;
        }
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
        fade[r] = flash::exp2_approximate(base[r] - next);
        base[r] = next;
        sum[r] *= fade[r];
      }
      uint32_t hi[16], lo[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int r = i % 2;
        const float u = flash::exp2_approximate(scores[2 * i] - base[r]);
        const float w = flash::exp2_approximate(scores[2 * i + 1] - base[r]);
        sum[r] += u + w;
        flash::split_pair(u, w, hi[i], lo[i]);
      }

#pragma unroll
      for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(hi[i]), "+r"(lo[i])::"memory");
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const uint32_t from = values + part * (64 * 16);  // the columns of the part
        split::touch(scores);
        split::wgmma_begin();
#pragma unroll
        for (int k = 0; k < TILE / 16; ++k) {
          const uint32_t b = from + k * S::VALUE_STEP;
          flash::multiply_registers(scores, lo + 4 * k, split::describe<WIDTH>(b), k > 0);
          flash::multiply_registers(scores, hi + 4 * k, split::describe<WIDTH>(b + S::PLANE_BYTES), 1);
        }
#pragma unroll
        for (int k = 0; k < TILE / 16; ++k)
          flash::multiply_registers(scores, hi + 4 * k, split::describe<WIDTH>(from + k * S::VALUE_STEP), 1);
        split::wgmma_commit();
#pragma unroll
        for (int i = 0; i < 32; ++i) result[part][i] *= fade[i / 2 % 2];
        split::wgmma_wait<0>();
        split::touch(scores);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 scale = flash::load_pair(value_scales + part * 256 + j * 32);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            result[part][4 * j + i] = fmaf(scores[4 * j + i], i % 2 ? scale.y : scale.x, result[part][4 * j + i]);
        }
      }
    }
    split::barrier_arrive(empty + 8 * stage);  // every lane for what it has read itself: racecheck follows no other way
  }
  if (group >= count) return;

  const int width = int(h.width);
  float* const out = h.out + h.begin(h.first + head, p.q.rows, h.beside.out);
  const bool pairs = width % 2 == 0 && reinterpret_cast<uintptr_t>(h.out) % 8 == 0;
  bool flawed[2] = {false, false};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    const int row = tile * TILE + flash::row_of(warp, lane, 2 * r);
    const bool inside = row < p.q.rows;
    const float factor = 1.f / sum[r];
    float* to = out + row * (width * h.beside.out);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int column = part * 64 + j * 8 + lane % 4 * 2;
        const float x = result[part][4 * j + 2 * r] * factor, y = result[part][4 * j + 2 * r + 1] * factor;
        flawed[r] = flawed[r] || x != x || y != y;
        if (!inside || column >= width) continue;
        if (pairs) {
          *reinterpret_cast<float2*>(to + column) = make_float2(x, y);
        } else {
          to[column] = x;
          if (column + 1 < width) to[column + 1] = y;
        }
      }
    }
    flawed[r] = flawed[r] && inside;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t lanes = __ballot_sync(0xffffffffu, flawed[r]);
    if (lanes == 0) continue;
    __syncwarp();
#pragma unroll 1
    for (int quad = 0; quad < 8; ++quad)
      if (lanes >> (4 * quad) & 15)
        plain_row<WIDTH / 32, CAUSAL>(h, h.first + head, tile * TILE + flash::row_of(warp, 4 * quad, 2 * r), 0);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The host's side
// ---------------------------------------------------------------------------------------------------------------------

// Whether the tensor cores' kernel is for these sizes: not for wide heads, and not where most of a tile would be empty.
inline bool tiled(const Heads& h) {
  constexpr int64_t most = 1 << 30;
  return h.width <= MOST_WIDTH && (h.queries > 16 || h.keys > 128) && h.keys > 0 && h.queries < most && h.keys < most;
}

inline int width_of(const Heads& h) { return h.width <= 64 ? 64 : 128; }

struct Bytes {
  int64_t rows, keys, values;
  int64_t total() const { return rows + keys + values; }
};
inline Bytes plane_bytes(const Heads& h, int64_t stack) {
  const int width = width_of(h);
  return {split::plane_bytes(stack, h.queries, width, TILE, width, width).total(),
          split::plane_bytes(stack, h.keys, width, TILE, width, width).total(),
          split::plane_bytes(stack, width, h.keys, width, TILE, TILE).total()};
}

// Heads at a time.
inline int64_t slice_of(const Heads& h) {
  const int64_t each = plane_bytes(h, 1).total(), most = each < MOST_BYTES ? MOST_BYTES / each : 1;
  return h.stack < most ? h.stack : most;
}

inline int64_t workspace_bytes(const Heads& h) {
  return h.stack < 1 || h.queries < 1 || !tiled(h) ? 0 : plane_bytes(h, slice_of(h)).total();
}

template <class S, bool CAUSAL>
inline cudaError_t run(const Heads& h, const Prepared& p, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(attention_kernel<S, CAUSAL>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
  if (error != cudaSuccess) return error;
  const int64_t blocks = h.stack * ((p.q.tiles + S::GROUPS - 1) / S::GROUPS);
  if (blocks > MOST_BLOCKS) return cudaErrorInvalidValue;
  attention_kernel<S, CAUSAL><<<unsigned(blocks), S::THREADS, S::SHARED_BYTES, stream>>>(h, p);
  return cudaGetLastError();
}

template <int WIDTH, bool CAUSAL>
inline cudaError_t attend_slice(const Heads& h, char* memory, cudaStream_t stream) {
  const Bytes bytes = plane_bytes(h, h.stack);
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(h.q) | reinterpret_cast<uintptr_t>(h.k);
  const Prepared p{split::planes_at(memory, h.stack, h.queries, WIDTH, TILE, WIDTH, WIDTH),
                   split::planes_at(memory + bytes.rows, h.stack, h.keys, WIDTH, TILE, WIDTH, WIDTH),
                   split::planes_at(memory + bytes.rows + bytes.keys, h.stack, WIDTH, h.keys, WIDTH, TILE, TILE),
                   h.width % 4 == 0 && addresses % 16 == 0};
  const int64_t parts = h.stack * (int64_t(p.q.tiles) + p.k.tiles + int64_t(p.v.term_blocks) * (WIDTH / 32));
  if (parts > MOST_BLOCKS) return cudaErrorInvalidValue;
  prepare_heads<WIDTH><<<unsigned(parts), 256, 0, stream>>>(h, p);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  // Two tiles share what a block copies, unless that leaves multiprocessors without work.
  return h.stack * p.q.tiles > 2 * split::multiprocessors() ? run<Shape<WIDTH, 2>, CAUSAL>(h, p, stream)
                                                            : run<Shape<WIDTH, 1>, CAUSAL>(h, p, stream);
}

// out = softmax(q * k^T * scale) * v; `workspace` has workspace_bytes() bytes.
template <bool CAUSAL>
inline cudaError_t attend(const Heads& h, void* workspace, cudaStream_t stream) {
  if (h.stack < 1 || h.queries < 1 || h.width < 1) return cudaSuccess;
  if (!tiled(h)) {
    const int64_t works = h.stack * h.queries * ((h.width + 127) / 128), blocks = (works + 7) / 8;
    plain_kernel<CAUSAL><<<unsigned(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 256, 0, stream>>>(h);
    return cudaGetLastError();
  }
  const int64_t slice = slice_of(h);
  for (int64_t first = 0; first < h.stack; first += slice) {
    Heads some = h;
    some.first = first;
    some.stack = h.stack - first < slice ? h.stack - first : slice;
    char* memory = static_cast<char*>(workspace);
    const cudaError_t error =
        width_of(h) == 64 ? attend_slice<64, CAUSAL>(some, memory, stream) : attend_slice<128, CAUSAL>(some, memory, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace attention
}  // namespace warpsmith
