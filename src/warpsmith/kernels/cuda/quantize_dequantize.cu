// Every row as 8-bit codes under a scale that is a power of two, and what these codes stand for.
#include <warpsmith/rows.cuh>

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
}  // namespace

extern "C" int launch(const float* x, int8_t* codes, float* y, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  Quantize q;
  q.x = x, q.codes = codes, q.y = y;
#ifdef TUNE_THREADS
  return warpsmith::launch_rows<Quantize, TUNE_THREADS, TUNE_PACKS, TUNE_RESIDENT>(q, rows, cols, TUNE_BLOCKS, stream);
#else
  return warpsmith::reduce_rows(q, rows, cols, stream);
#endif
}
