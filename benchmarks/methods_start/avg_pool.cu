__global__ void kernel(const float* x, float* out, int64_t rows, int64_t length, int64_t out_dim1) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * out_dim1) return;
    int64_t row = i / out_dim1, o = i % out_dim1;
    float sum = 0.0f;
    for (int64_t t = 0; t < 8; ++t) sum += x[row * length + o * 4 + t];
    out[i] = sum / 8.0f;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t length, int64_t out_dim1, void* workspace, void* stream) {
    int64_t total = rows * out_dim1;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, out, rows, length, out_dim1);
    return (int)cudaGetLastError();
}
