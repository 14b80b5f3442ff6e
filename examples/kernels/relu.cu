// ReLU for the cuda backend: four elements per load, a grid that covers the array once.
__device__ __forceinline__ float positive(float v) { return v < 0.f ? 0.f : v; }  // NaN stays NaN

__global__ void __launch_bounds__(256) relu(const float* __restrict__ x, float* __restrict__ out, int64_t n) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    const float4 r = {positive(v.x), positive(v.y), positive(v.z), positive(v.w)};
    *reinterpret_cast<float4*>(out + i) = r;
  } else {
    for (int64_t j = i; j < n; ++j) out[j] = positive(x[j]);
  }
}

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  const int64_t blocks = (n + 1023) / 1024;
  relu<<<static_cast<unsigned>(blocks), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
