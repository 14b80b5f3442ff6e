// The eight largest logits of every row and their softmax.
#include <warpsmith/packs.cuh>

namespace {
using namespace warpsmith;

constexpr int kPicks = 8;

// Integers in the order of the floats, NaN above all; 0 is below every float.
__device__ __forceinline__ unsigned ordered(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned b = __float_as_uint(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
__device__ __forceinline__ float unordered(unsigned k) {
  return k == 0xffffffffu ? __uint_as_float(0x7fc00000u)
                          : __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}

// One row by a whole warp, any number of experts, ties and NaN included: eight times the row is read for its next pick.
__device__ void pick_slowly(const float* __restrict__ from, float* __restrict__ weights, int64_t* __restrict__ picks,
                            int64_t experts) {
  const int lane = threadIdx.x % 32;
  unsigned long long last = ~0ull, mine = 0;  // order of the value above, place (negated) below
  for (int r = 0; r < kPicks; ++r) {
    unsigned long long most = 0;
    for (int64_t at = lane; at < experts; at += 32) {
      const unsigned long long k = (static_cast<unsigned long long>(ordered(from[at])) << 32) | ~unsigned(at);
      if ((k < last || r == 0) && k > most) most = k;
    }
    for (int m = 16; m > 0; m /= 2) {
      const unsigned long long other = __shfl_xor_sync(kAll, most, m);
      most = other > most ? other : most;
    }
    if (lane == r) mine = most;
    last = most;
  }
  const float value = unordered(unsigned(mine >> 32));
  const float best = __shfl_sync(kAll, value, 0);
  const float e = lane < kPicks ? exp_near(value - best) : 0.0f;
  float sum = e;
  for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(kAll, sum, m);
  if (lane < kPicks) {
    weights[lane] = e / sum;
    picks[lane] = int64_t(~unsigned(mine));
  }
}

__device__ __forceinline__ void order(float& a, float& b) {  // the larger one first
  const float high = fmaxf(a, b), low = fminf(a, b);
  a = high, b = low;
}

// G lanes take a row, eight logits each. Every lane sorts its own; then lanes merge their lists pairwise and keep the
// eight largest values, without places. A logit that is not below the eighth finds its place among them. Rows with
// equal values at the top, or NaN, are picked slowly.
template <int G, int THREADS>
__global__ void __launch_bounds__(THREADS) pick(const float* __restrict__ logits, float* __restrict__ weights,
                                                int64_t* __restrict__ picks, int64_t rows, int experts) {
  constexpr int ROWS = 32 / G;  // of a warp
  const int lane = threadIdx.x % 32, sub = lane % G;
  const int64_t first = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32 * ROWS;
  if (first >= rows) return;
  const int64_t row = first + lane / G;
  const bool there = row < rows;
  const float* from = logits + row * experts;
  float own[8], top[8];
  bool odd = false;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = i * G + sub;
    own[i] = there && at < experts ? __ldg(from + at) : -INFINITY;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) odd |= own[i] != own[i], top[i] = own[i];
  order(top[0], top[1]), order(top[2], top[3]), order(top[4], top[5]), order(top[6], top[7]);
  order(top[0], top[2]), order(top[1], top[3]), order(top[4], top[6]), order(top[5], top[7]);
  order(top[1], top[2]), order(top[5], top[6]);
  order(top[0], top[4]), order(top[1], top[5]), order(top[2], top[6]), order(top[3], top[7]);
  order(top[2], top[4]), order(top[3], top[5]);
  order(top[1], top[2]), order(top[3], top[4]), order(top[5], top[6]);
#pragma unroll
  for (int mask = 1; mask < G; mask *= 2) {
    float other[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) other[i] = __shfl_xor_sync(kAll, top[7 - i], mask);
#pragma unroll
    for (int i = 0; i < 8; ++i) top[i] = fmaxf(top[i], other[i]);
    order(top[0], top[4]), order(top[1], top[5]), order(top[2], top[6]), order(top[3], top[7]);
    order(top[0], top[2]), order(top[1], top[3]), order(top[4], top[6]), order(top[5], top[7]);
    order(top[0], top[1]), order(top[2], top[3]), order(top[4], top[5]), order(top[6], top[7]);
  }
  int taken = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) taken += own[i] >= top[7];
#pragma unroll
  for (int mask = 1; mask < G; mask *= 2) taken += __shfl_xor_sync(kAll, taken, mask);
  odd |= taken != kPicks || !(top[7] > -INFINITY);
#pragma unroll
  for (int i = 0; i < 7; ++i) odd |= top[i] == top[i + 1];
  if (__any_sync(kAll, there && odd)) {
    for (int r = 0; r < ROWS; ++r)
      if (first + r < rows)
        pick_slowly(logits + (first + r) * experts, weights + (first + r) * kPicks, picks + (first + r) * kPicks, experts);
    return;
  }
  float value = top[0];
#pragma unroll
  for (int i = 1; i < 8; ++i) value = sub % 8 == i ? top[i] : value;
  const float e = exp_near(value - top[0]);
  float sum = e;
#pragma unroll
  for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(kAll, sum, m);
  if (!there) return;
  if (sub < 8) weights[row * kPicks + sub] = __fdividef(e, sum);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float v = own[i];
    if (v >= top[7]) {
      int rank = top[3] > v ? 4 : 0;
      rank += (rank ? top[5] : top[1]) > v ? 2 : 0;
      const float mid = rank == 0 ? top[0] : rank == 2 ? top[2] : rank == 4 ? top[4] : top[6];
      rank += mid > v ? 1 : 0;
      picks[row * kPicks + rank] = i * G + sub;
    }
  }
}

// A warp takes a row, N logits per lane, and eight times the largest of all is taken.
template <int N, int THREADS>  // logits per lane
__global__ void __launch_bounds__(THREADS) pick_rounds(const float* __restrict__ logits, float* __restrict__ weights,
                                                int64_t* __restrict__ picks, int64_t rows, int experts) {
  const int lane = threadIdx.x % 32;
  const int64_t row = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
  if (row >= rows) return;
  const float* from = logits + row * experts;
  unsigned key[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * 32 + lane;
    key[i] = at < experts ? ordered(__ldg(from + at)) : 0u;
  }
  unsigned mine = 0, place = 0;
#pragma unroll
  for (int r = 0; r < kPicks; ++r) {
    unsigned head = key[0];
#pragma unroll
    for (int i = 1; i < N; ++i) head = max(head, key[i]);
    const unsigned most = __reduce_max_sync(kAll, head);
    // The first place that holds it.
    unsigned at = 0xffffffffu;
#pragma unroll
    for (int i = N - 1; i >= 0; --i) at = key[i] == most ? unsigned(i * 32 + lane) : at;
    const unsigned first = __reduce_min_sync(kAll, at);
#pragma unroll
    for (int i = 0; i < N; ++i) key[i] = first == unsigned(i * 32 + lane) ? 0u : key[i];
    if (lane == r) mine = most, place = first;
  }
  const float value = unordered(mine);
  const float best = __shfl_sync(kAll, value, 0);
  float e = lane < kPicks ? exp_near(value - best) : 0.0f;
  float sum = e;
#pragma unroll
  for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(kAll, sum, m);
  if (lane < kPicks) {
    weights[row * kPicks + lane] = e / sum;
    picks[row * kPicks + lane] = int64_t(place);
  }
}

// Any number of experts.
template <int THREADS>
__global__ void __launch_bounds__(THREADS) pick_any(const float* __restrict__ logits, float* __restrict__ weights,
                                                    int64_t* __restrict__ picks, int64_t rows, int64_t experts) {
  const int64_t row = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
  if (row < rows) pick_slowly(logits + row * experts, weights + row * kPicks, picks + row * kPicks, experts);
}
}  // namespace

extern "C" int launch(const float* logits, float* weights, int64_t* picks, int64_t rows, int64_t experts,
                      void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (rows == 0) return 0;
  constexpr int T = 128;
  const unsigned blocks = unsigned(ceil_div(rows, T / 32));
  if (experts <= 64) pick<8, T><<<unsigned(ceil_div(rows, T / 8)), T, 0, s>>>(logits, weights, picks, rows, int(experts));
  else if (experts <= 128) pick_rounds<4, T><<<blocks, T, 0, s>>>(logits, weights, picks, rows, int(experts));
  else if (experts <= 256) pick_rounds<8, T><<<blocks, T, 0, s>>>(logits, weights, picks, rows, int(experts));
  else pick_any<T><<<blocks, T, 0, s>>>(logits, weights, picks, rows, experts);
  return int(cudaGetLastError());
}
