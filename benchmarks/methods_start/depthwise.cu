__global__ void kernel(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width,
                       int64_t out_height, int64_t out_width) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * 64 * out_height * out_width) return;
    int64_t col = i % out_width, row = i / out_width % out_height, plane = i / (out_width * out_height);
    float sum = 0.0f;
    for (int64_t r = 0; r < 3; ++r)
        for (int64_t c = 0; c < 3; ++c)
            sum += x[(plane * height + row + r) * width + col + c] * weight[plane % 64 * 9 + r * 3 + c];
    out[i] = sum;
}

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width,
                      int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
    int64_t total = batch * 64 * out_dim2 * out_dim3;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(x, weight, out, batch, height, width,
                                                                                   out_dim2, out_dim3);
    return (int)cudaGetLastError();
}
