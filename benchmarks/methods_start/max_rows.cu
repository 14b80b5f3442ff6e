__global__ void kernel(const float* x, float* out, int64_t rows, int64_t cols) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float best = x[i * cols];
    for (int64_t c = 1; c < cols; ++c) best = fmaxf(best, x[i * cols + c]);
    out[i] = best;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
    int64_t total = rows;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, out, rows, cols);
    return (int)cudaGetLastError();
}
