// The mean of max(0, 1 - prediction * target), with one target for each column.
#include <warpsmith/whole.cuh>

namespace {
using namespace warpsmith;

__device__ __forceinline__ float hinge(float x, float t) { return max_nan(1.0f - x * t, 0.0f); }

// Rows whose length is a multiple of 4: a pack of predictions has a pack of targets.
struct Packed {
  struct Loaded {
    float4 x, t;
  };
  const float* x;
  const float* targets;
  uint32_t row_packs;
  __device__ __forceinline__ Loaded load(int64_t p) const {
    const uint32_t at = p <= 0xffffffff ? uint32_t(p) % row_packs : uint32_t(p % row_packs);
    return {load_once(x + p * 4), load_shared_use(targets + int64_t(at) * 4)};
  }
  __device__ __forceinline__ float sum(const Loaded& v) const {
    return (hinge(v.x.x, v.t.x) + hinge(v.x.y, v.t.y)) + (hinge(v.x.z, v.t.z) + hinge(v.x.w, v.t.w));
  }
  __device__ __forceinline__ float term(int64_t) const { return 0.0f; }  // there is none
};
struct Single {
  using Loaded = float4;
  const float* x;
  const float* targets;
  int64_t cols;
  __device__ __forceinline__ float4 load(int64_t p) const {
    return make_float4(term(p * 4), term(p * 4 + 1), term(p * 4 + 2), term(p * 4 + 3));
  }
  __device__ __forceinline__ float sum(const float4& v) const { return (v.x + v.y) + (v.z + v.w); }
  __device__ __forceinline__ float term(int64_t i) const { return hinge(__ldg(x + i), __ldg(targets + i % cols)); }
};
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return warpsmith::whole_bytes(); }

extern "C" int launch(const float* predictions, const float* targets, float* out, int64_t rows, int64_t cols,
                      void* workspace, void* stream) {
  const ScaledSum mean{out, 1.0 / double(rows * cols)};
  if (cols % 4 == 0)
    return sum_all(Packed{predictions, targets, uint32_t(cols / 4)}, rows * cols, workspace, mean, stream);
  return sum_all(Single{predictions, targets, cols}, rows * cols, workspace, mean, stream);
}
