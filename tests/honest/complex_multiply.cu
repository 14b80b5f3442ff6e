// Two complex numbers per load; the last one of an odd length alone.
__device__ __forceinline__ float2 times_conjugate(float2 a, float2 b) {
  return {a.x * b.x + a.y * b.y, a.y * b.x - a.x * b.y};
}

__global__ void multiply(const float2* __restrict__ a, const float2* __restrict__ b, float2* __restrict__ out,
                         int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, pairs = n / 2;
  if (i < pairs) {
    const float4 u = reinterpret_cast<const float4*>(a)[i], v = reinterpret_cast<const float4*>(b)[i];
    const float2 first = times_conjugate({u.x, u.y}, {v.x, v.y}), second = times_conjugate({u.z, u.w}, {v.z, v.w});
    reinterpret_cast<float4*>(out)[i] = {first.x, first.y, second.x, second.y};
  } else if (i == pairs && n % 2 != 0) {
    out[n - 1] = times_conjugate(a[n - 1], b[n - 1]);
  }
}

extern "C" int launch(const float2* a, const float2* b, float2* out, int64_t n, void* workspace, void* stream) {
  const int64_t blocks = ((n + 1) / 2 + 255) / 256;
  multiply<<<static_cast<unsigned>(blocks), 256, 0, static_cast<cudaStream_t>(stream)>>>(a, b, out, n);
  return static_cast<int>(cudaGetLastError());
}
