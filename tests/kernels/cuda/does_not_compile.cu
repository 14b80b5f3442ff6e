// Line 3 uses a name that is not declared.
__global__ void softmax(const float* x, float* out) {
  out[threadIdx.x] = softmax_of(x[threadIdx.x]);
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<1, 32>>>(x, out);
  return 0;
}
