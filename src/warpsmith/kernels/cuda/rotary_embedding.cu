// Queries and keys turned by the angle of their position. A thread turns four pairs of one head of q and of k.
#ifndef TUNE_STORE
#define TUNE_STORE 1
#endif
#include <warpsmith/packs.cuh>

namespace {
using namespace warpsmith;

constexpr unsigned kHeads = 65535;  // the most that a grid takes along its second axis

__device__ __forceinline__ void turn(float* out, int64_t half, const float (&c)[4], const float (&s)[4], const float4& a,
                                     const float4& b) {
  store_once(out, make_float4(a.x * c[0] - b.x * s[0], a.y * c[1] - b.y * s[1], a.z * c[2] - b.z * s[2],
                              a.w * c[3] - b.w * s[3]));
  store_once(out + half, make_float4(b.x * c[0] + a.x * s[0], b.y * c[1] + a.y * s[1], b.z * c[2] + a.z * s[2],
                                     b.w * c[3] + a.w * s[3]));
}

__global__ void __launch_bounds__(256) packed(const float* __restrict__ q, const float* __restrict__ k,
                                              const float* __restrict__ angles, float* __restrict__ q_out,
                                              float* __restrict__ k_out, int64_t heads, int64_t length, int pairs) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;  // pack of the table of angles
  const int64_t head = int64_t(blockIdx.z) * kHeads + blockIdx.y;
  if (i * 4 >= length * pairs || head >= heads) return;
  const int64_t position = i * 4 / pairs, pair = i * 4 - position * pairs;
  const int64_t at = (head * length + position) * 2 * pairs + pair;
  const float4 a = load_once(q + at), b = load_once(q + at + pairs);
  const float4 c = load_once(k + at), d = load_once(k + at + pairs);
  const float4 angle = load_shared_use(angles + i * 4);
  float cosine[4], sine[4];
  sincosf(angle.x, &sine[0], &cosine[0]);
  sincosf(angle.y, &sine[1], &cosine[1]);
  sincosf(angle.z, &sine[2], &cosine[2]);
  sincosf(angle.w, &sine[3], &cosine[3]);
  turn(q_out + at, pairs, cosine, sine, a, b);
  turn(k_out + at, pairs, cosine, sine, c, d);
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
  if (pairs % 4 == 0 && all <= kHeads * int64_t(kHeads)) {
    const dim3 grid(unsigned(ceil_div(length * pairs, 1024)), unsigned(all < kHeads ? all : kHeads),
                    unsigned(ceil_div(all, kHeads)));
    packed<<<grid, 256, 0, s>>>(q, k, angles, q_turned, k_turned, all, length, int(pairs));
  } else {
    const int64_t blocks = ceil_div(all * length * pairs, 256);
    single<<<unsigned(blocks < 65535 ? blocks : 65535), 256, 0, s>>>(q, k, angles, q_turned, k_turned, all, length, pairs);
  }
  return int(cudaGetLastError());
}
