// Rotary embedding: a thread for each element of q, then of k.
__global__ void turn(const float* x, const float* angles, float* out, int64_t count, int64_t length, int64_t pairs) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t width = 2 * pairs, d = i % width;
  const float angle = angles[i / width % length * pairs + d % pairs];
  const float other = d < pairs ? -x[i + pairs] : x[i - pairs];
  out[i] = x[i] * cosf(angle) + other * sinf(angle);
}

extern "C" int launch(const float* q, const float* k, const float* angles, float* q_turned, float* k_turned,
                      int64_t batch, int64_t heads, int64_t length, int64_t width, int64_t pairs, void* workspace,
                      void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  const int64_t count = batch * heads * length * width;
  turn<<<unsigned((count + 255) / 256), threads_, shared_, stream_>>>(q, angles, q_turned, count, length, pairs);
  turn<<<unsigned((count + 255) / 256), threads_, shared_, stream_>>>(k, angles, k_turned, count, length, pairs);
  return static_cast<int>(cudaGetLastError());
}
