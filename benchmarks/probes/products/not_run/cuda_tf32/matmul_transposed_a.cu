// matmul_transposed_a: the product of two matrices, the first stored transposed.
//
// TF32 accuracy (11 significant bits of the factors) from one scaled fp16 product on the tensor cores; warpsmith/split_product.cuh says how.
#include <warpsmith/matmul.cuh>

namespace {

warpsmith::Product product(int64_t k, int64_t m, int64_t n) { return {1, m, k, n, true}; }

}  // namespace

extern "C" int64_t workspace_bytes(int64_t k, int64_t m, int64_t n) { return warpsmith::multiply_bytes<warpsmith::Tf32>(product(k, m, n)); }

extern "C" int launch(const float* a, const float* b, float* out, int64_t k, int64_t m, int64_t n, void* workspace, void* stream) {
  const warpsmith::Product p = product(k, m, n);
  return int(warpsmith::multiply<warpsmith::Tf32>(p, warpsmith::transposed(a, p.rows, p.terms), warpsmith::transposed(b, p.columns, p.terms), warpsmith::dense(out, p), workspace,
                                 cudaStream_t(stream)));
}
