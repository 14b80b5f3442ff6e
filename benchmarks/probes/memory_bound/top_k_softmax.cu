// The eight largest logits of every row and their softmax.
//
// G lanes take a row, N logits each. A logit becomes a whole number in the order of the floats whose last BITS bits are
// replaced by its place, so that sorting needs one minimum and one maximum per exchange and no second search for the
// places. What the lost bits could decide (two of the nine largest nearly equal) is noticed, and such a row is picked
// again by the whole warp with all bits.
#include <warpsmith/packs.cuh>

#ifndef TUNE_ROW_LANES
#define TUNE_ROW_LANES 0  // lanes of a row; 0: by the number of logits
#endif
#ifndef TUNE_ROW_THREADS
#define TUNE_ROW_THREADS 128
#endif

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

// One row of at most 32 * N logits by a whole warp, with all bits: eight times the largest of all is taken.
template <int N>
__device__ __noinline__ void pick_again(const float* __restrict__ from, float* __restrict__ weights,
                                        int64_t* __restrict__ picks, int experts) {
  const int lane = threadIdx.x % 32;
  unsigned key[N];
#pragma unroll
  for (int i = 0; i < N; ++i) key[i] = i * 32 + lane < experts ? ordered(__ldg(from + i * 32 + lane)) : 0u;
  unsigned mine = 0, place = 0;
  for (int r = 0; r < kPicks; ++r) {
    unsigned head = key[0];
#pragma unroll
    for (int i = 1; i < N; ++i) head = max(head, key[i]);
    const unsigned most = __reduce_max_sync(kAll, head);
    unsigned at = 0xffffffffu;  // the first place that holds it
#pragma unroll
    for (int i = N - 1; i >= 0; --i) at = key[i] == most ? unsigned(i * 32 + lane) : at;
    const unsigned first = __reduce_min_sync(kAll, at);
#pragma unroll
    for (int i = 0; i < N; ++i) key[i] = first == unsigned(i * 32 + lane) ? 0u : key[i];
    if (lane == r) mine = most, place = first;
  }
  const float value = unordered(mine);
  const float best = __shfl_sync(kAll, value, 0);
  const float e = lane < kPicks ? exp_near(value - best) : 0.0f;
  float sum = e;
  for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(kAll, sum, m);
  if (lane < kPicks) {
    weights[lane] = e / sum;
    picks[lane] = int64_t(place);
  }
}

__device__ __forceinline__ void order(unsigned& a, unsigned& b) {  // the larger one first
  const unsigned high = max(a, b), low = min(a, b);
  a = high, b = low;
}
__device__ __forceinline__ void sort(unsigned (&k)[8]) {
  order(k[0], k[1]), order(k[2], k[3]), order(k[4], k[5]), order(k[6], k[7]);
  order(k[0], k[2]), order(k[1], k[3]), order(k[4], k[6]), order(k[5], k[7]);
  order(k[1], k[2]), order(k[5], k[6]);
  order(k[0], k[4]), order(k[1], k[5]), order(k[2], k[6]), order(k[3], k[7]);
  order(k[2], k[4]), order(k[3], k[5]);
  order(k[1], k[2]), order(k[3], k[4]), order(k[5], k[6]);
}
// The eight largest of two sorted lists, sorted; `other` comes with its smallest first.
__device__ __forceinline__ void merge(unsigned (&k)[8], const unsigned (&other)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) k[i] = max(k[i], other[i]);
  order(k[0], k[4]), order(k[1], k[5]), order(k[2], k[6]), order(k[3], k[7]);
  order(k[0], k[2]), order(k[1], k[3]), order(k[4], k[6]), order(k[5], k[7]);
  order(k[0], k[1]), order(k[2], k[3]), order(k[4], k[5]), order(k[6], k[7]);
}

template <int G, int N, int BITS, int THREADS>
__global__ void __launch_bounds__(THREADS) pick(const float* __restrict__ logits, float* __restrict__ weights,
                                                int64_t* __restrict__ picks, int64_t rows, int experts) {
  static_assert(N % 8 == 0 && G * N <= (1 << BITS) && G >= 4 && G <= 32, "shape");
  constexpr int ROWS = 32 / G;                 // of a warp
  constexpr int EACH = G >= kPicks ? 1 : kPicks / G;  // results of a lane
  constexpr unsigned PLACE = (1u << BITS) - 1;
  const int lane = threadIdx.x % 32, sub = lane % G;
  const int64_t first = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32 * ROWS;
  if (first >= rows) return;
  const int64_t row = first + lane / G;
  const bool there = row < rows;
  const float* from = logits + row * experts;
  unsigned key[N];
  // Lane `sub` has the packs sub, sub + G, sub + 2 G, ... of the row.
  auto place = [&](int i) { return (i / 4 * G + sub) * 4 + i % 4; };
  if (experts % 4 == 0) {
    float4 v[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (there && place(4 * i) < experts) v[i] = load_once(from + place(4 * i));
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float4& w = v[i / 4];
      key[i] = ordered(i % 4 == 0 ? w.x : i % 4 == 1 ? w.y : i % 4 == 2 ? w.z : w.w);
    }
  } else {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = there && place(i) < experts ? __ldg(from + place(i)) : 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) key[i] = ordered(v[i]);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) key[i] = place(i) < experts ? (key[i] & ~PLACE) | (PLACE - unsigned(place(i))) : 0u;
  unsigned top[8], other[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) top[i] = key[i];
  sort(top);
#pragma unroll
  for (int part = 8; part < N; part += 8) {
    unsigned more[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) more[i] = key[part + i];
    sort(more);
#pragma unroll
    for (int i = 0; i < 8; ++i) other[i] = more[7 - i];
    merge(top, other);
  }
#pragma unroll
  for (int mask = 1; mask < G; mask *= 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) other[i] = __shfl_xor_sync(kAll, top[7 - i], mask);
    merge(top, other);
  }
  // How many keys are not below the eighth, places aside. Where it is eight, and no two of these eight have the same
  // bits, the order of the keys is that of the logits.
  const unsigned least = top[7] & ~PLACE;
  int taken = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) taken += key[i] >= least;
#pragma unroll
  for (int mask = 1; mask < G; mask *= 2) taken += __shfl_xor_sync(kAll, taken, mask);
  bool odd = taken != kPicks;
#pragma unroll
  for (int i = 0; i < 7; ++i) odd |= ((top[i] ^ top[i + 1]) & ~PLACE) == 0;
  odd |= top[0] >= 0xff800000u || top[7] <= 0x007fffffu;  // NaN, infinity
  odd = odd && there;
  float e[EACH], sum = 0.0f;
  unsigned at[EACH];
  const float best = there && !odd ? __ldg(from + (PLACE - (top[0] & PLACE))) : 0.0f;
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    unsigned mine = top[j * G];
#pragma unroll
    for (int i = 1; i < (G < kPicks ? G : kPicks); ++i) mine = sub % kPicks == i ? top[j * G + i] : mine;
    at[j] = PLACE - (mine & PLACE);
    e[j] = there && !odd ? exp_near(__ldg(from + at[j]) - best) : 0.0f;
    sum += e[j];
  }
#pragma unroll
  for (int m = (G < kPicks ? G : kPicks) / 2; m > 0; m /= 2) sum += __shfl_xor_sync(kAll, sum, m);
  if (there && !odd && sub < kPicks)
#pragma unroll
    for (int j = 0; j < EACH; ++j) {
      weights[row * kPicks + j * G + sub] = __fdividef(e[j], sum);
      picks[row * kPicks + j * G + sub] = int64_t(at[j]);
    }
  for (unsigned left = __ballot_sync(kAll, odd && sub == 0); left != 0; left &= left - 1) {
    const int64_t which = first + (__ffs(int(left)) - 1) / G;
    pick_again<(G * N + 31) / 32>(logits + which * experts, weights + which * kPicks, picks + which * kPicks, experts);
  }
}

// Any number of experts.
template <int THREADS>
__global__ void __launch_bounds__(THREADS) pick_any(const float* __restrict__ logits, float* __restrict__ weights,
                                                    int64_t* __restrict__ picks, int64_t rows, int64_t experts) {
  const int64_t row = (int64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
  if (row < rows) pick_slowly(logits + row * experts, weights + row * kPicks, picks + row * kPicks, experts);
}

template <int G, int N, int BITS>
int launch_pick(const float* logits, float* weights, int64_t* picks, int64_t rows, int64_t experts, cudaStream_t s) {
  constexpr int T = TUNE_ROW_THREADS;
  pick<G, N, BITS, T><<<unsigned(ceil_div(rows, T / G)), T, 0, s>>>(logits, weights, picks, rows, int(experts));
  return int(cudaGetLastError());
}
}  // namespace

extern "C" int launch(const float* logits, float* weights, int64_t* picks, int64_t rows, int64_t experts,
                      void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (rows == 0) return 0;
#if TUNE_ROW_LANES == 0
  if (experts <= 64) return launch_pick<4, 16, 6>(logits, weights, picks, rows, experts, s);
  if (experts <= 128) return launch_pick<8, 16, 7>(logits, weights, picks, rows, experts, s);
  if (experts <= 256) return launch_pick<8, 32, 8>(logits, weights, picks, rows, experts, s);
#elif TUNE_ROW_LANES == 1  // fewer logits per lane
  if (experts <= 64) return launch_pick<8, 8, 6>(logits, weights, picks, rows, experts, s);
  if (experts <= 128) return launch_pick<16, 8, 7>(logits, weights, picks, rows, experts, s);
  if (experts <= 256) return launch_pick<16, 16, 8>(logits, weights, picks, rows, experts, s);
#else
  if (experts <= 64) return launch_pick<4, 16, 6>(logits, weights, picks, rows, experts, s);
  if (experts <= 128) return launch_pick<4, 32, 7>(logits, weights, picks, rows, experts, s);
  if (experts <= 256) return launch_pick<32, 8, 8>(logits, weights, picks, rows, experts, s);
#endif
  constexpr int T = 128;
  pick_any<T><<<unsigned(ceil_div(rows, T / 32)), T, 0, s>>>(logits, weights, picks, rows, experts);
  return int(cudaGetLastError());
}
