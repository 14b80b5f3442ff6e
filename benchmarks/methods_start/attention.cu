__global__ void kernel(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t length) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= heads * length) return;
    const float* keys = k + i / length * length * 64;
    const float* values = v + i / length * length * 64;
    float best = -INFINITY, sum = 0.0f, row[64] = {};
    for (int64_t t = 0; t < length; ++t) {
        float score = 0.0f;
        for (int c = 0; c < 64; ++c) score += q[i * 64 + c] * keys[t * 64 + c];
        score *= 0.125f;
        float higher = fmaxf(best, score), old = expf(best - higher), now = expf(score - higher);
        for (int c = 0; c < 64; ++c) row[c] = row[c] * old + now * values[t * 64 + c];
        sum = sum * old + now;
        best = higher;
    }
    for (int c = 0; c < 64; ++c) out[i * 64 + c] = row[c] / sum;
}

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t heads, int64_t length, void* workspace, void* stream) {
    int64_t total = heads * length;
    kernel<<<(unsigned)((total + 255) / 256), 256, 0, (cudaStream_t)stream>>>(q, k, v, out, heads, length);
    return (int)cudaGetLastError();
}
