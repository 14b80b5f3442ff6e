// The mean over rows of max(0, |anchor - positive| - |anchor - negative| + margin), with Euclidean distances.
#include <warpsmith/whole.cuh>

namespace {
using namespace warpsmith;

constexpr int kThreads = 256, kPacks = 4;
constexpr float kEps = 1e-6f;  // added to every difference, as PyTorch does

__device__ __forceinline__ float square(const float4& a, const float4& b) {
  const float x = a.x - b.x + kEps, y = a.y - b.y + kEps, z = a.z - b.z + kEps, w = a.w - b.w + kEps;
  return fmaf(x, x, y * y) + fmaf(z, z, w * w);
}

// One block for each row.
__global__ void __launch_bounds__(kThreads)
    row_losses(const float* __restrict__ anchor, const float* __restrict__ positive, const float* __restrict__ negative,
               int64_t cols, float margin, double* __restrict__ losses) {
  __shared__ float of_warps[2][kThreads / 32];
  const int64_t row = blockIdx.x, from = row * cols;
  float near = 0.0f, far = 0.0f;
  if (cols % 4 == 0) {
    for (int64_t base = threadIdx.x; base < cols / 4; base += kThreads * kPacks) {
      float4 a[kPacks], p[kPacks], n[kPacks];
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const int64_t at = base + i * kThreads;
        if (at < cols / 4) {
          a[i] = load_once(anchor + from + at * 4);
          p[i] = load_once(positive + from + at * 4);
          n[i] = load_once(negative + from + at * 4);
        }
      }
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        if (base + i * kThreads < cols / 4) near += square(a[i], p[i]), far += square(a[i], n[i]);
    }
  } else {
    for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
      const float a = __ldg(anchor + from + c);
      const float x = a - __ldg(positive + from + c) + kEps, y = a - __ldg(negative + from + c) + kEps;
      near = fmaf(x, x, near), far = fmaf(y, y, far);
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    near += __shfl_xor_sync(kAll, near, mask);
    far += __shfl_xor_sync(kAll, far, mask);
  }
  if (threadIdx.x % 32 == 0) of_warps[0][threadIdx.x / 32] = near, of_warps[1][threadIdx.x / 32] = far;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int w = 1; w < kThreads / 32; ++w) near += of_warps[0][w], far += of_warps[1][w];
    losses[row] = max_nan(margin + sqrtf(near) - sqrtf(far), 0.0f);
  }
}
}  // namespace

extern "C" int64_t workspace_bytes(double margin, int64_t rows, int64_t cols) { return rows * 8; }

extern "C" int launch(const float* anchor, const float* positive, const float* negative, float* out, double margin,
                      int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows == 0) return 0;
  double* losses = static_cast<double*>(workspace);
  const auto on = static_cast<cudaStream_t>(stream);
  row_losses<<<unsigned(rows), kThreads, 0, on>>>(anchor, positive, negative, cols, float(margin), losses);
  finish_sum<<<1, 1024, 0, on>>>(losses, int(rows), ScaledSum{out, 1.0 / double(rows)});
  return int(cudaGetLastError());
}
