// Every row as 8-bit codes under a scale that is a power of two, and what these codes stand for. Long rows lie in the
// shared memory of a cluster of blocks, which go from row to row: while one is written, the next one comes in.
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
#define TUNE_SHORT 16384  // shorter rows are kept in registers
#endif
#ifndef TUNE_REST
#define TUNE_REST 0  // how rows of 513 to 1024 packs are kept: as in rows.cuh, or by more threads or blocks
#endif

namespace {
using namespace warpsmith;

struct Quantize : LargestMagnitude {
  const float* x;
  int8_t* codes;
  float* y;
  struct Ready {
    float scale, inverse;
    bool exact;  // the inverse is a float too
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, 0.0f); }
  __device__ __forceinline__ Ready prepare(float most, int64_t) const {
    int exponent = 0;
    frexpf(most, &exponent);
    const float scale = ldexpf(1.0f, exponent - 7), inverse = ldexpf(1.0f, 7 - exponent);
    return {scale, inverse, scale >= 1.1754944e-38f && inverse < INFINITY};
  }
  static __device__ __forceinline__ float code(float v, const Ready& r) {
    const float q = rintf(r.exact ? v * r.inverse : v / r.scale);
    return fminf(fmaxf(q, -127.0f), 127.0f);
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    const float4 c = make_float4(code(v.x, r), code(v.y, r), code(v.z, r), code(v.w, r));
    store_masked(y, p, make_float4(c.x * r.scale, c.y * r.scale, c.z * r.scale, c.w * r.scale), mask);
    if (mask == 0xfu) {
      put(reinterpret_cast<char4*>(codes) + p,
             make_char4(static_cast<signed char>(c.x), static_cast<signed char>(c.y), static_cast<signed char>(c.z),
                        static_cast<signed char>(c.w)));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mask >> e & 1u) codes[p * 4 + e] = int8_t(part(c, e));
    }
  }
  __device__ __forceinline__ void once(float, const Ready&, int64_t) const {}
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

extern "C" int launch(const float* x, int8_t* codes, float* y, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  Quantize q;
  q.x = x, q.codes = codes, q.y = y;
  const int64_t packs = ceil_div(cols, 4) + (cols % 4 ? 1 : 0);
  if (cols >= TUNE_SHORT && cols <= longest_kept(16, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_deep<Quantize, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(q, rows, cols, TUNE_DEEP, stream);
  if (rows > 264 && packs > 512 && packs <= 1024) {
    if (TUNE_REST == 1) return launch_rows<Quantize, 128, 8, 8>(q, rows, cols, 1, stream);
    if (TUNE_REST == 2) return launch_rows<Quantize, 256, 4, 6>(q, rows, cols, 1, stream);
    if (TUNE_REST == 3) return launch_rows<Quantize, 256, 4, 8>(q, rows, cols, 1, stream);
  }
  if (rows > 264 && packs > 128 && packs <= 256) {
    if (TUNE_REST == 1) return launch_rows<Quantize, 32, 8, 24>(q, rows, cols, 1, stream);
    if (TUNE_REST == 2) return launch_rows<Quantize, 64, 4, 24>(q, rows, cols, 1, stream);
    if (TUNE_REST == 3) return launch_rows<Quantize, 128, 2, 16>(q, rows, cols, 1, stream);
  }
  return reduce_rows(q, rows, cols, stream);
}
