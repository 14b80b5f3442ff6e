// Normalisation of channels over the images of a batch and over their pixels (batch normalisation with the statistics of the
// batch), for planes of any length. Two kernels: `channel_moments` reads every channel in parts and leaves the moments of each
// part in the workspace; `channel_normalise` merges them in a fixed order, reads the elements again, and writes. Both take the
// parts in opposite order, so what was read last is read from the second-level cache.
//
// Use it for channels of up to about 16 MB, and where planes do not begin at multiples of 16 bytes: a channel costs no wait of
// the whole device. For larger channels it is faster to keep them in shared memory (cuda/batch_norm.cu).
#pragma once
#include <warpsmith/divisor.cuh>
#include <warpsmith/rows.cuh>

#ifndef TUNE_PARTS
#define TUNE_PARTS 8  // blocks for each multiprocessor
#endif

namespace warpsmith {

constexpr int kChannelThreads = 256;
constexpr int kMostChannelParts = 32;  // a lane of a warp for each

// x[batch, channels, plane], cut into parts of `per_part` places. A place is a pack of a plane: `places` of them for each
// image, more than some planes have.
struct ChannelCut {
  int64_t batch, channels, plane, total, per_part;
  int parts;
  Divisor places;
};

// Calls visit(pack, mask, k) for UNROLL places of a thread; mask 0 for a place that is no pack.
struct ChannelPart {
  int64_t image, channel, channels, plane;
  unsigned begin, end;  // places, counted from the first one of `image`
  Divisor places;
  __device__ __forceinline__ ChannelPart(const ChannelCut& cut, int64_t channel, int part)
      : channel(channel), channels(cut.channels), plane(cut.plane), places(cut.places) {
    const int64_t first = part * cut.per_part, left = cut.total - first;
    image = first / places.by;
    begin = unsigned(first - image * places.by);
    end = begin + unsigned(left < cut.per_part ? left : cut.per_part);
  }
  // The pack at a place, and which of its elements belong to the plane.
  __device__ __forceinline__ unsigned mask(unsigned place, int64_t& pack) const {
    if (place >= end) return 0;
    const unsigned further = places.quotient(place), inside = place - further * places.by;
    const RowSpan span((image + further) * channels + channel, plane);
    pack = span.first + inside;
    return inside < span.packs ? span.mask(pack) : 0;
  }
};

__global__ void __launch_bounds__(kChannelThreads)
    channel_moments(const float* __restrict__ x, const __grid_constant__ ChannelCut cut, Moments::Stat* found) {
  constexpr int N = 4;  // packs of a thread that are loaded together
  __shared__ Moments::Stat of_warps[kChannelThreads / 32];
  const int part = int(blockIdx.x % unsigned(cut.parts));
  const ChannelPart mine(cut, blockIdx.x / unsigned(cut.parts), part);
  Moments::Stat stat = Moments::none();
#pragma unroll 1
  for (unsigned place = mine.begin + threadIdx.x; place < mine.end; place += N * kChannelThreads) {
    float4 v[N];
    unsigned long long bits = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      int64_t pack = 0;
      const unsigned mask = mine.mask(place + n * kChannelThreads, pack);
      v[n] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (mask != 0) v[n] = load_masked(x, pack, mask, 0.0f);
      bits |= static_cast<unsigned long long>(mask) << (4 * n);
    }
    stat = Moments::merge(stat, Moments::local<N>(v, bits));
  }
  stat = warp_merge<Moments>(stat);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = stat;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 1; w < kChannelThreads / 32; ++w) stat = Moments::merge(stat, of_warps[w]);
  found[blockIdx.x] = stat;
}

// F::apply is what becomes of a normalised element. Without weights they are 1, without a bias it is 0.
template <typename F>
__global__ void __launch_bounds__(kChannelThreads)
    channel_normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                      float* __restrict__ out, float eps, const __grid_constant__ ChannelCut cut,
                      const Moments::Stat* __restrict__ found) {
  constexpr int N = 4;
  const unsigned number = gridDim.x - 1 - blockIdx.x;  // from the end
  const int part = int(number % unsigned(cut.parts)), lane = int(threadIdx.x) % 32;
  const int64_t channel = number / unsigned(cut.parts);
  const ChannelPart mine(cut, channel, part);
  const Moments::Stat stat = warp_merge<Moments>(lane < cut.parts ? found[channel * cut.parts + lane] : Moments::none());
  const float scale = rsqrtf(stat.square / stat.count + eps) * (weight ? __ldg(weight + channel) : 1.0f);
  const float shift = bias ? __ldg(bias + channel) : 0.0f, mean = stat.mean;
#pragma unroll 1
  for (unsigned place = mine.begin + threadIdx.x; place < mine.end; place += N * kChannelThreads) {
    float4 v[N];
    unsigned masks[N];
    int64_t packs[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      packs[n] = 0, masks[n] = mine.mask(place + n * kChannelThreads, packs[n]);
      if (masks[n] != 0) v[n] = load_masked(x, packs[n], masks[n], 0.0f);
    }
#pragma unroll
    for (int n = 0; n < N; ++n)
      if (masks[n] != 0) {
        const float4 r = make_float4(F::apply(fmaf(v[n].x - mean, scale, shift)), F::apply(fmaf(v[n].y - mean, scale, shift)),
                                     F::apply(fmaf(v[n].z - mean, scale, shift)), F::apply(fmaf(v[n].w - mean, scale, shift)));
        store_masked(out, packs[n], r, masks[n]);
      }
  }
}

struct AsItIs {
  static __device__ __forceinline__ float apply(float x) { return x; }
};
struct NotNegative {  // NaN stays
  static __device__ __forceinline__ float apply(float x) { return x < 0.0f ? 0.0f : x; }
};

// --- the host's side ---

__host__ inline ChannelCut cut_channels(int64_t batch, int64_t channels, int64_t plane) {
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  ChannelCut cut = {};
  cut.batch = batch, cut.channels = channels, cut.plane = plane;
  const int64_t places = ceil_div(plane, 4) + (plane % 4 != 0 ? 1 : 0);  // a plane touches at most so many packs
  cut.places = Divisor(unsigned(places)), cut.total = batch * places;
  int64_t parts = ceil_div(int64_t(TUNE_PARTS) * (units > 0 ? units : 1), channels);
  const int64_t most = ceil_div(cut.total, 4 * kChannelThreads);
  if (parts > most) parts = most;
  if (parts > kMostChannelParts) parts = kMostChannelParts;
  cut.per_part = ceil_div(cut.total, parts), cut.parts = int(ceil_div(cut.total, cut.per_part));
  return cut;
}

// Whether the numbers of places fit into the kernels' words.
__host__ inline bool channels_fit(const ChannelCut& cut) {
  return cut.places.by < 1u << 30 && cut.per_part < int64_t(1) << 30 && cut.channels * cut.parts < int64_t(1) << 31;
}

__host__ inline int64_t channel_norm_bytes(int64_t batch, int64_t channels, int64_t plane) {
  if (batch <= 0 || channels <= 0 || plane <= 0) return 0;
  return channels * cut_channels(batch, channels, plane).parts * int64_t(sizeof(Moments::Stat));
}

// weight and bias may be null.
template <typename F>
int normalise_channels(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                       int64_t channels, int64_t plane, void* workspace, void* stream) {
  if (batch == 0 || channels == 0 || plane == 0) return 0;
  const auto s = static_cast<cudaStream_t>(stream);
  const auto found = static_cast<Moments::Stat*>(workspace);
  const ChannelCut cut = cut_channels(batch, channels, plane);
  if (!channels_fit(cut)) return int(cudaErrorInvalidValue);
  const unsigned blocks = unsigned(channels * cut.parts);
  channel_moments<<<blocks, kChannelThreads, 0, s>>>(x, cut, found);
  channel_normalise<F><<<blocks, kChannelThreads, 0, s>>>(x, weight, bias, out, float(eps), cut, found);
  return int(cudaGetLastError());
}

}  // namespace warpsmith
