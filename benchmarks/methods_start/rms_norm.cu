__global__ void kernel(const float* x, const float* weight, float* out, int64_t rows, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float sum = 0.0f;
    for (int64_t c = 0; c < cols; ++c) sum += x[i * cols + c] * x[i * cols + c];
    float scale = 1.0f / sqrtf(sum / cols + 1e-6f);
    for (int64_t c = 0; c < cols; ++c) out[i * cols + c] = x[i * cols + c] * scale * weight[c];
}

extern "C" int launch(const float* x, const float* weight, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
    int64_t total = rows;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, weight, out, rows, cols);
    return (int)cudaGetLastError();
}
