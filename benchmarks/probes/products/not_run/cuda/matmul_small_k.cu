// matmul_small_k: a product with few terms: writing the result is the limit.
//
// float32 accuracy from three fp16 products on the tensor cores; warpsmith/split_product.cuh says how.
#include <warpsmith/matmul.cuh>

namespace {

warpsmith::Product product(int64_t m, int64_t k, int64_t n) { return {1, m, k, n, true}; }

}  // namespace

extern "C" int64_t workspace_bytes(int64_t m, int64_t k, int64_t n) { return warpsmith::multiply_bytes(product(m, k, n)); }

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n, void* workspace, void* stream) {
  const warpsmith::Product p = product(m, k, n);
  return int(warpsmith::multiply(p, warpsmith::plain(a, p.rows, p.terms), warpsmith::transposed(b, p.columns, p.terms), warpsmith::dense(out, p), workspace,
                                 cudaStream_t(stream)));
}
