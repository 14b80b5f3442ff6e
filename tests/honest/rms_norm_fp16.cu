// One block per row; pairs of halves where the rows allow it, all sums in float, one rounding at the end.
template <typename T, typename Combine>
__device__ T across_block(T value, T neutral, Combine combine) {
  __shared__ T partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  __syncthreads();  // the last use of `partial` is over
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? partial[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

template <bool PAIRS>
__global__ void rms_norm(const __half* __restrict__ x, const __half* __restrict__ weight, __half* __restrict__ out,
                         float eps, int64_t cols) {
  const __half* in = x + blockIdx.x * cols;
  __half* result = out + blockIdx.x * cols;
  const int64_t count = PAIRS ? cols / 2 : cols;
  float squares = 0.f;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if constexpr (PAIRS) {
      const float2 v = __half22float2(reinterpret_cast<const __half2*>(in)[i]);
      squares += v.x * v.x + v.y * v.y;
    } else {
      const float v = __half2float(in[i]);
      squares += v * v;
    }
  }
  squares = across_block(squares, 0.f, [](float a, float b) { return a + b; });
  const float scale = rsqrtf(squares / static_cast<float>(cols) + eps);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    if constexpr (PAIRS) {
      const float2 v = __half22float2(reinterpret_cast<const __half2*>(in)[i]);
      const float2 w = __half22float2(reinterpret_cast<const __half2*>(weight)[i]);
      reinterpret_cast<__half2*>(result)[i] = __floats2half2_rn(v.x * scale * w.x, v.y * scale * w.y);
    } else {
      result[i] = __float2half(__half2float(in[i]) * scale * __half2float(weight[i]));
    }
  }
}

extern "C" int launch(const __half* x, const __half* weight, __half* out, double eps, int64_t rows, int64_t cols,
                      void* workspace, void* stream) {
  const auto kernel = cols % 2 == 0 ? rms_norm<true> : rms_norm<false>;
  kernel<<<static_cast<unsigned>(rows), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, weight, out,
                                                                                    static_cast<float>(eps), cols);
  return static_cast<int>(cudaGetLastError());
}
