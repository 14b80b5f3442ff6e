// A token's row of one table plus its position's row of another. A thread keeps one pack of a position's row and adds
// it to the same pack of several tokens' rows.
#include <warpsmith/packs.cuh>

#ifndef TOKENS
#define TOKENS 4
#endif

namespace {
using namespace warpsmith;

__global__ void __launch_bounds__(256) packed(const int64_t* __restrict__ tokens, const float* __restrict__ table,
                                              const float* __restrict__ positions, float* __restrict__ out,
                                              int64_t batch, int64_t length, int64_t width) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;  // pack of the table of positions
  if (i * 4 >= length * width) return;
  const unsigned position = unsigned(i) / unsigned(width / 4);
  const int64_t column = i * 4 - position * width;
  const int64_t b0 = int64_t(blockIdx.y) * TOKENS;
  int64_t token[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t) token[t] = b0 + t < batch ? __ldg(tokens + (b0 + t) * length + position) : 0;
  const float4 place = load_shared_use(positions + i * 4);
  float4 v[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t)
    if (b0 + t < batch) v[t] = load_shared_use(table + token[t] * width + column);
#pragma unroll
  for (int t = 0; t < TOKENS; ++t)
    if (b0 + t < batch)
      store_once(out + (b0 + t) * length * width + i * 4,
                 make_float4(v[t].x + place.x, v[t].y + place.y, v[t].z + place.z, v[t].w + place.w));
}

__global__ void single(const int64_t* __restrict__ tokens, const float* __restrict__ table,
                       const float* __restrict__ positions, float* __restrict__ out, int64_t batch, int64_t length,
                       int64_t width) {
  const int64_t n = batch * length * width;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    out[i] = table[tokens[i / width] * width + i % width] + positions[i % (length * width)];
}
}  // namespace

extern "C" int launch(const int64_t* tokens, const float* table, const float* positions, float* out, int64_t batch,
                      int64_t length, int64_t vocabulary, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (batch * length * width == 0) return 0;
  if (width % 4 == 0 && ceil_div(batch, TOKENS) <= 65535 && length * width / 4 < (int64_t(1) << 31)) {
    const dim3 grid(unsigned(ceil_div(length * width, 1024)), unsigned(ceil_div(batch, TOKENS)));
    packed<<<grid, 256, 0, s>>>(tokens, table, positions, out, batch, length, width);
  } else {
    const int64_t blocks = ceil_div(batch * length * width, 256);
    single<<<unsigned(blocks < 65535 ? blocks : 65535), 256, 0, s>>>(tokens, table, positions, out, batch, length, width);
  }
  return int(cudaGetLastError());
}
