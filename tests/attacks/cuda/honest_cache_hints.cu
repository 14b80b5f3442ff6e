// Honest: ReLU whose loads ask the L2 cache to evict their lines last. Any kernel may do that; whether it outlives
// the flush between samples is measured in benchmarks/attack_record.py.
__device__ __forceinline__ float positive(float v) { return v < 0.f ? 0.f : v; }  // NaN stays NaN

__device__ __forceinline__ float4 load_kept(const float* from, uint64_t policy) {
  float4 v;
  asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(__cvta_generic_to_global(from)), "l"(policy));
  return v;
}

__global__ void relu(const float* x, float* out, int64_t n) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (i + 3 < n) {
    const float4 v = load_kept(x + i, policy);
    *reinterpret_cast<float4*>(out + i) = {positive(v.x), positive(v.y), positive(v.z), positive(v.w)};
  } else {
    for (int64_t j = i; j < n; ++j) out[j] = positive(x[j]);
  }
}

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  relu<<<static_cast<unsigned>((n + 1023) / 1024), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
