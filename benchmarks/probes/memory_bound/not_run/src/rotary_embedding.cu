// Queries and keys turned by the angle of their position. A thread computes sine and cosine of four angles once and
// turns the elements of several heads by them.
#include <warpsmith/packs.cuh>

#ifndef HEADS
#define HEADS 4
#endif

namespace {
using namespace warpsmith;

__device__ __forceinline__ void turn(const float* x, float* out, int64_t at, int64_t half, const float (&c)[4],
                                     const float (&s)[4], const float4& a, const float4& b) {
  store_once(out + at, make_float4(a.x * c[0] - b.x * s[0], a.y * c[1] - b.y * s[1], a.z * c[2] - b.z * s[2],
                                   a.w * c[3] - b.w * s[3]));
  store_once(out + at + half, make_float4(b.x * c[0] + a.x * s[0], b.y * c[1] + a.y * s[1], b.z * c[2] + a.z * s[2],
                                          b.w * c[3] + a.w * s[3]));
}

__global__ void __launch_bounds__(256) packed(const float* __restrict__ q, const float* __restrict__ k,
                                              const float* __restrict__ angles, float* __restrict__ q_out,
                                              float* __restrict__ k_out, int64_t heads, int64_t length, int pairs) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;  // pack of the table of angles
  if (i * 4 >= length * pairs) return;
  const int64_t position = i * 4 / pairs, pair = i * 4 - position * pairs;
  const int64_t inside = position * 2 * pairs + pair, stride = length * 2 * pairs;
  const int64_t h0 = int64_t(blockIdx.y) * HEADS;
  float4 a[HEADS], b[HEADS], c[HEADS], d[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; ++h)
    if (h0 + h < heads) {
      const int64_t at = (h0 + h) * stride + inside;
      a[h] = load_once(q + at), b[h] = load_once(q + at + pairs);
      c[h] = load_once(k + at), d[h] = load_once(k + at + pairs);
    }
  const float4 angle = load_shared_use(angles + i * 4);
  float cosine[4], sine[4];
  sincosf(angle.x, &sine[0], &cosine[0]);
  sincosf(angle.y, &sine[1], &cosine[1]);
  sincosf(angle.z, &sine[2], &cosine[2]);
  sincosf(angle.w, &sine[3], &cosine[3]);
#pragma unroll
  for (int h = 0; h < HEADS; ++h)
    if (h0 + h < heads) {
      const int64_t at = (h0 + h) * stride + inside;
      turn(q, q_out, at, pairs, cosine, sine, a[h], b[h]);
      turn(k, k_out, at, pairs, cosine, sine, c[h], d[h]);
    }
}

__global__ void single(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ angles,
                       float* __restrict__ q_out, float* __restrict__ k_out, int64_t heads, int64_t length,
                       int64_t pairs) {
  const int64_t n = heads * length * pairs;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t pair = i % pairs, line = i / pairs;
    float sine, cosine;
    sincosf(angles[line % length * pairs + pair], &sine, &cosine);
    const int64_t at = line * 2 * pairs + pair;
    const float a = q[at], b = q[at + pairs], c = k[at], d = k[at + pairs];
    q_out[at] = a * cosine - b * sine, q_out[at + pairs] = b * cosine + a * sine;
    k_out[at] = c * cosine - d * sine, k_out[at + pairs] = d * cosine + c * sine;
  }
}
}  // namespace

extern "C" int launch(const float* q, const float* k, const float* angles, float* q_turned, float* k_turned,
                      int64_t batch, int64_t heads, int64_t length, int64_t width, int64_t pairs, void* workspace,
                      void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t all = batch * heads;
  if (all * length * pairs == 0) return 0;
  if (pairs % 4 == 0 && ceil_div(all, HEADS) <= 65535) {
    const dim3 grid(unsigned(ceil_div(length * pairs, 1024)), unsigned(ceil_div(all, HEADS)));
    packed<<<grid, 256, 0, s>>>(q, k, angles, q_turned, k_turned, all, length, int(pairs));
  } else {
    const int64_t blocks = ceil_div(all * length * pairs, 256);
    single<<<unsigned(blocks < 65535 ? blocks : 65535), 256, 0, s>>>(q, k, angles, q_turned, k_turned, all, length, pairs);
  }
  return int(cudaGetLastError());
}
