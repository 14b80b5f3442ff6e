// matvec: out[row] = sum over columns of a[row, column] * b[column]. Bound by reading a once.
//
// A thread block takes ROWS rows and one stretch of the columns, so that each element of b serves ROWS rows; the partial
// sums of the stretches go to the workspace and a second kernel adds them.

namespace {

constexpr int THREADS = 256;
constexpr int ROWS = 4;
constexpr int STRETCH = 16384;  // columns per thread block

__device__ __forceinline__ float4 load_once(const float* from) { return __ldcs(reinterpret_cast<const float4*>(from)); }

template <bool VECTOR>
__global__ void __launch_bounds__(THREADS) partial_sums(const float* __restrict__ a, const float* __restrict__ b,
                                                        float* __restrict__ parts, int64_t rows, int64_t cols,
                                                        int stretches) {
  const int64_t first_row = int64_t(blockIdx.x / stretches) * ROWS;
  const int stretch = int(blockIdx.x % stretches);
  const int64_t begin = int64_t(stretch) * STRETCH, end = begin + STRETCH < cols ? begin + STRETCH : cols;
  const float* row[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) row[r] = a + (first_row + r < rows ? first_row + r : rows - 1) * cols;
  float sum[ROWS][4] = {};
  if (VECTOR) {
#pragma unroll 2
    for (int64_t c = begin + threadIdx.x * 4; c < end; c += THREADS * 4) {
      const float4 y = __ldg(reinterpret_cast<const float4*>(b + c));
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float4 x = load_once(row[r] + c);
        sum[r][0] = fmaf(x.x, y.x, sum[r][0]);
        sum[r][1] = fmaf(x.y, y.y, sum[r][1]);
        sum[r][2] = fmaf(x.z, y.z, sum[r][2]);
        sum[r][3] = fmaf(x.w, y.w, sum[r][3]);
      }
    }
  } else {
#pragma unroll 4
    for (int64_t c = begin + threadIdx.x; c < end; c += THREADS) {
      const float y = __ldg(b + c);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r][0] = fmaf(__ldcs(row[r] + c), y, sum[r][0]);
    }
  }
  __shared__ float found[ROWS][THREADS / 32];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float total = (sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]);
    for (int step = 16; step; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (threadIdx.x % 32 == 0) found[r][threadIdx.x / 32] = total;
  }
  __syncthreads();
  if (threadIdx.x < ROWS && first_row + threadIdx.x < rows) {
    float total = 0.f;
    for (int w = 0; w < THREADS / 32; ++w) total += found[threadIdx.x][w];
    parts[(first_row + threadIdx.x) * stretches + stretch] = total;
  }
}

// A warp adds the parts of one row.
__global__ void __launch_bounds__(THREADS) add_up(const float* __restrict__ parts, float* __restrict__ out, int64_t rows,
                                                  int stretches) {
  const int64_t row = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  float total = 0.f;
  for (int s = threadIdx.x % 32; s < stretches; s += 32) total += parts[row * stretches + s];
  for (int step = 16; step; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
  if (threadIdx.x % 32 == 0) out[row] = total;
}

}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return rows * ((cols + STRETCH - 1) / STRETCH) * 4; }

extern "C" int launch(const float* a, const float* b, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const int stretches = int((cols + STRETCH - 1) / STRETCH);
  float* parts = static_cast<float*>(workspace);
  const unsigned blocks = unsigned((rows + ROWS - 1) / ROWS * stretches);
  if (cols % 4 == 0)
    partial_sums<true><<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, b, parts, rows, cols, stretches);
  else
    partial_sums<false><<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, b, parts, rows, cols, stretches);
  add_up<<<unsigned((rows + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, cudaStream_t(stream)>>>(parts, out, rows,
                                                                                                    stretches);
  return int(cudaGetLastError());
}
