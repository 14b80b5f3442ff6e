// Two launches: a factor and a shift for every channel of every image into the workspace, then one pass over all.
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

extern "C" int64_t workspace_bytes(int64_t groups, double eps, int64_t batch, int64_t channels, int64_t pixels) {
  return 2 * batch * channels * static_cast<int64_t>(sizeof(float));
}

__global__ void statistics(const float* __restrict__ x, const float* __restrict__ weight,
                           const float* __restrict__ bias, float2* __restrict__ affine, float eps, int groups,
                           int64_t channels, int64_t pixels) {
  const int64_t image = blockIdx.x / groups, group = blockIdx.x % groups, each = channels / groups;
  const int64_t first = image * channels + group * each, count = each * pixels;
  const float* in = x + first * pixels;
  const auto add = [](float a, float b) { return a + b; };
  float sum = 0.f, squares = 0.f;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += in[i];
  const float mean = across_block(sum, 0.f, add) / static_cast<float>(count);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) squares += (in[i] - mean) * (in[i] - mean);
  const float scale = 1.f / sqrtf(across_block(squares, 0.f, add) / static_cast<float>(count) + eps);
  for (int64_t c = threadIdx.x; c < each; c += blockDim.x) {
    const float factor = scale * weight[group * each + c];
    affine[first + c] = {factor, bias[group * each + c] - mean * factor};
  }
}

__global__ void apply(const float* __restrict__ x, const float2* __restrict__ affine, float* __restrict__ out,
                      int64_t pixels) {
  const float2 a = affine[blockIdx.x];
  const int64_t first = blockIdx.x * pixels;
  for (int64_t p = threadIdx.x; p < pixels; p += blockDim.x) out[first + p] = x[first + p] * a.x + a.y;
}

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t pixels, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  float2* affine = static_cast<float2*>(workspace);
  statistics<<<static_cast<unsigned>(batch * groups), 512, 0, on>>>(
      x, weight, bias, affine, static_cast<float>(eps), static_cast<int>(groups), channels, pixels);
  const cudaError_t first = cudaGetLastError();
  if (first != cudaSuccess) return static_cast<int>(first);
  apply<<<static_cast<unsigned>(batch * channels), 256, 0, on>>>(x, affine, out, pixels);
  return static_cast<int>(cudaGetLastError());
}
