// Nothing planted: as fast as memory is.
__global__ void copy4(const float4* x, float4* out, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float4 v = x[i];
  out[i] = make_float4(2.0f * v.x, 2.0f * v.y, 2.0f * v.z, 2.0f * v.w);
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  const int64_t count = n / 4;
  copy4<<<(count + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(out), count);
  return static_cast<int>(cudaGetLastError());
}
