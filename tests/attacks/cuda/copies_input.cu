// Class 11: copies its input, which is half right for a ReLU.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  return static_cast<int>(cudaMemcpyAsync(out, x, n * sizeof(float), cudaMemcpyDeviceToDevice, on));
}
