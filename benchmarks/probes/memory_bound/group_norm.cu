// Group normalisation of images. A group is read once, or again from the second-level cache. As the kernel of the
// collection, with fewer instructions per element: no division for the channel of a pack, none for the mean of whole packs.
#include <warpsmith/lagged.cuh>

#include <warpsmith/group_norm.cuh>

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

struct Group : GroupNorm<Same, true> {
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
      store_once(out + p * 4, make_float4(fmaf(v.x - r.mean, w, b), fmaf(v.y - r.mean, w, b), fmaf(v.z - r.mean, w, b),
                                          fmaf(v.w - r.mean, w, b)));
      return;
    }
    GroupNorm<Same, true>::store(p, mask, v, r, row, column);
  }
};
}  // namespace

extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t height,
                                   int64_t width) {
  return rows_workspace<Group>(batch * groups, channels / groups * height * width);
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const int64_t plane = height * width;
  Group g;
  static_cast<GroupNorm<Same, true>&>(g) =
      group_norm_policy<Same, true>(x, weight, bias, out, eps, groups, channels, plane);
  g.planes = Divisor(unsigned(plane < 1 ? 1 : plane));
  return reduce_any_rows(g, batch * groups, channels / groups * plane, workspace, stream);
}
