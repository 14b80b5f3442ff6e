// A block per position, a thread per pair of elements.
constexpr int HALF = task::cosine_dim1;

__global__ void rotary(const float* __restrict__ x, const float* __restrict__ cosine, const float* __restrict__ sine,
                       float* __restrict__ out, int heads) {
  const int64_t position = blockIdx.x;
  for (int e = threadIdx.x; e < heads * HALF; e += blockDim.x) {
    const int head = e / HALF, i = e % HALF;
    const float c = __ldg(cosine + position * HALF + i), s = __ldg(sine + position * HALF + i);
    const int64_t first = (position * heads + head) * 2 * HALF + i;
    const float left = x[first], right = x[first + HALF];
    out[first] = left * c - right * s;
    out[first + HALF] = right * c + left * s;
  }
}

extern "C" int launch(const float* x, const float* cosine, const float* sine, float* out, int64_t positions,
                      int64_t heads, void* workspace, void* stream) {
  rotary<<<static_cast<unsigned>(positions), 256, 0, static_cast<cudaStream_t>(stream)>>>(x, cosine, sine, out,
                                                                                         static_cast<int>(heads));
  return static_cast<int>(cudaGetLastError());
}
