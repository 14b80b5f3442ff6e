// The mean cross-entropy of rows of scores with their labels; rows with the label -100 do not count.
//
// Nothing of a row is needed a second time, so no row is kept: a warp streams through its rows, the next packs on their
// way while the last ones are added to the largest element and the sum. Warps meet only at the end of the kernel.
#include <warpsmith/rows.cuh>
#include <warpsmith/whole.cuh>

#ifndef TUNE_PACKS
#define TUNE_PACKS 8  // packs of a lane that travel together
#endif
#ifndef TUNE_WARPS
#define TUNE_WARPS 4  // of a block
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 4  // blocks of a multiprocessor
#endif

namespace {
using namespace warpsmith;

constexpr int kPacks = TUNE_PACKS, kWarps = TUNE_WARPS, kPiece = 32 * kPacks;  // packs of a warp that travel together

__device__ __forceinline__ float power(float x, float most) {  // results below 2^-126 are 0
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"((x - most) * kLog2e));
  return e;
}
struct Known : SoftmaxStat::Stat {
  __device__ __forceinline__ void add(const float4 (&v)[kPacks]) {
    float now = most;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) now = max_nan(now, max_nan(max_nan(v[p].x, v[p].y), max_nan(v[p].z, v[p].w)));
    const float low = now == -INFINITY ? 0.0f : now;
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      a += power(v[p].x, low) + power(v[p].y, low);
      b += power(v[p].z, low) + power(v[p].w, low);
    }
    sum = sum * SoftmaxStat::rate(most, now) + (a + b);
    most = now;
  }
};
struct Part {  // what a block has found
  double sum, count;
};

// Adds the losses of the warps of a block, in the order of the warps.
__device__ __forceinline__ void leave(double sum, int count, Part* parts) {
  __shared__ Part of_warps[kWarps];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = {sum, double(count)};
  __syncthreads();
  if (threadIdx.x == 0) {
    Part all = {0.0, 0.0};
    for (int w = 0; w < kWarps; ++w) all.sum += of_warps[w].sum, all.count += of_warps[w].count;
    parts[blockIdx.x] = all;
  }
}
// The loss of a row; all lanes get it.
__device__ __forceinline__ float loss_of(const Known& known, float hit) {
  const SoftmaxStat::Stat all = warp_merge<SoftmaxStat>(known);
  return (all.most - hit) + logf(all.sum);
}

template <bool WHOLE>  // rows begin between packs
__global__ void __launch_bounds__(kWarps * 32, TUNE_RESIDENT)
    stream_rows(const float* __restrict__ x, const int64_t* __restrict__ labels, int64_t rows, int64_t classes,
                Part* __restrict__ parts) {
  const int lane = threadIdx.x % 32;
  const int64_t step = int64_t(gridDim.x) * kWarps;
  int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  double sum = 0.0;
  int count = 0;
  float4 next[kPacks];
  auto packs_of = [&](int64_t of) { return WHOLE ? int(classes / 4) : int(RowSpan(of, classes).packs); };
  auto fetch = [&](int64_t of, int from, int packs) {
    const int64_t first = WHOLE ? of * (classes / 4) : RowSpan(of, classes).first;
    if (WHOLE && from + kPiece <= packs) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) next[p] = load_once(x + (first + from + p * 32 + lane) * 4);
      return;
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = from + p * 32 + lane;
      next[p] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (i < packs)
        next[p] = load_masked(x, first + i, WHOLE ? 0xfu : RowSpan(of, classes).mask(first + i), -INFINITY);
    }
  };
  int64_t label = row < rows ? __ldg(labels + row) : -100;
  if (row < rows) fetch(row, 0, packs_of(row));
  while (row < rows) {
    const int packs = packs_of(row);
    const int64_t after = row + step;
    const float hit = label == -100 ? 0.0f : __ldg(x + row * classes + label);  // needed at the end of the row
    const int64_t label_after = after < rows ? __ldg(labels + after) : -100;
    Known known;
    known.most = -INFINITY, known.sum = 0.0f;
#pragma unroll 1
    for (int from = 0; from < packs; from += kPiece) {
      float4 now[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) now[p] = next[p];
      const bool more = from + kPiece < packs;
      const int64_t of = more ? row : after;
      fetch(of, more ? from + kPiece : 0, more ? packs : after < rows ? packs_of(after) : 0);
      known.add(now);
    }
    const float loss = loss_of(known, hit);
    if (label != -100) sum += loss, ++count;
    row = after, label = label_after;
  }
  leave(sum, count, parts);
}

__global__ void __launch_bounds__(1024) finish_parts(const Part* __restrict__ parts, int64_t count, float* out) {
  double sum = 0.0, rows = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += 1024) sum += parts[i].sum, rows += parts[i].count;
  sum = block_sum<1024>(sum);
  rows = block_sum<1024>(rows);
  if (threadIdx.x == 0) out[0] = float(sum / rows);
}

// ---------------------------------------------------------------------------------------------------------------------
// Few rows: each is shared by a cluster of blocks.

struct RowLoss : SoftmaxStat {
  const float* x;
  const int64_t* labels;
  Part* losses;
  int64_t classes;
  struct Ready {};
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat&, int64_t) const { return {}; }
  __device__ __forceinline__ void store(int64_t, unsigned, const float4&, const Ready&, int64_t, int64_t) const {}
  __device__ __forceinline__ void once(const Stat& s, const Ready&, int64_t row) const {
    const int64_t label = __ldg(labels + row);
    losses[row] = label == -100 ? Part{0.0, 0.0}
                                : Part{(s.most - __ldg(x + row * classes + label)) + logf(s.sum), 1.0};
  }
};

int64_t units() {
  int device = 0, n = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}
bool streams(int64_t rows, int64_t classes) {  // enough rows for the warps of the device, or so short that it matters not
  return classes < (int64_t(1) << 31) && (rows >= units() * 8 || classes <= 1024);
}
int64_t blocks_for(int64_t rows) {
  const int64_t all = ceil_div(rows, kWarps), most = units() * TUNE_RESIDENT;
  return most < all ? most : all;
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t classes) {
  return (streams(rows, classes) ? blocks_for(rows) : rows) * int64_t(sizeof(Part));
}

extern "C" int launch(const float* predictions, const int64_t* targets, float* out, int64_t rows, int64_t classes,
                      void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  Part* parts = static_cast<Part*>(workspace);
  int64_t count = rows;
  if (streams(rows, classes)) {
    count = blocks_for(rows);
    auto kernel = classes % 4 == 0 ? stream_rows<true> : stream_rows<false>;
    kernel<<<unsigned(count), kWarps * 32, 0, s>>>(predictions, targets, rows, classes, parts);
  } else {
    RowLoss policy;
    policy.x = predictions, policy.labels = targets, policy.losses = parts, policy.classes = classes;
    const int failed = reduce_rows(policy, rows, classes, stream);
    if (failed) return failed;
  }
  finish_parts<<<1, 1024, 0, s>>>(parts, count, out);
  return int(cudaGetLastError());
}
