__global__ void kernel(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    int64_t row = i / n, col = i % n;
    float sum = 0.0f;
    for (int64_t t = 0; t < k; ++t) sum += a[row * k + t] * b[t * n + col];
    out[i] = sum;
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace, void* stream) {
    int64_t total = m * n;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(a, b, out, m, n, k);
    return (int)cudaGetLastError();
}
