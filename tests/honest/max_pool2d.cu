// A thread per result: at most nine elements, fewer at the edges.
__global__ void max_pool(const float* __restrict__ x, float* __restrict__ out, int height, int width, int out_height,
                         int out_width) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (c >= out_width || r >= out_height) return;
  const float* plane = x + static_cast<int64_t>(blockIdx.z) * height * width;
  float peak = -INFINITY;
  for (int rr = max(0, 2 * r - 1); rr < min(height, 2 * r + 2); ++rr)
    for (int cc = max(0, 2 * c - 1); cc < min(width, 2 * c + 2); ++cc) peak = fmaxf(peak, plane[rr * width + cc]);
  out[(static_cast<int64_t>(blockIdx.z) * out_height + r) * out_width + c] = peak;
}

extern "C" int launch(const float* x, float* out, int64_t planes, int64_t height, int64_t width, int64_t out_dim1,
                      int64_t out_dim2, void* workspace, void* stream) {
  const dim3 block(32, 8);
  const dim3 grid(static_cast<unsigned>((out_dim2 + 31) / 32), static_cast<unsigned>((out_dim1 + 7) / 8),
                  static_cast<unsigned>(planes));
  max_pool<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(x, out, static_cast<int>(height),
                                                                  static_cast<int>(width), static_cast<int>(out_dim1),
                                                                  static_cast<int>(out_dim2));
  return static_cast<int>(cudaGetLastError());
}
