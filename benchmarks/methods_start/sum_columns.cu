__global__ void kernel(const float* x, float* out, int64_t batch, int64_t rows, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * cols) return;
    int64_t b = i / cols, c = i % cols;
    float sum = 0.0f;
    for (int64_t r = 0; r < rows; ++r) sum += x[(b * rows + r) * cols + c];
    out[i] = sum;
}

extern "C" int launch(const float* x, float* out, int64_t batch, int64_t rows, int64_t cols, void* workspace, void* stream) {
    int64_t total = batch * cols;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, out, batch, rows, cols);
    return (int)cudaGetLastError();
}
