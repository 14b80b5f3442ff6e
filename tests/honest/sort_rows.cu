// A bitonic sort of one row per block in shared memory, filled up to a power of two with infinities that stay last.
constexpr int MOST = 16384;  // elements of a row: 128 KiB of shared memory

__global__ void sort_rows(const float* __restrict__ x, float* __restrict__ ordered, int64_t* __restrict__ places,
                          int cols, int padded) {
  extern __shared__ float values[];
  int* order = reinterpret_cast<int*>(values + padded);
  const int64_t first = blockIdx.x * static_cast<int64_t>(cols);
  for (int i = threadIdx.x; i < padded; i += blockDim.x) {
    values[i] = i < cols ? x[first + i] : INFINITY;
    order[i] = i;
  }
  __syncthreads();
  for (int size = 2; size <= padded; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int t = threadIdx.x; t < padded / 2; t += blockDim.x) {
        const int i = t / stride * 2 * stride + t % stride, j = i + stride;
        const bool rising = (i & size) == 0;
        const float a = values[i], b = values[j];
        const int ia = order[i], ib = order[j];
        const bool greater = a > b || (a == b && ia > ib);  // of equals the earlier one: fillers come after all
        if (greater == rising) {
          values[i] = b, values[j] = a;
          order[i] = ib, order[j] = ia;
        }
      }
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    ordered[first + i] = values[i];
    places[first + i] = order[i];
  }
}

extern "C" int launch(const float* x, float* ordered, int64_t* places, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  if (cols > MOST) return static_cast<int>(cudaErrorInvalidValue);
  int padded = 2;
  while (padded < cols) padded *= 2;
  const int shared_bytes = padded * static_cast<int>(sizeof(float) + sizeof(int));
  const cudaError_t allowed =
      cudaFuncSetAttribute(sort_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (allowed != cudaSuccess) return static_cast<int>(allowed);
  sort_rows<<<static_cast<unsigned>(rows), std::min(padded / 2, 512), static_cast<size_t>(shared_bytes),
              static_cast<cudaStream_t>(stream)>>>(x, ordered, places, static_cast<int>(cols), padded);
  return static_cast<int>(cudaGetLastError());
}
