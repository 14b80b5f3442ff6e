// The loss of every row into the workspace, then one block averages them in double precision.
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

extern "C" int64_t workspace_bytes(int64_t rows, int64_t classes) {
  return rows * static_cast<int64_t>(sizeof(float));
}

__global__ void row_losses(const float* __restrict__ logits, const int64_t* __restrict__ labels,
                           float* __restrict__ losses, int64_t classes) {
  const float* in = logits + blockIdx.x * classes;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) peak = fmaxf(peak, in[c]);
  peak = across_block(peak, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  for (int64_t c = threadIdx.x; c < classes; c += blockDim.x) sum += expf(in[c] - peak);
  sum = across_block(sum, 0.f, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + (peak - in[labels[blockIdx.x]]);
}

__global__ void average(const float* __restrict__ losses, float* __restrict__ out, int64_t rows) {
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) sum += losses[r];
  sum = across_block(sum, 0.0, [](double a, double b) { return a + b; });
  if (threadIdx.x == 0) *out = static_cast<float>(sum / static_cast<double>(rows));
}

extern "C" int launch(const float* logits, const int64_t* labels, float* out, int64_t rows, int64_t classes,
                      void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  float* losses = static_cast<float*>(workspace);
  row_losses<<<static_cast<unsigned>(rows), 256, 0, on>>>(logits, labels, losses, classes);
  average<<<1, 256, 0, on>>>(losses, out, rows);
  return static_cast<int>(cudaGetLastError());
}
