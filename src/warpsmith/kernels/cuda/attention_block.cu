// attention_block: q, k, v by one product, causal attention of every head, and a product of the joined heads.
#include <warpsmith/flash_attention.cuh>
#include <warpsmith/matmul.cuh>

namespace {

constexpr int64_t WIDTH = 256;  // of a position: all heads together

struct Sizes {
  int64_t heads, batch, length;
  warpsmith::Product first() const { return {1, batch * length, WIDTH, 3 * WIDTH, true}; }
  warpsmith::Product last() const { return {1, batch * length, WIDTH, WIDTH, true}; }
  warpsmith::flash::Heads attention(const float* qkv, float* out) const {
    const int width = int(WIDTH / heads);
    return {qkv, out, int(batch), int(heads), int(length), width, 1.f / sqrtf(float(width))};
  }
  int64_t qkv_bytes() const { return warpsmith::split::round_up(batch * length * 3 * WIDTH * 4, 256); }
  int64_t mixed_bytes() const { return warpsmith::split::round_up(batch * length * WIDTH * 4, 256); }
  // The products and the attention use this part one after the other.
  int64_t shared_bytes() const {
    int64_t most = warpsmith::flash::plane_bytes(attention(nullptr, nullptr));
    for (const int64_t bytes : {warpsmith::multiply_bytes(first()), warpsmith::multiply_bytes(last())})
      if (bytes > most) most = bytes;
    return most;
  }
};

}  // namespace

extern "C" int64_t workspace_bytes(int64_t heads, int64_t batch, int64_t length) {
  const Sizes sizes{heads, batch, length};
  return sizes.qkv_bytes() + sizes.mixed_bytes() + sizes.shared_bytes();
}

extern "C" int launch(const float* x, const float* mix, const float* out_mix, float* out, int64_t heads, int64_t batch,
                      int64_t length, void* workspace, void* stream_) {
  const cudaStream_t stream = cudaStream_t(stream_);
  const Sizes sizes{heads, batch, length};
  if (heads < 1 || WIDTH % heads) return int(cudaErrorInvalidValue);
  float* qkv = static_cast<float*>(workspace);
  float* mixed = qkv + sizes.qkv_bytes() / 4;
  void* rest = mixed + sizes.mixed_bytes() / 4;
  const int64_t rows = batch * length;
  const warpsmith::Product first = sizes.first(), last = sizes.last();
  cudaError_t error = warpsmith::multiply(first, warpsmith::plain(x, rows, WIDTH), warpsmith::plain(mix, 3 * WIDTH, WIDTH),
                                          warpsmith::dense(qkv, first), rest, stream);
  if (error == cudaSuccess) error = warpsmith::flash::attend(sizes.attention(qkv, mixed), rest, stream);
  if (error == cudaSuccess)
    error = warpsmith::multiply(last, warpsmith::plain(mixed, rows, WIDTH), warpsmith::plain(out_mix, WIDTH, WIDTH),
                                warpsmith::dense(out, last), rest, stream);
  return int(error);
}
