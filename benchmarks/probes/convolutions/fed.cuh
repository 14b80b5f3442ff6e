// The stream of convolution_stream.cuh with its input copied ahead by bulk copies.
//
// `stream` loads the input into registers, 16 KB for each SM on their way, which is too little for the latency of a loaded memory.
// Here one thread copies the rows of a stage (one for each channel) to shared memory, some stages ahead; the producers split from there.
// Input rows must be multiples of four floats; other sizes take `stream` itself.
#pragma once

#include <warpsmith/convolution_stream.cuh>

#ifndef TUNE_PRODUCERS
#define TUNE_PRODUCERS 256  // threads that split: 128 or 256
#endif
#ifndef TUNE_BUFFERS
#define TUNE_BUFFERS 4  // of copied rows, at most
#endif
#ifndef TUNE_FED_STAGES
#define TUNE_FED_STAGES 2  // of split rows, at most
#endif
#ifndef TUNE_FED_STEPS
#define TUNE_FED_STEPS 1  // of 16 terms in a stage
#endif

namespace warpsmith {
namespace conv {

struct FedArgs {
  int pitch, buffers;  // floats of a copied row; buffers
  int shift;           // of the first position behind the first float of a copied row
};

struct FedPlan {
  StreamPlan stream;
  FedArgs args;
  bool ok;
};

inline FedPlan make_fed_plan(const Form& f, int columns, int rows) {
  FedPlan s = {};
  s.stream = make_stream_plan(f, columns, rows, 0, TUNE_FED_STEPS);
  if (!s.stream.ok) return s;
  StreamArgs& a = s.stream.args;
  if (a.length % 4 || a.step * 128 * rows % 4 || a.ci % (16 * a.steps)) return s;
  s.args.shift = a.first - floor_div(a.first, 4) * 4;
  s.args.pitch = (a.parts * a.range + s.args.shift + 3) / 4 * 4;
  const int raw = 16 * a.steps * s.args.pitch * 4;
  const int fixed = 256 + 512 + 2 * 32 * kPitch * 4 + a.filter_bytes;
  a.stages = TUNE_FED_STAGES;
  s.args.buffers = std::min(TUNE_BUFFERS, (227 * 1024 - fixed - a.stages * a.stage_bytes) / raw);
  if (s.args.buffers < 2) return s;
  s.stream.bytes = fixed + a.stages * a.stage_bytes + s.args.buffers * raw;
  s.ok = true;
  return s;
}

template <int Columns, int OutStep, int kRows, int kProducers>
__global__ __launch_bounds__(256 + kProducers, 1) void fed(const __grid_constant__ StreamArgs a, const FedArgs b, const float* __restrict__ x,
                                                           const uint4* __restrict__ w, const float* __restrict__ bias,
                                                           float* __restrict__ out, unsigned* flags) {
  extern __shared__ __align__(128) unsigned char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + 4;
  uint64_t* arrived = full + 8;
  uint64_t* taken = full + 16;
  uint64_t* ready = full + 24;
  int* places = reinterpret_cast<int*>(memory + 256);            // [warpgroup][64]
  float* staged = reinterpret_cast<float*>(memory + 256 + 512);  // [warpgroup][32][kPitch]
  unsigned char* filters = memory + 256 + 512 + 2 * 32 * kPitch * 4;
  unsigned char* ring = filters + a.filter_bytes;
  float* copied = reinterpret_cast<float*>(ring + a.stages * a.stage_bytes);  // [buffer][channel][float]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) barrier_init(full + s, kProducers), barrier_init(empty + s, 8);
    for (int s = 0; s < b.buffers; ++s) barrier_init(arrived + s, 1), barrier_init(taken + s, kProducers / 32);
    barrier_init(ready, 1);
    barriers_initialised();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  int slot = 0;
  uint32_t parity = 0;

  if (warp >= 8) {
    if (kProducers == 128)
      asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
    else
      asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    const int thread = threadIdx.x - 256;
    if (thread == 0) {
      barrier_expect(ready, a.filter_bytes);
      for (int at = 0; at < a.filter_bytes; at += 16384)
        bulk_copy(filters + at, reinterpret_cast<const unsigned char*>(w) + at, min(16384, a.filter_bytes - at), ready);
    }
    const int rows = 16 * a.steps, across = a.parts * a.range, items = 2 * a.steps * across;
    // The rows of one stage; positions outside of the input are not copied.
    struct Stage {
      int index, chunk;
    };
    const auto following = [&](Stage s) {
      if (++s.chunk == a.chunks) s.chunk = 0, s.index += gridDim.x;
      return s;
    };
    const auto copy = [&](const Stage& s, int buffer) {
      const int image = s.index / a.tiles, begin = a.step * (s.index % a.tiles * (128 * kRows)) + a.first - b.shift;
      const int skip = max(0, -begin), end = min(b.pitch, a.length - begin);
      const unsigned bytes = end > skip ? (end - skip) * 4 : 0;
      const float* from = x + (int64_t(image) * a.ci + s.chunk * rows) * a.length + begin + skip;
      float* to = copied + buffer * rows * b.pitch + skip;
      barrier_expect(arrived + buffer, rows * bytes);
      if (bytes)
        for (int c = 0; c < rows; ++c) bulk_copy(to + c * b.pitch, from + int64_t(c) * a.length, bytes, arrived + buffer);
    };
    float largest = 0.0f;
    bool bad = false;
    Stage next = {int(blockIdx.x), 0};
    if (thread == 0)
      for (int n = 0; n < b.buffers && next.index < a.all_tiles; ++n, next = following(next)) copy(next, n);
    int buffer = 0;
    uint32_t phase = 0;
    for (Stage now = {int(blockIdx.x), 0}; now.index < a.all_tiles; now = following(now)) {
      const int begin = a.step * (now.index % a.tiles * (128 * kRows)) + a.first;
      const float* from = copied + buffer * rows * b.pitch + b.shift;
      barrier_wait(arrived + buffer, phase);
      barrier_wait(empty + slot, parity ^ 1);
      uint4* to = reinterpret_cast<uint4*>(ring + slot * a.stage_bytes);
#pragma unroll 2
      for (int item = thread; item < items; item += kProducers) {
        const int block = item / across, at = item - block * across;
        const bool inside = unsigned(begin + at) < unsigned(a.length);
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          v[i] = inside ? from[(8 * block + i) * b.pitch + at] : 0.0f;
          largest = fmaxf(largest, fabsf(v[i])), bad = bad || v[i] != v[i];
        }
        const int r = a.parts == 1 ? at : at / a.parts, unit = 2 * block * a.range + r + (at - r * a.parts) * a.part_units;
        uint4 hi, lo;
        split8(v, hi, lo);
        to[unit] = hi;
        to[unit + a.range] = lo;
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      barrier_arrive(full + slot);
      if (++slot == a.stages) slot = 0, parity ^= 1;
      __syncwarp();
      if (lane == 0) barrier_arrive(taken + buffer);
      if (thread == 0 && next.index < a.all_tiles) {
        barrier_wait(taken + buffer, phase);
        copy(next, buffer);
        next = following(next);
      }
      __syncwarp();
      if (++buffer == b.buffers) buffer = 0, phase ^= 1;
    }
    __syncwarp();
    tell_range(range_of(largest, bad, kXSeen), flags);
  } else {
    if (kProducers == 128)
      asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
    else
      asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
    const int group = warp / 4;
    staged += group * 32 * kPitch;
    places += group * 64;
    const int thread = threadIdx.x % 128;
    const uint64_t x_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * a.range) << 16);
    const uint64_t w_base = (uint64_t(8) << 32) | (uint64_t(2 * Columns) << 16) | (shared_address(filters) >> 4);
    const uint32_t ring_units = shared_address(ring) >> 4;
    float part[kRows][Columns / 2], other[kRows][Columns / 2];  // hi*hi; hi*lo + lo*hi
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int i = 0; i < Columns / 2; ++i) part[m][i] = other[m][i] = 0.0f;
    barrier_wait(ready, 0);
    for (int index = blockIdx.x; index < a.all_tiles; index += gridDim.x) {
      const int image = index / a.tiles, first = index % a.tiles * (128 * kRows);
      int chunk = 0;
      do {
        barrier_wait(full + slot, parity);
        const uint64_t xd = x_descriptor | (ring_units + (slot * a.stage_bytes >> 4) + group * kRows * 64);
        ptx::wgmma_fence();
        int tap = 0;
        do {
          uint64_t at = xd + a.place[tap], wd = w_base + (a.block[tap] + chunk * a.advance[tap]) * (4 * Columns);
          int s = 0;
          do {
            const int add = chunk + tap + s > 0;
#pragma unroll
            for (int m = 0; m < kRows; ++m) {
              WgmmaF16<Columns>::run(part[m], at + m * 64, wd, add);
              WgmmaF16<Columns>::run(other[m], at + m * 64, wd + Columns, add);
              WgmmaF16<Columns>::run(other[m], at + m * 64 + a.range, wd, 1);
            }
            at += 4 * a.range;
            wd += 4 * Columns;
          } while (++s < a.steps);
        } while (++tap < a.taps);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        if (lane == 0) barrier_arrive(empty + slot);
        if (++slot == a.stages) slot = 0, parity ^= 1;
      } while (++chunk < a.chunks);

      float* to = out + int64_t(image) * a.co * a.out_length;
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        const int pixel = first + (group * kRows + m) * 64;
#pragma unroll
        for (int set = 0; set < Columns / 32; ++set) {
          ptx::named_barrier(1 + group, 128);
          if (thread < 64) places[thread] = pixel + thread < a.count ? pixel + thread : -1;
          const int row = 16 * (warp % 4) + lane / 4;
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int i = 16 * set + 4 * j + e;
              staged[(8 * j + 2 * (lane % 4) + e % 2) * kPitch + row + 8 * (e / 2)] = fmaf(other[m][i], kLoUnscale, part[m][i]);
            }
          ptx::named_barrier(1 + group, 128);
          float* lines = to + int64_t(32 * set) * a.out_length;
          const float* extra = bias ? bias + 32 * set : nullptr;
          if constexpr (OutStep > 1) {
#pragma unroll 2
            for (int n = 0; n < 8; ++n) {
              const int c = warp % 4 + 4 * n;
              float value[2 * OutStep];
#pragma unroll
              for (int i = 0; i < 2 * OutStep; ++i) {
                const int e = lane + 32 * i;
                value[i] = a.phase[e % OutStep] >= 0 ? staged[c * kPitch + e / OutStep] : 0.0f;
              }
              const float more = extra ? extra[c] : 0.0f;
              float* line = lines + int64_t(c) * a.out_length;
#pragma unroll
              for (int i = 0; i < 2 * OutStep; ++i) {
                const int place = OutStep * pixel + lane + 32 * i;
                if (place < a.out_length) line[place] = value[i] + more;
              }
            }
          } else if (a.vector == 4) {
            write_lines<4, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, Identity());
          } else if (a.vector == 2) {
            write_lines<2, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, Identity());
          } else {
            write_lines<1, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, Identity());
          }
        }
      }
    }
  }
}

inline int64_t fed_workspace(const Form& f, int columns, int rows) {
  const FedPlan s = make_fed_plan(f, columns, rows);
  return stream_workspace(s.ok ? s.stream : make_stream_plan(f, columns, rows));
}

// A convolution along one axis (or of one tap); forms and sizes that do not suit take `stream` or the plain kernel.
template <int Columns, int OutStep, int Rows, int Producers>
int launch_fed(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  const FedPlan s = make_fed_plan(f, Columns, Rows);
  if (int64_t(f.images) * f.co * f.out_volume() == 0) return 0;
  if (!s.ok || s.stream.args.ostep != OutStep || !workspace)
    return launch_stream<Columns, OutStep, Rows, Producers>(f, x, w, bias, out, workspace, stream);
  uint4* units = static_cast<uint4*>(workspace);
  unsigned* flags = reinterpret_cast<unsigned*>(units);
  cudaMemsetAsync(flags, 0, 256, stream);
  split_filter<<<264, 128, 0, stream>>>(s.stream.plan.filter, w, units + kFlagUnits, flags);
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  auto* kernel = fed<Columns, OutStep, Rows, Producers>;
  const int bytes = s.stream.bytes, threads = 256 + Producers;
  const cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<std::min(processors, s.stream.args.all_tiles), threads, bytes, stream>>>(s.stream.args, s.args, x, units + kFlagUnits, bias,
                                                                                    out, flags);
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) return int(launched);
  return launch_direct(f, x, w, bias, out, flags, stream, Identity());
}

// A 3 x 3 filter per channel (padding 1), then `Columns` mixtures of all channels; the filtered image goes through memory.
inline int64_t fed_separable_workspace(const Form& f, int columns, int rows) {
  return (fed_workspace(f, columns, rows) + 255) / 256 * 256 + int64_t(f.images) * f.ci * f.in_volume() * 4;
}

template <int Columns, int Rows, int Producers>
int launch_fed_separable(const Form& f, const float* x, const float* filters, const float* w, float* out, void* workspace,
                         cudaStream_t stream) {
  if (int64_t(f.images) * f.co * f.out_volume() == 0) return 0;
  float* between = reinterpret_cast<float*>(static_cast<unsigned char*>(workspace) + (fed_workspace(f, Columns, Rows) + 255) / 256 * 256);
  const int state = depthwise::launch_padded<3, 3>(x, filters, between, f.images, f.ci, f.in[1], f.in[2], stream);
  return state ? state : launch_fed<Columns, 1, Rows, Producers>(f, between, w, nullptr, out, workspace, stream);
}

}  // namespace conv
}  // namespace warpsmith
