// A transposed 2-d convolution: kernel 3 x 3, stride 5 x 5, padding 1 x 1, dilation 2 x 2, 32 channels to 64; in plain fp32.
//
// The taps of one input pixel go to 9 places of a block of 5 x 5 of the output, and these blocks do not overlap: every
// output has one input pixel or none, so that the sums have 32 terms and the output is nearly all of the traffic.
// A warp takes 32 * TUNE_PIXELS pixels of an input row (all channels in registers) and some output channels. It computes
// one row of the output after another and writes it through shared memory. Filters stay in shared memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

// tune: TUNE_CHANNELS = 8, 4, 16
#ifndef TUNE_CHANNELS
#define TUNE_CHANNELS 8  // output channels of a warp
#endif
// tune: TUNE_PIXELS = 4, 2
#ifndef TUNE_PIXELS
#define TUNE_PIXELS 4  // of a lane
#endif
// tune: TUNE_WARPS = 8, 4
#ifndef TUNE_WARPS
#define TUNE_WARPS 8  // more spill registers with four pixels
#endif

namespace {
constexpr int kIn = 32, kOut = 64, kKernel = 3, kStride = 5, kPad = 1, kDilation = 2;
constexpr int kWarps = TUNE_WARPS, kThreads = 32 * kWarps, kPixels = TUNE_PIXELS, kChunk = 32 * kPixels;
constexpr int kWide = kStride * kChunk;  // places of a row of the output for one chunk
constexpr int kPitch = kWide + 8;
constexpr int kFilters = kOut * kKernel * kIn * kKernel;
constexpr int kBytes = (kFilters + kWarps * kPitch) * 4;
static_assert(kDilation * (kKernel - 1) + 1 == kStride, "blocks of the output do not overlap and leave no gap");

struct Args {
  int height, width, out_height, out_width, chunks, units;
};

__global__ __launch_bounds__(kThreads, 1) void scatter(const Args a, const float* __restrict__ x, const float* __restrict__ w,
                                                       float* __restrict__ out) {
  extern __shared__ __align__(128) unsigned char memory[];
  float* filters = reinterpret_cast<float*>(memory);  // [output channel][row of the filter][channel][column of the filter]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* staged = filters + kFilters + warp * kPitch + 1;  // place 1 is aligned to 8 bytes
  for (int e = threadIdx.x; e < kFilters; e += kThreads) {
    const int column = e % kKernel, c = e / kKernel % kIn, row = e / (kKernel * kIn) % kKernel, to = e / (kKernel * kIn * kKernel);
    filters[e] = w[((c * kOut + to) * kKernel + row) * kKernel + column];
  }
  for (int i = lane; i < kWide; i += 32) staged[i] = 0.0f;  // places between those of the taps stay zero
  __syncthreads();

  constexpr int kParts = kOut / TUNE_CHANNELS;
  const bool pairs = a.out_width % 2 == 0;
  for (int unit = blockIdx.x * kWarps + warp; unit < a.units; unit += gridDim.x * kWarps) {
    int rest = unit;
    const int first = rest % kParts * TUNE_CHANNELS;
    rest /= kParts;
    const int chunk = rest % a.chunks;
    rest /= a.chunks;
    const int line = rest % a.height, image = rest / a.height;
    float v[kPixels][kIn];
    const float* from = x + (int64_t(image) * kIn * a.height + line) * a.width + chunk * kChunk + lane;
    const int left = a.width - chunk * kChunk - lane;
#pragma unroll
    for (int c = 0; c < kIn; ++c, from += a.height * a.width)
#pragma unroll
      for (int p = 0; p < kPixels; ++p) v[p][c] = 32 * p < left ? __ldg(from + 32 * p) : 0.0f;
    const int begin = chunk * kWide - kPad;  // place 0 of the chunk in its row of the output
    const int end = a.out_width - begin;     // places from here on do not exist

#pragma unroll 1
    for (int channel = first; channel < first + TUNE_CHANNELS; ++channel) {
      float* plane = out + (int64_t(image) * kOut + channel) * a.out_height * a.out_width;
#pragma unroll 1
      for (int r = 0; r < kStride; ++r) {
        const int row = kStride * line - kPad + r;
        const bool tapped = r % kDilation == 0;
        if (tapped) {
          const float4* weights = reinterpret_cast<const float4*>(filters + (channel * kKernel + r / kDilation) * kIn * kKernel);
          float sums[kPixels][kKernel] = {};
#pragma unroll
          for (int c = 0; c < kIn; c += 4) {
            float each[12];
#pragma unroll
            for (int i = 0; i < 3; ++i) reinterpret_cast<float4*>(each)[i] = weights[c / 4 * 3 + i];
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
              for (int p = 0; p < kPixels; ++p)
#pragma unroll
                for (int k = 0; k < kKernel; ++k) sums[p][k] = fmaf(v[p][c + i], each[3 * i + k], sums[p][k]);
          }
          __syncwarp();  // the row before has been read
#pragma unroll
          for (int p = 0; p < kPixels; ++p)
#pragma unroll
            for (int k = 0; k < kKernel; ++k) staged[kStride * (lane + 32 * p) + kDilation * k] = sums[p][k];
          __syncwarp();
        }
        if (row < 0 || row >= a.out_height) continue;
        float* to = plane + int64_t(row) * a.out_width + begin;
        if (pairs) {
#pragma unroll
          for (int n = 0; n < kWide / 64; ++n) {
            const int at = 1 + 2 * (lane + 32 * n);
            const float2 value = tapped ? *reinterpret_cast<const float2*>(staged + at) : make_float2(0.0f, 0.0f);
            if (at + 1 < kWide && at + 1 < end) *reinterpret_cast<float2*>(to + at) = value;
          }
          if (lane < 2) {
            const int at = lane * (kWide - 1);
            if (begin + at >= 0 && at < end) to[at] = tapped ? staged[at] : 0.0f;
          }
        } else {
          for (int at = lane; at < min(kWide, end); at += 32)
            if (begin + at >= 0) to[at] = tapped ? staged[at] : 0.0f;
        }
      }
    }
  }
}
}  // namespace

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width, int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
  const int64_t chunks = (width + kChunk - 1) / kChunk, units = batch * height * chunks * (kOut / TUNE_CHANNELS);
  if (units == 0 || out_dim2 == 0 || out_dim3 == 0) return 0;
  const Args args = {int(height), int(width), int(out_dim2), int(out_dim3), int(chunks), int(units)};
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const cudaError_t state = cudaFuncSetAttribute(scatter, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (state != cudaSuccess) return int(state);
  const int blocks = int(std::min<int64_t>(processors, (units + kWarps - 1) / kWarps));
  scatter<<<blocks, kThreads, kBytes, static_cast<cudaStream_t>(stream)>>>(args, x, weight, out);
  return int(cudaGetLastError());
}
