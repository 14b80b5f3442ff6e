// attention: softmax(q @ k.T / sqrt(width)) @ v for every head.
//
// Heads are so wide that a tile of the result does not fit into registers beside the scores, so the scores go through
// memory: two products of warpsmith/split_product.cuh with a softmax between them. Heads are taken a few at a time: what
// a product reads is then still in the L2 cache, and what is written there is written over before it reaches memory.
#include <warpsmith/matmul.cuh>

#ifndef TUNE_SLICE
#define TUNE_SLICE 64  // heads at a time
#endif

namespace {

using namespace warpsmith::split;
using S = warpsmith::Float32::Narrow;
constexpr int TILE = S::TILE_M, CHUNK = S::CHUNK;
static_assert(S::TILE_M == S::TILE_N, "rows of q, k, v and of the probabilities are cut into the same tiles");

// The queries of some heads, followed by the keys of the same heads.
struct QueriesAndKeys {
  const float *q, *k;
  int64_t heads, width, head_step;
  static constexpr int64_t term_step = 1;
  __device__ __forceinline__ const float* row_at(int64_t head, int64_t row) const {
    return (head < heads ? q + head * head_step : k + (head - heads) * head_step) + row * width;
  }
  __device__ __forceinline__ float at(int64_t head, int64_t row, int64_t term) const {
    return __ldg(row_at(head, row) + term);
  }
};
inline bool in_vectors(const QueriesAndKeys& m) {
  return m.width % 4 == 0 && (reinterpret_cast<uintptr_t>(m.q) | reinterpret_cast<uintptr_t>(m.k)) % 16 == 0;
}

// exp((score - top) * scale) * factor, from the scores and {top, factor} of every row.
struct Probabilities {
  const float* scores;
  const float2* rows;
  int length;
  float scale;
  __device__ __forceinline__ float at(int64_t head, int64_t row, int64_t term) const {
    const float2 each = rows[head * length + row];
    return expf((scores[(head * length + row) * length + term] - each.x) * scale) * each.y;
  }
};

// A warp turns a row of scores into probabilities, which it writes as fp16 planes; what the row needs to compute a
// probability again goes to p.rows. A lane takes eight neighbouring terms, and 32 lanes two chunks at a time.
__global__ void __launch_bounds__(256) softmax_planes(const Probabilities p, float2* rows, const Planes planes) {
  static_assert(CHUNK == 128, "16 lanes have a chunk");
  const int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32, length = p.length;
  const int64_t head = blockIdx.y;
  const bool inside = row < length;  // rows beyond fill the last tile with zeros
  const float* at = p.scores + (head * length + row) * length;
  float top = -INFINITY, sum = 0.f;
  if (inside) {
    for (int c = lane; c < length; c += 32) top = fmaxf(top, at[c]);
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    for (int c = lane; c < length; c += 32) sum += expf((at[c] - top) * p.scale);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) rows[head * length + row] = make_float2(top, 1.f / sum);
  }
  const float factor = 1.f / sum;
  for (int first = 0; first < planes.chunks * CHUNK; first += 256) {
    const int term = first + lane * 8, chunk = term / CHUNK;
    float x[8];
    if (inside && length % 4 == 0 && term + 8 <= length) {
      const float4 a = *reinterpret_cast<const float4*>(at + term), b = *reinterpret_cast<const float4*>(at + term + 4);
      x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
      x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = inside && term + i < length ? at[term + i] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = inside ? expf((x[i] - top) * p.scale) * factor : 0.f;
    unsigned largest = largest8(x, 0);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    const float2 scale = scale_of(largest);
    uint4 hi, lo;
    split8(x, scale.x, hi, lo);
    store_split<TILE, S::BLOCK_K, 2>(planes, head, row, term / 8, hi, lo);
    if (lane % 16 == 0 && chunk < planes.chunks)
      planes.scales[(head * planes.chunks + chunk) * int64_t(planes.tiles) * TILE + row] = scale.y;
  }
}

struct Sizes {
  int64_t heads, length, width;
  int64_t wide() const { return plane_bytes(2 * heads, length, width, TILE, S::BLOCK_K, CHUNK).total(); }  // q, k
  int64_t probabilities() const { return plane_bytes(heads, length, length, TILE, S::BLOCK_K, CHUNK).total(); }
  int64_t values() const { return plane_bytes(heads, width, length, TILE, S::BLOCK_K, CHUNK).total(); }
  int64_t scores() const { return round_up(heads * length * length * 4, 256); }
  int64_t rows() const { return round_up(heads * length * 8, 256); }
  // q and k are not needed any more when the planes of the second product are written.
  int64_t planes() const {
    const int64_t second = probabilities() + values();
    return wide() > second ? wide() : second;
  }
};

}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t heads, int64_t length, int64_t width) {
  const int64_t all = batch * heads;
  const Sizes sizes{all < TUNE_SLICE ? all : TUNE_SLICE, length, width};
  return sizes.scores() + sizes.rows() + sizes.planes();
}

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t batch, int64_t heads,
                      int64_t length, int64_t width, void* workspace, void* stream_) {
  const cudaStream_t stream = cudaStream_t(stream_);
  const int64_t all = batch * heads, step = length * width;
  for (int64_t first = 0; first < all; first += TUNE_SLICE) {
    const int count = int(all - first < TUNE_SLICE ? all - first : TUNE_SLICE);
    const Sizes sizes{count, length, width};
    float* scores = static_cast<float*>(workspace);
    float2* rows = reinterpret_cast<float2*>(static_cast<char*>(workspace) + sizes.scores());
    char* planes = static_cast<char*>(workspace) + sizes.scores() + sizes.rows();

    const Planes both = planes_at(planes, 2 * count, length, width, TILE, S::BLOCK_K, CHUNK);
    Planes keys = both;
    keys.blocks += int64_t(count) * both.tiles * both.term_blocks * S::A_BYTES;
    keys.scales += int64_t(count) * both.chunks * both.tiles * TILE;
    const QueriesAndKeys source{q + first * step, k + first * step, count, width, step};
    cudaError_t error = prepare<TILE, S::BLOCK_K, CHUNK>(source, both, 2 * count, stream);
    if (error == cudaSuccess)
      error = run_product<S>(Task{both, keys, count, 1, 8, 0}, Full{1},
                             Store{scores, length, length * length, int(length), length % 2 == 0},
                             Matrix{q + first * step, width, 1, step}, Matrix{k + first * step, width, 1, step}, stream);
    if (error != cudaSuccess) return int(error);

    const Probabilities weights{scores, rows, int(length), 1.f / sqrtf(float(width))};
    const Planes pp = planes_at(planes, count, length, length, TILE, S::BLOCK_K, CHUNK);
    softmax_planes<<<dim3(pp.tiles * (TILE / 8), count), 256, 0, stream>>>(weights, rows, pp);
    const Matrix values{v + first * step, 1, width, step};
    const Planes pv = planes_at(planes + sizes.probabilities(), count, width, length, TILE, S::BLOCK_K, CHUNK);
    error = prepare<TILE, S::BLOCK_K, CHUNK>(values, pv, count, stream);
    if (error == cudaSuccess)
      error = run_product<S>(Task{pp, pv, count, 1, 8, 0}, Full{1},
                             Store{out + first * step, width, step, int(width), width % 2 == 0}, weights, values, stream);
    if (error != cudaSuccess) return int(error);
  }
  return int(cudaGetLastError());
}
