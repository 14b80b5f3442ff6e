__global__ void kernel(const float* x, const float* bias, float* out, int64_t rows, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    float v = x[i] + bias[i % cols];
    out[i] = v / (1.0f + expf(-v)) * 0.5f;
}

extern "C" int launch(const float* x, const float* bias, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
    int64_t total = rows * cols;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, bias, out, rows, cols);
    return (int)cudaGetLastError();
}
