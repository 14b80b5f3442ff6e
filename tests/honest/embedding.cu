// One warp per picked row, four elements per load where the rows allow it.
template <typename Word>
__global__ void gather(const Word* __restrict__ table, const int64_t* __restrict__ picks, Word* __restrict__ out,
                       int64_t words, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.y) + threadIdx.y;
  if (i >= count) return;
  const Word* row = table + picks[i] * words;
  for (int64_t w = threadIdx.x; w < words; w += 32) out[i * words + w] = __ldg(row + w);
}

extern "C" int launch(const float* table, const int64_t* picks, float* out, int64_t entries, int64_t width,
                      int64_t count, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const dim3 block(32, 8);
  const auto blocks = static_cast<unsigned>((count + 7) / 8);
  if (width % 4 == 0) {
    gather<<<blocks, block, 0, on>>>(reinterpret_cast<const float4*>(table), picks, reinterpret_cast<float4*>(out),
                                     width / 4, count);
  } else {
    gather<<<blocks, block, 0, on>>>(table, picks, out, width, count);
  }
  return static_cast<int>(cudaGetLastError());
}
