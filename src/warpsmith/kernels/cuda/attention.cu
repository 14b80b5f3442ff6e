// attention: softmax(q @ k.T / sqrt(width)) @ v for every head.
//
// Heads are so wide that a tile of the result does not fit into registers beside the scores, so the scores go through
// memory: two products of warpsmith/split_product.cuh with a softmax between them, for a slice of the heads at a time.
#include <warpsmith/matmul.cuh>

namespace {

using namespace warpsmith::split;
using S = warpsmith::Float32::Narrow;

constexpr int SLICE = 64;  // heads that are in the workspace at a time
constexpr int KEPT = 32;   // scores per lane that stay in registers

// A warp turns one row of scores into probabilities, in place.
__global__ void __launch_bounds__(256) softmax_rows(float* __restrict__ scores, int64_t rows, int length, float scale) {
  const int64_t row = int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float* at = scores + row * length;
  float kept[KEPT];
  float top = -INFINITY;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    kept[i] = lane + 32 * i < length ? at[lane + 32 * i] : -INFINITY;
    top = fmaxf(top, kept[i]);
  }
  for (int c = lane + 32 * KEPT; c < length; c += 32) top = fmaxf(top, at[c]);
  for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < KEPT; ++i)
    if (32 * i < length) {
      kept[i] = lane + 32 * i < length ? expf((kept[i] - top) * scale) : 0.f;
      sum += kept[i];
    }
  for (int c = lane + 32 * KEPT; c < length; c += 32) sum += expf((at[c] - top) * scale);
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float factor = 1.f / sum;
#pragma unroll
  for (int i = 0; i < KEPT; ++i)
    if (lane + 32 * i < length) at[lane + 32 * i] = kept[i] * factor;
  for (int c = lane + 32 * KEPT; c < length; c += 32) at[c] = expf((at[c] - top) * scale) * factor;
}

struct Sizes {
  int64_t heads, length, width;
  int64_t wide() const { return plane_bytes(heads, length, width, 128, S::BLOCK_K, S::CHUNK).total(); }  // q, k
  int64_t probabilities() const { return plane_bytes(heads, length, length, 128, S::BLOCK_K, S::CHUNK).total(); }
  int64_t values() const { return plane_bytes(heads, width, length, 128, S::BLOCK_K, S::CHUNK).total(); }
  int64_t scores() const { return round_up(heads * length * length * 4, 256); }
  // q and k are not needed any more when the planes of the second product are written.
  int64_t planes() const {
    const int64_t first = 2 * wide(), second = probabilities() + values();
    return first > second ? first : second;
  }
};

}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t heads, int64_t length, int64_t width) {
  const int64_t all = batch * heads;
  const Sizes sizes{all < SLICE ? all : SLICE, length, width};
  return sizes.scores() + sizes.planes();
}

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t batch, int64_t heads,
                      int64_t length, int64_t width, void* workspace, void* stream_) {
  const cudaStream_t stream = cudaStream_t(stream_);
  const int64_t all = batch * heads, step = length * width;
  for (int64_t first = 0; first < all; first += SLICE) {
    const int count = int(all - first < SLICE ? all - first : SLICE);
    const Sizes sizes{count, length, width};
    float* scores = static_cast<float*>(workspace);
    char* planes = static_cast<char*>(workspace) + sizes.scores();

    const Matrix queries{q + first * step, width, 1, step}, keys{k + first * step, width, 1, step};
    const Planes pq = planes_at(planes, count, length, width, 128, S::BLOCK_K, S::CHUNK);
    const Planes pk = planes_at(planes + sizes.wide(), count, length, width, 128, S::BLOCK_K, S::CHUNK);
    cudaError_t error = prepare<128, S::BLOCK_K, S::CHUNK>(queries, pq, count, stream);
    if (error == cudaSuccess) error = prepare<128, S::BLOCK_K, S::CHUNK>(keys, pk, count, stream);
    if (error == cudaSuccess)
      error = run_product<S>(Task{pq, pk, count, 1, 8, 0}, Full{1},
                             Store{scores, length, length * length, int(length), length % 2 == 0}, queries, keys, stream);
    if (error != cudaSuccess) return int(error);

    const int64_t rows = count * length;
    softmax_rows<<<unsigned((rows + 7) / 8), 256, 0, stream>>>(scores, rows, int(length), 1.f / sqrtf(float(width)));

    const Matrix probabilities{scores, length, 1, length * length}, values{v + first * step, 1, width, step};
    const Planes pp = planes_at(planes, count, length, length, 128, S::BLOCK_K, S::CHUNK);
    const Planes pv = planes_at(planes + sizes.probabilities(), count, width, length, 128, S::BLOCK_K, S::CHUNK);
    error = prepare<128, S::BLOCK_K, S::CHUNK>(probabilities, pp, count, stream);
    if (error == cudaSuccess) error = prepare<128, S::BLOCK_K, S::CHUNK>(values, pv, count, stream);
    if (error == cudaSuccess)
      error = run_product<S>(Task{pp, pv, count, 1, 8, 0}, Full{1},
                             Store{out + first * step, width, step, int(width), width % 2 == 0}, probabilities, values,
                             stream);
    if (error != cudaSuccess) return int(error);
  }
  return int(cudaGetLastError());
}
