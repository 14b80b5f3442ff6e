// Normalisation of groups of channels, with weight and bias per channel and a function applied to the result.
#pragma once
#include <warpsmith/rows.cuh>

namespace warpsmith {

struct Same {
  static __device__ __forceinline__ float apply(float x) { return x; }
};
struct Silu {
  static __device__ __forceinline__ float apply(float x) { return __fdividef(x, 1.0f + exp_near(-x)); }
};

// Rows are groups: a group has `channels` channels of `plane` elements each.
template <typename F, bool AFFINE>
struct GroupNorm : Moments {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  float eps;
  unsigned groups, channels, plane;
  struct Ready {
    float mean, scale;
    unsigned channel;  // first of the group
  };
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
      const unsigned at = column < 0 ? 0u : unsigned(column);
      const unsigned first = at / plane;
      if (mask == 0xfu && at + 4 <= (first + 1) * plane) {  // all four in one channel
        const float w = __ldg(weight + r.channel + first) * r.scale, b = __ldg(bias + r.channel + first);
#pragma unroll
        for (int e = 0; e < 4; ++e) o[e] = F::apply(fmaf(o[e] - r.mean, w, b));
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (mask >> e & 1u) {
            const unsigned c = r.channel + unsigned(column + e) / plane;
            o[e] = F::apply(fmaf(o[e] - r.mean, __ldg(weight + c) * r.scale, __ldg(bias + c)));
          }
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
  g.groups = unsigned(groups), g.channels = unsigned(channels / groups), g.plane = unsigned(plane);
  return g;
}

}  // namespace warpsmith
