// Every row divided by the mean magnitude of its elements. Rows of some length stay in the shared memory of a cluster of blocks
// that go from row to row, so that the next row comes in while one is written; others stay in registers.
#include <warpsmith/kept.cuh>

#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 512
#endif
#ifndef TUNE_KEPT_PACKS
#define TUNE_KEPT_PACKS 2
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 14
#endif
#ifndef TUNE_BLOCKS
#define TUNE_BLOCKS 4
#endif
#ifndef TUNE_LONG
#define TUNE_LONG 32768  // elements of rows that go this way
#endif

namespace {
using namespace warpsmith;
struct Length : SumMagnitudes {
  const float* x;
  float* out;
  float cols;
  struct Ready {
    float inverse;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(float s, int64_t) const { return {cols / s}; }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    store_masked(out, p, make_float4(v.x * r.inverse, v.y * r.inverse, v.z * r.inverse, v.w * r.inverse), mask);
  }
  __device__ __forceinline__ void once(float, const Ready&, int64_t) const {}
};

// As launch_kept, with clusters of TUNE_BLOCKS blocks.
int launch_clusters(const Length& policy, int64_t rows, int64_t cols, void* stream) {
  constexpr int bytes = TUNE_KEPT_THREADS * TUNE_KEPT_PACKS * TUNE_KEPT * 16;
  auto kernel = kept_rows<Length, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>;
  int clusters = 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(TUNE_BLOCKS);
  config.blockDim = dim3(TUNE_KEPT_THREADS + 32);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = TUNE_BLOCKS;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * TUNE_BLOCKS));
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, TUNE_BLOCKS);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  Length p;
  p.x = x, p.out = out, p.cols = float(cols);
  const bool fits = cols <= longest_kept(TUNE_BLOCKS, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT);
  if (rows > 0 && cols >= TUNE_LONG && fits) return launch_clusters(p, rows, cols, stream);
  return reduce_rows(p, rows, cols, stream);
}
