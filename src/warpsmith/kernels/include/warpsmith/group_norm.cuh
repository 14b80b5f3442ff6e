// Normalisation of groups of channels, with weight and bias per channel and a function applied to the result.
#pragma once
#include <warpsmith/divisor.cuh>
#include <warpsmith/rows.cuh>

namespace warpsmith {

struct Same {
  static __device__ __forceinline__ float apply(float x) { return x; }
};
// x / (1 + exp(-x)). What the product with log2(e) loses makes exp(-x) wrong by |x| 2^-24 of itself, which matters only
// where the result is as small as x exp(x).
struct Silu {
  static __device__ __forceinline__ float apply(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -kLog2e));
    return __fdividef(x, 1.0f + e);
  }
};

// Rows are groups: a group has `channels` channels of `plane` elements each.
template <typename F, bool AFFINE>
struct GroupNorm : Moments {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  float eps;
  unsigned groups, channels;
  Divisor plane;
  bool whole_packs;  // the elements of a pack are of one channel
  struct Ready {
    float mean, scale;
    unsigned channel;  // first of the group
  };
  // As Moments::local, without a division where all elements exist.
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
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t row) const {
    const float variance = s.square / s.count;
    return {s.mean, rsqrtf(variance + eps), unsigned(row % groups) * channels};
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t column) const {
    float o[4] = {v.x, v.y, v.z, v.w};
    if constexpr (!AFFINE) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[e] = F::apply((o[e] - r.mean) * r.scale);
    } else {
      if (mask == 0xfu && whole_packs) {
        const unsigned c = r.channel + plane.quotient(unsigned(column));
        const float w = __ldg(weight + c) * r.scale, b = __ldg(bias + c);
#pragma unroll
        for (int e = 0; e < 4; ++e) o[e] = F::apply(fmaf(o[e] - r.mean, w, b));
        store_once(out + p * 4, make_float4(o[0], o[1], o[2], o[3]));
        return;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mask >> e & 1u) {
          const unsigned c = r.channel + unsigned(column + e) / plane.by;
          o[e] = F::apply(fmaf(o[e] - r.mean, __ldg(weight + c) * r.scale, __ldg(bias + c)));
        }
    }
    store_masked(out, p, make_float4(o[0], o[1], o[2], o[3]), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};

template <typename F, bool AFFINE>
GroupNorm<F, AFFINE> group_norm_policy(const float* x, const float* weight, const float* bias, float* out, double eps,
                                       int64_t groups, int64_t channels, int64_t plane) {
  GroupNorm<F, AFFINE> g;
  g.x = x, g.weight = weight, g.bias = bias, g.out = out, g.eps = float(eps);
  g.groups = unsigned(groups), g.channels = unsigned(channels / groups);
  g.plane = Divisor(unsigned(plane < 1 ? 1 : plane));
  g.whole_packs = plane % 4 == 0 && channels / groups * plane < (int64_t(1) << 31);
  return g;
}

}  // namespace warpsmith
