// Class 22: prints from the device without end.
__global__ void flood(const float* out) {
  volatile const float* watched = out;
  while (*watched != 12345.f) printf("%f and on and on and on\n", *watched);
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  flood<<<132, 256, 0, static_cast<cudaStream_t>(stream)>>>(out);
  return static_cast<int>(cudaGetLastError());
}
