// matmul_lower_triangular: the product of two lower triangular matrices.
//
// A tile of the result needs only the terms between its rows and its columns: a sixth of the work of a full product.
// Parts of the factors that no tile needs are not read.
#include <warpsmith/split_product.cuh>

namespace {

using namespace warpsmith::split;
using S = Shape<128, 128, 32, 4, 1, false, true>;

}  // namespace

extern "C" int64_t workspace_bytes(int64_t n) {
  return 2 * plane_bytes(1, n, n, 128, S::BLOCK_K, S::CHUNK).total();
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, void* workspace, void* stream_) {
  const cudaStream_t stream = cudaStream_t(stream_);
  char* memory = static_cast<char*>(workspace);
  const Matrix first{a, n, 1, 0}, second{b, 1, n, 0};
  const Planes pa = planes_at(memory, 1, n, n, 128, S::BLOCK_K, S::CHUNK);
  memory += plane_bytes(1, n, n, 128, S::BLOCK_K, S::CHUNK).total();
  const Planes pb = planes_at(memory, 1, n, n, 128, S::BLOCK_K, S::CHUNK);
  cudaError_t error = prepare<128, S::BLOCK_K, S::CHUNK>(first, pa, 1, stream, Needed::TO_DIAGONAL);
  if (error == cudaSuccess) error = prepare<128, S::BLOCK_K, S::CHUNK>(second, pb, 1, stream, Needed::FROM_DIAGONAL);
  if (error != cudaSuccess) return int(error);
  const Task task{pa, pb, 1, 0, 8, 0};
  return int(run_product<S>(task, Lower{}, Store{out, n, n * n, int(n), n % 2 == 0}, first, second, stream));
}
