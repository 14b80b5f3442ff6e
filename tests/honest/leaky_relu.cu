// Four elements per load and store; the last one to three of an odd length one by one.
__device__ __forceinline__ float leaky(float v, float slope) { return v > 0.f ? v : v * slope; }

__global__ void leaky_relu(const float* __restrict__ x, float* __restrict__ out, float slope, int64_t n) {
  const int64_t me = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  const int64_t all = gridDim.x * static_cast<int64_t>(blockDim.x), quads = n / 4;
  for (int64_t q = me; q < quads; q += all) {
    const float4 v = reinterpret_cast<const float4*>(x)[q];
    reinterpret_cast<float4*>(out)[q] = {leaky(v.x, slope), leaky(v.y, slope), leaky(v.z, slope), leaky(v.w, slope)};
  }
  if (4 * quads + me < n) out[4 * quads + me] = leaky(x[4 * quads + me], slope);
}

extern "C" int launch(const float* x, float* out, double slope, int64_t n, void* workspace, void* stream) {
  const int64_t blocks = std::clamp<int64_t>((n / 4 + 255) / 256, 1, 4096);
  leaky_relu<<<static_cast<unsigned>(blocks), 256, 0, static_cast<cudaStream_t>(stream)>>>(
      x, out, static_cast<float>(slope), n);
  return static_cast<int>(cudaGetLastError());
}
