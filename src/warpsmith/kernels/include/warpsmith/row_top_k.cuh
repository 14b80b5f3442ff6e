// The K largest or smallest elements of each row of x[rows, cols], sorted, with their places; rows of any length from K on.
// NaN counts as the largest number, of equal elements the first is taken: the result does not depend on the order of events.
// `top_of_rows` chooses a kernel by the length of the rows:
//
//   rank_rows    up to 32 elements: 8 to 32 lanes of a warp have a row; each lane counts the elements before its own
//   pick_rows    up to 1024: a warp has a row in its registers. It takes the best element K times, or finds the K-th one bit by
//                bit and sorts what is not below it, whichever should be less work
//   select_rows  longer rows: a block reads a row once and holds the elements that may be among the best in shared memory. What
//                is held is cut down to the best K when there is no room for more, and the K-th is the limit for all further
//                elements. The first limit comes from the best element of each thread. Few rows are cut into parts; `merge_parts`
//                takes the best of the parts.
//
// An element is compared as a 64-bit pick: above, an integer in the order of the values; below, the columns that follow it.
// Picks of a row differ, and 0 is below all of them.
#pragma once
#include <warpsmith/packs.cuh>

namespace warpsmith {
namespace top_k {

using Pick = unsigned long long;

// Integers in the order in which elements are taken, larger ones first; none is 0.
template <bool LARGEST>
__device__ __forceinline__ unsigned order_of(float x) {
  if (x != x) return LARGEST ? 0xffffffffu : 1u;
  const unsigned bits = __float_as_uint(x);
  const unsigned up = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return LARGEST ? up : ~up;
}
template <bool LARGEST>
__device__ __forceinline__ float value_of(unsigned order) {
  const unsigned up = LARGEST ? order : ~order;
  return __uint_as_float(up & 0x80000000u ? up & 0x7fffffffu : ~up);
}
__device__ __forceinline__ Pick pick_of(unsigned order, unsigned column) { return (Pick(order) << 32) | Pick(~column); }

// Where the results go; a result that nobody asks for is null.
struct Results {
  float* values;
  int64_t* indices;
  template <bool LARGEST>
  __device__ __forceinline__ void put(int64_t at, Pick pick) const {
    if (values) values[at] = value_of<LARGEST>(unsigned(pick >> 32));
    if (indices) indices[at] = int64_t(~unsigned(pick));
  }
};

// --- rows of at most 32 elements ---

template <int K, bool LARGEST, int LANES, int THREADS>
__global__ void __launch_bounds__(THREADS)
    rank_rows(const float* __restrict__ x, const __grid_constant__ Results out, int64_t rows, int cols) {
  const int own = int(threadIdx.x) % LANES;
  const int64_t row = int64_t(blockIdx.x) * (THREADS / LANES) + int(threadIdx.x) / LANES;
  const bool there = row < rows && own < cols;
  const unsigned order = there ? order_of<LARGEST>(__ldg(x + row * cols + own)) : 0u;
  int rank = 0;
#pragma unroll
  for (int mask = 1; mask < LANES; ++mask) {
    const unsigned other = __shfl_xor_sync(kAll, order, mask);
    rank += other > order || (other == order && (own ^ mask) < own);
  }
  if (there && rank < K) out.put<LARGEST>(row * K + rank, pick_of(order, unsigned(own)));
}

// --- rows of at most 1024 elements ---

// Whether taking the best element K times is less work than finding the K-th; instructions of a warp for N elements of a lane.
__host__ __device__ constexpr bool takes_rounds(int k, int n) {
  return k <= 32 && k * (3 * n + 12) <= 20 * (n + 6) + 8 * n + 4 * k + 40;
}

template <int K, bool LARGEST, int N, int THREADS>
__global__ void __launch_bounds__(THREADS)
    pick_rows(const float* __restrict__ x, const __grid_constant__ Results out, int64_t rows, int cols) {
  constexpr int WARPS = THREADS / 32;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int64_t row = int64_t(blockIdx.x) * WARPS + warp;
  if (row >= rows) return;
  const float* from = x + row * cols;
  unsigned order[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int at = i * 32 + lane;
    order[i] = at < cols ? order_of<LARGEST>(__ldg(from + at)) : 0u;
  }
  if constexpr (takes_rounds(K, N)) {
    Pick mine = 0;
#pragma unroll 1
    for (int round = 0; round < K; ++round) {
      unsigned head = order[0];
#pragma unroll
      for (int i = 1; i < N; ++i) head = head > order[i] ? head : order[i];
      const unsigned best = __reduce_max_sync(kAll, head);
      unsigned at = 0xffffffffu;
#pragma unroll
      for (int i = N - 1; i >= 0; --i) at = order[i] == best ? unsigned(i * 32 + lane) : at;
      const unsigned first = __reduce_min_sync(kAll, at);
#pragma unroll
      for (int i = 0; i < N; ++i) order[i] = first == unsigned(i * 32 + lane) ? 0u : order[i];
      if (lane == round) mine = pick_of(best, first);
    }
    if (lane < K) out.put<LARGEST>(row * K + lane, mine);
  } else {
    __shared__ Pick taken[WARPS][K];
    // The largest limit that at least K elements reach.
    unsigned limit = 0, reached = 0;
#pragma unroll 1
    for (int bit = 31; bit >= 0 && reached != unsigned(K); --bit) {
      const unsigned tried = limit | 1u << bit;
      unsigned mine = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) mine += order[i] >= tried;
      mine = __reduce_add_sync(kAll, mine);
      if (mine >= unsigned(K)) limit = tried, reached = mine;
    }
    // Of elements that equal the limit only the first may have room.
    unsigned above = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) above += order[i] > limit;
    above = __reduce_add_sync(kAll, above);
    const unsigned before = (1u << lane) - 1;
    unsigned high = 0, low = above;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const unsigned over = __ballot_sync(kAll, order[i] > limit), same = __ballot_sync(kAll, order[i] == limit);
      const unsigned at = order[i] > limit ? high + __popc(over & before) : low + __popc(same & before);
      if (order[i] >= limit && at < unsigned(K)) taken[warp][at] = pick_of(order[i], unsigned(i * 32 + lane));
      high += __popc(over), low += __popc(same);
    }
    __syncwarp();
#pragma unroll 1
    for (int own = lane; own < K; own += 32) {
      const Pick pick = taken[warp][own];
      int rank = 0;
#pragma unroll 8
      for (int i = 0; i < K; ++i) rank += taken[warp][i] > pick;
      out.put<LARGEST>(row * K + rank, pick);
    }
  }
}

// --- longer rows ---

constexpr int kOwn = 8;  // picks that a thread compares when the best are kept

// Cuts what a block holds down to the best K; called by all threads, after a barrier. Returns a limit that the best K reach and
// the others do not, 0 if no more than K are held.
template <int K, int THREADS>
__device__ __forceinline__ Pick keep_best(Pick* held, unsigned* count, unsigned* tallies) {
  static_assert(THREADS >= 64, "a tally for each bit");
  const unsigned all = *count, me = threadIdx.x;
  Pick own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] = i * THREADS + me < all ? held[i * THREADS + me] : 0;
  if (me < 64) tallies[me] = 0;
  __syncthreads();
  if (all <= unsigned(K)) return 0;
  Pick limit = 0;
#pragma unroll 1
  for (int bit = 63; bit >= 0; --bit) {
    const Pick tried = limit | Pick(1) << bit;
    unsigned mine = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (unsigned(i * THREADS) < all) mine += own[i] >= tried;
    mine = __reduce_add_sync(kAll, mine);
    if (me % 32 == 0) atomicAdd(&tallies[bit], mine);
    __syncthreads();
    const unsigned found = tallies[bit];
    if (found >= unsigned(K)) limit = tried;
    if (found == unsigned(K)) break;
  }
  if (me == 0) *count = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (own[i] >= limit) held[atomicAdd(count, 1u)] = own[i];
  __syncthreads();
  return limit;
}

// Writes the K picks that a block holds in their order.
template <int K, bool LARGEST>
__device__ __forceinline__ void put_sorted(const Pick* held, const Results& out, int64_t row) {
  if (threadIdx.x >= K) return;
  const Pick pick = held[threadIdx.x];
  int rank = 0;
#pragma unroll 8
  for (int i = 0; i < K; ++i) rank += held[i] > pick;
  out.put<LARGEST>(row * K + rank, pick);
}

// Parts of `part_packs` packs; the picks of each part go to `found`, or to the results if a row has one part.
template <int K, bool LARGEST, int THREADS>
__global__ void __launch_bounds__(THREADS, 1536 / THREADS)
    select_rows(const float* __restrict__ x, const __grid_constant__ Results out, Pick* __restrict__ found, int64_t cols,
                int64_t part_packs, unsigned parts) {
  constexpr unsigned TURN = THREADS * 4, ROOM = THREADS * kOwn;
  static_assert(K <= THREADS && ROOM >= TURN + K, "what is kept and one turn have room");
  __shared__ Pick held[ROOM];
  __shared__ unsigned count, tallies[64];
  const int lane = int(threadIdx.x) % 32;
  const int64_t row = blockIdx.x / parts;
  const RowSpan span(row, cols);
  const int64_t begin = span.first + int64_t(blockIdx.x % parts) * part_packs, left = span.first + span.packs - begin;
  const int packs = int(left < part_packs ? left : part_packs);  // of this part; none where a row has a pack less than others
  const float* const from = x + begin * 4;
  // The column of the part's first element; before the row, so that it wraps around, if the row begins inside the pack.
  const unsigned start = unsigned(begin * 4 - span.begin), length = unsigned(cols);
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  const auto mask_of = [&](int p) {
    unsigned mask = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) mask |= unsigned(start + unsigned(p) * 4 + unsigned(e) < length) << e;
    return p < packs ? mask : 0u;
  };
  const auto load = [&](int p) { return load_masked(from, p, mask_of(p), 0.0f); };
  int p = int(threadIdx.x);
  float4 next = load(p), later = load(p + THREADS);
  Pick limit = 0;                             // what is below is not among the best
  float near = __uint_as_float(0x7fffffffu);  // the same as a value, for a quick look; nothing compares with NaN
  unsigned seen = 0;                          // picks that were held when this warp added the last one
  for (int turn = 0; turn < packs; turn += THREADS, p += THREADS) {
    const float v[4] = {next.x, next.y, next.z, next.w};
    next = later, later = load(p + 2 * THREADS);
    const unsigned mask = mask_of(p);
    if (turn == 0) {
      unsigned best = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const unsigned order = mask >> e & 1u ? order_of<LARGEST>(v[e]) : 0u;
        best = best > order ? best : order;
      }
      if (__syncthreads_count(best != 0) >= K) {
        unsigned first = 0;
#pragma unroll 1
        for (int bit = 31; bit >= 0; --bit) {
          const unsigned tried = first | 1u << bit;
          const int threads = __syncthreads_count(best >= tried);
          if (threads >= K) first = tried;
          if (threads >= K && threads <= K + K / 4) break;
        }
        limit = Pick(first) << 32, near = value_of<LARGEST>(first);
      }
    }
    unsigned bits = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) bits |= unsigned(!(LARGEST ? v[e] < near : v[e] > near)) << e;
    bits &= mask;
    if (__any_sync(kAll, bits != 0)) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Pick pick = pick_of(order_of<LARGEST>(v[e]), start + unsigned(p) * 4 + unsigned(e));
        const bool enters = (bits >> e & 1u) && pick >= limit;
        const unsigned entering = __ballot_sync(kAll, enters);
        if (entering == 0) continue;
        unsigned place = 0;
        if (lane == 0) place = atomicAdd(&count, unsigned(__popc(entering)));
        place = __shfl_sync(kAll, place, 0);
        if (enters) held[place + __popc(entering & ((1u << lane) - 1))] = pick;
        seen = place + __popc(entering);
      }
    }
    if (__syncthreads_or(seen > ROOM - TURN)) {
      limit = keep_best<K, THREADS>(held, &count, tallies);
      near = value_of<LARGEST>(unsigned(limit >> 32));
      seen = 0;
    }
  }
  keep_best<K, THREADS>(held, &count, tallies);
  if (parts == 1)
    put_sorted<K, LARGEST>(held, out, row);
  else if (threadIdx.x < K)
    found[int64_t(blockIdx.x) * K + threadIdx.x] = threadIdx.x < count ? held[threadIdx.x] : 0;
}

constexpr int kMergeThreads = 512;

template <int K, bool LARGEST>
__global__ void __launch_bounds__(kMergeThreads)
    merge_parts(const Pick* __restrict__ found, const __grid_constant__ Results out, unsigned parts) {
  __shared__ Pick held[kMergeThreads * kOwn];
  __shared__ unsigned count, tallies[64];
  const unsigned all = parts * K;
  for (unsigned i = threadIdx.x; i < all; i += kMergeThreads) held[i] = found[int64_t(blockIdx.x) * all + i];
  if (threadIdx.x == 0) count = all;
  __syncthreads();
  keep_best<K, kMergeThreads>(held, &count, tallies);
  put_sorted<K, LARGEST>(held, out, blockIdx.x);
}

// How many parts a row has: enough for all multiprocessors of an H200, each of at least 4096 elements.
template <int K>
inline int64_t parts_of(int64_t rows, int64_t cols) {
  if (rows == 0 || rows >= 2 * 132 || cols < 2 * 4096) return 1;
  int64_t parts = ceil_div(3 * 132, rows);
  parts = parts < cols / 4096 ? parts : cols / 4096;
  return parts < kMergeThreads * kOwn / K ? parts : kMergeThreads * kOwn / K;
}

constexpr int kInvalid = 1;  // cudaErrorInvalidValue

}  // namespace top_k

template <int K>
inline int64_t top_k_bytes(int64_t rows, int64_t cols) {
  const int64_t parts = top_k::parts_of<K>(rows, cols);
  return parts > 1 ? rows * parts * K * int64_t(sizeof(top_k::Pick)) : 0;
}

// Launches the kernels; `values` or `indices` may be null.
template <int K, bool LARGEST>
int top_of_rows(const float* x, float* values, int64_t* indices, int64_t rows, int64_t cols, void* workspace, void* stream) {
  using namespace top_k;
  static_assert(K >= 1 && K <= 128, "what is kept has room");
  const auto s = static_cast<cudaStream_t>(stream);
  constexpr int T = 128;
  const Results out = {values, indices};
  const int64_t most = int64_t(1) << 31, parts = parts_of<K>(rows, cols);
  if (rows == 0) return 0;
  if (cols < K || cols > 2 * most - 8) return kInvalid;
  const int lanes = cols <= 8 ? 8 : cols <= 16 ? 16 : 32;
  const int64_t blocks = cols <= 32 ? ceil_div(rows, T / lanes) : cols <= 1024 ? ceil_div(rows, T / 32) : rows * parts;
  if (blocks >= most) return kInvalid;
  const unsigned grid = unsigned(blocks);
  const int few = int(cols);
  if (cols <= 8)
    rank_rows<K, LARGEST, 8, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 16)
    rank_rows<K, LARGEST, 16, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 32)
    rank_rows<K, LARGEST, 32, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 64)
    pick_rows<K, LARGEST, 2, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 128)
    pick_rows<K, LARGEST, 4, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 256)
    pick_rows<K, LARGEST, 8, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 512)
    pick_rows<K, LARGEST, 16, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else if (cols <= 1024)
    pick_rows<K, LARGEST, 32, T><<<grid, T, 0, s>>>(x, out, rows, few);
  else {
    Pick* const found = static_cast<Pick*>(workspace);
    const int64_t packs = ceil_div(ceil_div(cols, 4) + 1, parts);
    if (cols < 8192)
      select_rows<K, LARGEST, 128><<<grid, 128, 0, s>>>(x, out, found, cols, packs, unsigned(parts));
    else
      select_rows<K, LARGEST, 512><<<grid, 512, 0, s>>>(x, out, found, cols, packs, unsigned(parts));
    if (parts > 1) merge_parts<K, LARGEST><<<unsigned(rows), kMergeThreads, 0, s>>>(found, out, unsigned(parts));
  }
  return int(cudaGetLastError());
}

}  // namespace warpsmith
