// What the probes share: a check of every call, and the median time of several.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#define CHECK(x)                                                    \
  do {                                                              \
    cudaError_t e_ = (x);                                           \
    if (e_ != cudaSuccess) {                                        \
      printf("ERR %s line %d\n", cudaGetErrorString(e_), __LINE__); \
      cudaGetLastError();                                           \
    }                                                               \
  } while (0)
template <class F>
float timed(F f, int n = 5) {
  cudaEvent_t a, b;
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  std::vector<float> t;
  f();
  cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) {
    printf("ERR %s\n", cudaGetErrorString(e));
    cudaGetLastError();
    return -1;
  }
  for (int i = 0; i < n; i++) {
    cudaEventRecord(a);
    f();
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float m;
    cudaEventElapsedTime(&m, a, b);
    t.push_back(m);
  }
  std::sort(t.begin(), t.end());
  return t[n / 2];
}

// Launch with clusters of some blocks and shared memory for each, three times; -1 where the device has not got that.
template <typename... Parameters, typename... Arguments>
float timed_clusters(void (*kernel)(Parameters...), int64_t blocks, int threads, int cluster, size_t shared,
                     Arguments... arguments) {
  const int bytes = int(shared);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) {
    cudaGetLastError();
    return -1;
  }
  if (cluster > 8) CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(cluster), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  return timed([&] { CHECK(cudaLaunchKernelEx(&config, kernel, arguments...)); }, 3);
}
