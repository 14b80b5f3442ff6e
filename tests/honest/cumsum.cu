// Rows in chunks, three launches: the sum of every chunk, where every chunk starts, the running sums inside.
constexpr int THREADS = 256, EACH = 8, CHUNK = THREADS * EACH;

__host__ __device__ static int64_t chunks_of(int64_t cols) { return (cols + CHUNK - 1) / CHUNK; }

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return rows * chunks_of(cols) * static_cast<int64_t>(sizeof(double));
}

// The sum of `value` over the threads before this one; `whole` becomes the sum over all.
__device__ float sum_before(float value, float& whole) {
  __shared__ float ends[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float running = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const float other = __shfl_up_sync(~0u, running, offset);
    if (lane >= offset) running += other;
  }
  const float before_me = __shfl_up_sync(~0u, running, 1);
  if (lane == 31) ends[warp] = running;
  __syncthreads();
  float before = lane > 0 ? before_me : 0.f;
  whole = 0.f;
  for (int w = 0; w < THREADS / 32; ++w) {
    if (w == warp) before += whole;
    whole += ends[w];
  }
  return before;
}

__device__ float load_own(const float* in, int64_t left, float (&kept)[EACH]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int64_t at = threadIdx.x * EACH + i;
    kept[i] = at < left ? in[at] : 0.f;
    sum += kept[i];
  }
  return sum;
}

__global__ void __launch_bounds__(THREADS) chunk_sums(const float* __restrict__ x, double* __restrict__ starts,
                                                      int64_t cols) {
  const int64_t chunks = chunks_of(cols), row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  float kept[EACH], whole;
  sum_before(load_own(x + row * cols + chunk * CHUNK, cols - chunk * CHUNK, kept), whole);
  if (threadIdx.x == 0) starts[blockIdx.x] = whole;
}

__global__ void chunk_starts(double* starts, int64_t rows, int64_t chunks) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (row >= rows) return;
  double running = 0;
  for (int64_t k = 0; k < chunks; ++k) {
    const double sum = starts[row * chunks + k];
    starts[row * chunks + k] = running;
    running += sum;
  }
}

__global__ void __launch_bounds__(THREADS) running_sums(const float* __restrict__ x, const double* __restrict__ starts,
                                                        float* __restrict__ out, int64_t cols) {
  const int64_t chunks = chunks_of(cols), row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const int64_t first = row * cols + chunk * CHUNK, left = cols - chunk * CHUNK;
  float kept[EACH], whole;
  const float before = sum_before(load_own(x + first, left, kept), whole);
  double running = starts[blockIdx.x] + before;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int64_t at = threadIdx.x * EACH + i;
    running += kept[i];
    if (at < left) out[first + at] = static_cast<float>(running);
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  double* starts = static_cast<double*>(workspace);
  const int64_t chunks = chunks_of(cols);
  const auto blocks = static_cast<unsigned>(rows * chunks);
  chunk_sums<<<blocks, THREADS, 0, on>>>(x, starts, cols);
  chunk_starts<<<static_cast<unsigned>((rows + 127) / 128), 128, 0, on>>>(starts, rows, chunks);
  running_sums<<<blocks, THREADS, 0, on>>>(x, starts, out, cols);
  return static_cast<int>(cudaGetLastError());
}
