// What product_kernel of split_product.cuh needs beside emulator.h, convolution_device.h and attention_device.h.
struct cudaLaunchAttribute { int id; struct { dim3 clusterDim; } val; };
enum { cudaLaunchAttributeClusterDimension = 7 };
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  int numAttrs;
};
template <typename K, typename... A>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t* config, K kernel, A... given) {
  if (config->gridDim.x == 0) return cudaErrorInvalidValue;
  emulated::launch(config->gridDim, config->blockDim.x, config->dynamicSmemBytes, [=] { kernel(given...); });
  return cudaSuccess;
}
inline bool __any_sync(unsigned all, bool v) { return __reduce_or_sync(all, v) != 0; }
inline int __ffs(unsigned v) { return __builtin_ffs(int(v)); }
struct int2 { int x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float shared_float(uint32_t address) {
  float v;
  std::memcpy(&v, emulated::dynamic_bytes + address, 4);
  return v;
}
inline void put_shared(uint32_t address, float u, float v) {
  const float pair[2] = {u, v};
  if (address % 8) std::abort();
  std::memcpy(emulated::dynamic_bytes + address, pair, 8);
}
namespace warpsmith {
namespace split {  // for clusters, which are no part of these kernels
inline void bulk_copy_to(uint32_t, const void*, int, uint32_t, uint16_t) { std::abort(); }
inline void barrier_arrive_at(uint32_t, int) { std::abort(); }
inline void cluster_sync() { std::abort(); }
inline int cluster_rank() { return 0; }
}  // namespace split
}  // namespace warpsmith
