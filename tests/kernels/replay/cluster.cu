#include <cooperative_groups.h>
__global__ void __cluster_dims__(2, 1, 1) affine(const float* x, float* out, int64_t n) {
  __shared__ float held[256];
  auto cluster = cooperative_groups::this_cluster();
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t other = int64_t(blockIdx.x ^ 1) * blockDim.x + threadIdx.x;
  if (other < n) held[threadIdx.x] = x[other];  // each block loads what its neighbour needs
  cluster.sync();
  if (i < n) out[i] = 2.0f * cluster.map_shared_rank(held, cluster.block_rank() ^ 1)[threadIdx.x] + 1.0f;
  cluster.sync();
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  affine<<<2 * ((n + 511) / 512), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
