// Layer normalisation for the cuda backend: one block per row, read once where it fits into registers.
constexpr int THREADS = 256;
constexpr int QUADS = 8;  // float4 per thread: rows of up to 8192 elements

template <typename Combine>
__device__ float across_block(float value, float neutral, Combine combine) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  __syncthreads();  // the last use of `partial` is over
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? partial[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

__global__ void __launch_bounds__(THREADS)
    in_registers(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                 float* __restrict__ out, float eps, int cols) {
  const int64_t row = blockIdx.x;
  const float4* in = reinterpret_cast<const float4*>(x + row * cols);
  float4* result = reinterpret_cast<float4*>(out + row * cols);
  const int quads = cols / 4;
  float4 v[QUADS];
  float sum = 0.f;
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const int i = q * THREADS + threadIdx.x;
    if (i < quads) {
      v[q] = in[i];
      sum += v[q].x + v[q].y + v[q].z + v[q].w;
    }
  }
  const float mean = across_block(sum, 0.f, Sum()) / cols;
  float squares = 0.f;
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    if (q * THREADS + threadIdx.x < quads) {
      v[q] = {v[q].x - mean, v[q].y - mean, v[q].z - mean, v[q].w - mean};
      squares += v[q].x * v[q].x + v[q].y * v[q].y + v[q].z * v[q].z + v[q].w * v[q].w;
    }
  }
  const float scale = rsqrtf(across_block(squares, 0.f, Sum()) / cols + eps);
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const int i = q * THREADS + threadIdx.x;
    if (i < quads) {
      const float4 w = reinterpret_cast<const float4*>(weight)[i], b = reinterpret_cast<const float4*>(bias)[i];
      result[i] = {v[q].x * scale * w.x + b.x, v[q].y * scale * w.y + b.y, v[q].z * scale * w.z + b.z,
                   v[q].w * scale * w.w + b.w};
    }
  }
}

__global__ void __launch_bounds__(THREADS)
    in_passes(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
              float* __restrict__ out, float eps, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) sum += in[c];
  const float mean = across_block(sum, 0.f, Sum()) / cols;
  float squares = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) squares += (in[c] - mean) * (in[c] - mean);
  const float scale = rsqrtf(across_block(squares, 0.f, Sum()) / cols + eps);
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) result[c] = (in[c] - mean) * scale * weight[c] + bias[c];
}

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps,
                      int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto blocks = static_cast<unsigned>(rows);
  if (cols % 4 == 0 && cols <= THREADS * QUADS * 4) {
    in_registers<<<blocks, THREADS, 0, on>>>(x, weight, bias, out, static_cast<float>(eps), static_cast<int>(cols));
  } else {
    in_passes<<<blocks, THREADS, 0, on>>>(x, weight, bias, out, static_cast<float>(eps), cols);
  }
  return static_cast<int>(cudaGetLastError());
}
