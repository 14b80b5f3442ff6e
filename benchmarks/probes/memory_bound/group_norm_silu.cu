// Group normalisation of images, then SiLU. Groups lie in the shared memory of a cluster of blocks, which go from group to
// group: while one is written, the next one comes in.
#include <warpsmith/group_norm.cuh>
#include <warpsmith/kept.cuh>

#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 512
#endif
#ifndef TUNE_KEPT_PACKS
#define TUNE_KEPT_PACKS 2
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 13  // chunks of TUNE_KEPT_THREADS * TUNE_KEPT_PACKS packs that a block keeps
#endif
#ifndef TUNE_DEEP
#define TUNE_DEEP 1  // rows for which a cluster should have room
#endif
#ifndef TUNE_SHORT
#define TUNE_SHORT 8192  // shorter rows are kept in registers
#endif

namespace {
using namespace warpsmith;

// Division of numbers below 2^31 by one that does not change.
struct Divisor {
  unsigned by, factor, shift;
  Divisor() = default;
  explicit Divisor(unsigned d) : by(d), factor(0), shift(31) {
    while ((uint64_t(1) << (shift - 31)) < d) ++shift;
    factor = unsigned(((uint64_t(1) << shift) + d - 1) / d);
  }
  __device__ __forceinline__ unsigned quotient(unsigned n) const { return unsigned(uint64_t(n) * factor >> shift); }
};

// x / (1 + exp(-x)). What the product with log2(e) loses makes exp(-x) wrong by |x| 2^-24 of itself, which matters only
// where the result is as small as x exp(x).
struct QuickSilu {
  static __device__ __forceinline__ float apply(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -kLog2e));
    return __fdividef(x, 1.0f + e);
  }
};

struct GroupSilu : GroupNorm<QuickSilu, true> {
  Divisor planes;
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long bits) {
    if (PACKS > 8 || bits != (1ull << (4 * PACKS % 64)) - 1) return Moments::local<PACKS>(v, bits);
    float sum = 0.0f, square = 0.0f, other = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) sum += (v[p].x + v[p].y) + (v[p].z + v[p].w);
    const float mean = sum * (1.0f / (4 * PACKS));
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const float a = v[p].x - mean, b = v[p].y - mean, c = v[p].z - mean, d = v[p].w - mean;
      square = fmaf(a, a, fmaf(b, b, square)), other = fmaf(c, c, fmaf(d, d, other));
    }
    return {4.0f * PACKS, mean, square + other};
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t row,
                                        int64_t column) const {
    if (mask == 0xfu && planes.by % 4 == 0) {  // all four in one channel
      const unsigned c = r.channel + planes.quotient(unsigned(column));
      const float w = __ldg(weight + c) * r.scale, b = __ldg(bias + c);
      store_once(out + p * 4, make_float4(QuickSilu::apply(fmaf(v.x - r.mean, w, b)), QuickSilu::apply(fmaf(v.y - r.mean, w, b)),
                                          QuickSilu::apply(fmaf(v.z - r.mean, w, b)), QuickSilu::apply(fmaf(v.w - r.mean, w, b))));
      return;
    }
    GroupNorm<QuickSilu, true>::store(p, mask, v, r, row, column);
  }
};

// As launch_kept, with clusters that have room for `deep` rows if eight blocks can give it.
template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_deep(const P& policy, int64_t rows, int64_t cols, int deep, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  auto kernel = kept_rows<P, THREADS, PACKS, SLOTS>;
  int blocks = 1, clusters = 0;
  while (blocks < 8 && longest_kept(blocks, THREADS, PACKS, SLOTS) < cols * deep) blocks *= 2;
  if (longest_kept(blocks, THREADS, PACKS, SLOTS) < cols) blocks = 16;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(blocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess && blocks > 8) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * blocks));
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, blocks);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
}  // namespace

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const int64_t rows = batch * groups, plane = height * width, cols = channels / groups * plane;
  GroupSilu g;
  static_cast<GroupNorm<QuickSilu, true>&>(g) =
      group_norm_policy<QuickSilu, true>(x, weight, bias, out, eps, groups, channels, plane);
  g.planes = Divisor(unsigned(plane < 1 ? 1 : plane));
  if (cols >= TUNE_SHORT && cols <= longest_kept(16, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_deep<GroupSilu, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(g, rows, cols, TUNE_DEEP, stream);
  return reduce_rows(g, rows, cols, stream);
}
