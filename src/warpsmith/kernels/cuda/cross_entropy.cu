// The mean cross-entropy of rows of scores with their labels; rows with the label -100 do not count.
#include <warpsmith/rows.cuh>
#include <warpsmith/whole.cuh>

#ifndef TUNE_ROW_THREADS
#define TUNE_ROW_THREADS 128
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 6
#endif

namespace {
using namespace warpsmith;

struct RowLoss : SoftmaxStat {
  const float* x;
  const int64_t* labels;
  float* losses;
  int64_t classes;
  struct Ready {};
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat&, int64_t) const { return {}; }
  __device__ __forceinline__ void store(int64_t, unsigned, const float4&, const Ready&, int64_t, int64_t) const {}
  __device__ __forceinline__ void once(const Stat& s, const Ready&, int64_t row) const {
    const int64_t label = __ldg(labels + row);
    losses[row] = label == -100 ? 0.0f : (s.most - __ldg(x + row * classes + label)) + logf(s.sum);
  }
};

__global__ void __launch_bounds__(1024)
    mean_loss(const float* __restrict__ losses, const int64_t* __restrict__ labels, int64_t rows, float* out) {
  double sum = 0.0;
  int64_t count = 0;
#pragma unroll 8
  for (int64_t row = threadIdx.x; row < rows; row += 1024) {
    sum += losses[row];
    count += __ldg(labels + row) != -100;
  }
  sum = block_sum<1024>(sum);
  const double all = block_sum<1024>(double(count));
  if (threadIdx.x == 0) out[0] = float(sum / all);
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t classes) { return rows * 4; }

extern "C" int launch(const float* predictions, const int64_t* targets, float* out, int64_t rows, int64_t classes,
                      void* workspace, void* stream) {
  RowLoss policy;
  policy.x = predictions, policy.labels = targets, policy.losses = static_cast<float*>(workspace), policy.classes = classes;
  // A row of a multiple of 4 elements fills its packs; any other row may begin and end inside a pack.
  const int failed = ceil_div(classes, 4) + (classes % 4 ? 1 : 0) <= TUNE_ROW_THREADS * TUNE_PACKS
                         ? launch_rows<RowLoss, TUNE_ROW_THREADS, TUNE_PACKS, TUNE_RESIDENT>(policy, rows, classes, 1, stream)
                         : reduce_rows(policy, rows, classes, stream);
  if (failed) return failed;
  mean_loss<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(policy.losses, targets, rows, out);
  return int(cudaGetLastError());
}
