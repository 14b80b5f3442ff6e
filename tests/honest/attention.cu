// A warp per query, a block per eight of them; keys and values in shared memory, 128 at a time. The softmax is
// carried on from one tile of keys to the next, so that any number of them will do.
constexpr int WIDTH = task::q_dim2, WARPS = 8, KEYS = 128, STEP = WIDTH + 1;  // STEP: rows begin in other banks
constexpr int SHARED_BYTES = (KEYS * STEP + KEYS * WIDTH + WARPS * WIDTH) * static_cast<int>(sizeof(float));
static_assert(WIDTH == 64, "a lane holds two elements of a row");

__device__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

__device__ float warp_max(float v) {
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, offset));
  return v;
}

__global__ void __launch_bounds__(WARPS * 32)
    attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
              float* __restrict__ out, int queries, int keys) {
  extern __shared__ float shared[];
  float* key_tile = shared;                       // [KEYS][STEP]
  float* value_tile = key_tile + KEYS * STEP;     // [KEYS][WIDTH]
  float* query_rows = value_tile + KEYS * WIDTH;  // [WARPS][WIDTH]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, query = blockIdx.x * WARPS + warp;
  const int64_t head = blockIdx.y;
  float* mine = query_rows + warp * WIDTH;
  for (int d = lane; d < WIDTH; d += 32) mine[d] = query < queries ? q[(head * queries + query) * WIDTH + d] : 0.f;
  float peak = -INFINITY, sum = 0.f, first = 0.f, second = 0.f;
  for (int start = 0; start < keys; start += KEYS) {
    const int here = min(KEYS, keys - start);
    __syncthreads();  // the last tile is done with, and the queries are there
    for (int e = threadIdx.x; e < here * WIDTH; e += WARPS * 32) {
      const int64_t from = (head * keys + start) * WIDTH + e;
      key_tile[e / WIDTH * STEP + e % WIDTH] = k[from];
      value_tile[e] = v[from];
    }
    __syncthreads();
    float scores[KEYS / 32];
    float tile_peak = -INFINITY;
#pragma unroll
    for (int s = 0; s < KEYS / 32; ++s) {
      const int j = s * 32 + lane;
      float dot = 0.f;
      if (j < here)
        for (int d = 0; d < WIDTH; ++d) dot += mine[d] * key_tile[j * STEP + d];
      scores[s] = j < here ? dot * 0.125f : -INFINITY;
      tile_peak = fmaxf(tile_peak, scores[s]);
    }
    const float new_peak = fmaxf(peak, warp_max(tile_peak));
    const float fade = expf(peak - new_peak);  // 0 for the first tile
    float tile_sum = 0.f;
    first *= fade;
    second *= fade;
#pragma unroll
    for (int s = 0; s < KEYS / 32; ++s) {
      scores[s] = expf(scores[s] - new_peak);
      tile_sum += scores[s];
      const int count = min(32, here - s * 32);
      for (int j = 0; j < count; ++j) {
        const float share = __shfl_sync(~0u, scores[s], j);
        first += share * value_tile[(s * 32 + j) * WIDTH + lane];
        second += share * value_tile[(s * 32 + j) * WIDTH + lane + 32];
      }
    }
    sum = sum * fade + warp_sum(tile_sum);
    peak = new_peak;
  }
  if (query < queries) {
    float* result = out + (head * queries + query) * WIDTH;
    result[lane] = first / sum;
    result[lane + 32] = second / sum;
  }
}

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t queries,
                      int64_t keys, void* workspace, void* stream) {
  const cudaError_t allowed =
      cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  if (allowed != cudaSuccess) return static_cast<int>(allowed);
  const dim3 grid(static_cast<unsigned>((queries + WARPS - 1) / WARPS), static_cast<unsigned>(heads));
  attention<<<grid, WARPS * 32, SHARED_BYTES, static_cast<cudaStream_t>(stream)>>>(
      q, k, v, out, static_cast<int>(queries), static_cast<int>(keys));
  return static_cast<int>(cudaGetLastError());
}
