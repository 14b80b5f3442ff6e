// matmul_4d: the last axis of a tensor contracted with a matrix: one product of all rows.
//
// float32 accuracy from three fp16 products on the tensor cores; warpsmith/split_product.cuh says how.
#include <warpsmith/matmul.cuh>

namespace {

warpsmith::Product product(int64_t batch, int64_t height, int64_t width, int64_t k, int64_t n) { return {1, batch * height * width, k, n, true}; }

}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t height, int64_t width, int64_t k, int64_t n) { return warpsmith::multiply_bytes(product(batch, height, width, k, n)); }

extern "C" int launch(const float* a, const float* b, float* out, int64_t batch, int64_t height, int64_t width, int64_t k, int64_t n, void* workspace, void* stream) {
  const warpsmith::Product p = product(batch, height, width, k, n);
  return int(warpsmith::multiply(p, warpsmith::plain(a, p.rows, p.terms), warpsmith::transposed(b, p.columns, p.terms), warpsmith::dense(out, p), workspace,
                                 cudaStream_t(stream)));
}
