// Softmax over rows for the cuda backend: one block per row, which it keeps in registers where it fits.
constexpr int THREADS = 256;
constexpr int QUADS = 8;  // float4 per thread: rows of up to 8192 elements are read once

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

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

__global__ void __launch_bounds__(THREADS) in_registers(const float* __restrict__ x, float* __restrict__ out, int cols) {
  const int64_t row = blockIdx.x;
  const float4* in = reinterpret_cast<const float4*>(x + row * cols);
  float4* result = reinterpret_cast<float4*>(out + row * cols);
  const int quads = cols / 4;
  float4 v[QUADS];
  float peak = -INFINITY;
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const int i = q * THREADS + threadIdx.x;
    if (i < quads) {
      v[q] = in[i];
      peak = fmaxf(fmaxf(peak, fmaxf(v[q].x, v[q].y)), fmaxf(v[q].z, v[q].w));
    }
  }
  peak = across_block(peak, -INFINITY, Larger());
  float sum = 0.f;
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    if (q * THREADS + threadIdx.x < quads) {
      v[q] = {expf(v[q].x - peak), expf(v[q].y - peak), expf(v[q].z - peak), expf(v[q].w - peak)};
      sum += v[q].x + v[q].y + v[q].z + v[q].w;
    }
  }
  const float scale = 1.f / across_block(sum, 0.f, Sum());
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const int i = q * THREADS + threadIdx.x;
    if (i < quads) result[i] = {v[q].x * scale, v[q].y * scale, v[q].z * scale, v[q].w * scale};
  }
}

__global__ void __launch_bounds__(THREADS) in_passes(const float* __restrict__ x, float* __restrict__ out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float peak = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) peak = fmaxf(peak, in[c]);
  peak = across_block(peak, -INFINITY, Larger());
  float sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) sum += expf(in[c] - peak);
  const float scale = 1.f / across_block(sum, 0.f, Sum());
  for (int64_t c = threadIdx.x; c < cols; c += THREADS) result[c] = expf(in[c] - peak) * scale;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto blocks = static_cast<unsigned>(rows);
  if (cols % 4 == 0 && cols <= THREADS * QUADS * 4) {
    in_registers<<<blocks, THREADS, 0, on>>>(x, out, static_cast<int>(cols));
  } else {
    in_passes<<<blocks, THREADS, 0, on>>>(x, out, cols);
  }
  return static_cast<int>(cudaGetLastError());
}
