// Every pixel divided by the root mean square of its channels. A block takes 128 neighbouring pixels; each of its warps
// keeps a share of the channels in registers, 16-byte loads all in flight, and the sums of squares meet in shared memory.
#include <warpsmith/packs.cuh>

#ifndef GROUPS
#define GROUPS 4
#endif
#ifndef RESIDENT
#define RESIDENT 5
#endif

namespace {
using namespace warpsmith;

template <int G, int N>  // warps, channels of a warp
__global__ void __launch_bounds__(G * 32, RESIDENT) packed(const float* __restrict__ x, float* __restrict__ out,
                                                           float eps, int channels, int64_t plane, unsigned tiles) {
  __shared__ float4 sums[G][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t image = blockIdx.x / tiles;
  const int64_t pixel = int64_t(blockIdx.x % tiles) * 128 + lane * 4;
  const bool inside = pixel < plane;
  const float* in = x + image * channels * plane + pixel;
  float* to = out + image * channels * plane + pixel;
  float4 v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int c = i * G + warp;
    v[i] = make_float4(0, 0, 0, 0);
    if (inside && c < channels) v[i] = load_once(in + c * plane);
  }
  float4 s = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    s.x = fmaf(v[i].x, v[i].x, s.x), s.y = fmaf(v[i].y, v[i].y, s.y);
    s.z = fmaf(v[i].z, v[i].z, s.z), s.w = fmaf(v[i].w, v[i].w, s.w);
  }
  sums[warp][lane] = s;
  __syncthreads();
  s = sums[0][lane];
#pragma unroll
  for (int g = 1; g < G; ++g) {
    const float4 t = sums[g][lane];
    s.x += t.x, s.y += t.y, s.z += t.z, s.w += t.w;
  }
  const float n = float(channels);
  const float a = 1.0f / sqrtf(s.x / n + eps), b = 1.0f / sqrtf(s.y / n + eps), c = 1.0f / sqrtf(s.z / n + eps),
              d = 1.0f / sqrtf(s.w / n + eps);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int ch = i * G + warp;
    if (inside && ch < channels)
      store_once(to + ch * plane, make_float4(v[i].x * a, v[i].y * b, v[i].z * c, v[i].w * d));
  }
}

__global__ void single(const float* __restrict__ x, float* __restrict__ out, float eps, int64_t batch, int64_t channels,
                       int64_t plane) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= batch * plane) return;
  const int64_t at = i / plane * channels * plane + i % plane;
  float s = 0.0f;
  for (int64_t c = 0; c < channels; ++c) s = fmaf(x[at + c * plane], x[at + c * plane], s);
  const float r = sqrtf(s / float(channels) + eps);
  for (int64_t c = 0; c < channels; ++c) out[at + c * plane] = x[at + c * plane] / r;
}
}  // namespace

extern "C" int launch(const float* x, float* out, double eps, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t plane = height * width;
  if (batch * channels * plane == 0) return 0;
  const unsigned tiles = unsigned(ceil_div(plane, 128));
  if (plane % 4 == 0 && channels <= 64)
    packed<GROUPS, 64 / GROUPS><<<unsigned(batch * tiles), GROUPS * 32, 0, s>>>(x, out, float(eps), int(channels), plane, tiles);
  else
    single<<<unsigned(ceil_div(batch * plane, 256)), 256, 0, s>>>(x, out, float(eps), batch, channels, plane);
  return int(cudaGetLastError());
}
