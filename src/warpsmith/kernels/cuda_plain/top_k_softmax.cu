// The eight largest values of each row, in order, and their softmax: a thread for each row.
__global__ void pick(const float* logits, float* weights, int64_t* picks, int64_t rows, int64_t experts) {
  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = logits + row * experts;
  float values[8], sum = 0.f;
  int64_t last = -1;
  for (int n = 0; n < 8; ++n) {
    int64_t best = -1;  // the largest of those that come after the last pick; of equal ones the first
    for (int64_t e = 0; e < experts; ++e) {
      const bool after = n == 0 || x[e] < x[last] || (x[e] == x[last] && e > last);
      if (after && (best < 0 || x[e] > x[best])) best = e;
    }
    last = best;
    values[n] = x[best];
    picks[row * 8 + n] = best;
    sum += expf(values[n] - values[0]);
  }
  for (int n = 0; n < 8; ++n) weights[row * 8 + n] = expf(values[n] - values[0]) / sum;
}

extern "C" int launch(const float* logits, float* weights, int64_t* picks, int64_t rows, int64_t experts,
                      void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  pick<<<unsigned((rows + 255) / 256), threads_, shared_, stream_>>>(logits, weights, picks, rows, experts);
  return static_cast<int>(cudaGetLastError());
}
