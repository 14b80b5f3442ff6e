// swiglu: silu(x @ gate.T) * (x @ up.T).
//
// The rows of gate and up are taken in turn as the columns of one product, so that both sums an element of the result
// needs are neighbours in one thread, which joins them before they are stored.
#include <warpsmith/matmul.cuh>

namespace {

struct Gated {
  static constexpr bool REPAIRS = true;
  float* out;
  int64_t width;
  __device__ __forceinline__ bool by_rows() const { return false; }
  __device__ __forceinline__ float* row_at(int64_t, int) const { return out; }
  __device__ __forceinline__ void finish(int64_t, int, int, float&, float&) const {}
  __device__ __forceinline__ void store(int64_t, int64_t, int row, int column, float gate, float up) const {
    out[row * width + column / 2] = gate / (1.f + expf(-gate)) * up;
  }
};

}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols, int64_t width) {
  return warpsmith::multiply_bytes({1, rows, cols, 2 * width, true});
}

extern "C" int launch(const float* x, const float* gate, const float* up, float* out, int64_t rows, int64_t cols,
                      int64_t width, void* workspace, void* stream) {
  const warpsmith::Product p{1, rows, cols, 2 * width, true};
  return int(warpsmith::multiply(p, warpsmith::plain(x, rows, cols), warpsmith::split::Interleaved{gate, up, cols},
                                 Gated{out, width}, workspace, cudaStream_t(stream)));
}
