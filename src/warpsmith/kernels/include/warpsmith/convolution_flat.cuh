// convolution_flat.cuh: convolutions of few channels in one pass over memory: stride 1, no padding, at most 128 terms (channels times
// taps), 64 output channels. The engine of convolution.cuh writes planes of fp16 terms to memory first, which are ten times as large
// as the input.
//
// Pixels are those of the input, 128 in a row for one tile, so that a tap is a constant distance also in the input. Producers copy
// the ranges of the input that a tile reads (one for each channel and slice) to shared memory some tiles ahead, gather the terms of
// every pixel from there, split them into fp16 and store them as operands. A tile belongs to one warpgroup: while it writes results,
// the other one multiplies. Each has a ring of stages of its own: in a shared one, a warpgroup that is more than one phase ahead of a
// barrier would pass it. All filters stay in shared memory.
#pragma once

#include <warpsmith/convolution_held.cuh>

namespace warpsmith {
namespace conv {

constexpr int kFlatPixels = 128, kFlatColumns = 64;
constexpr int kFlatProducers = 256;  // threads that gather and split
constexpr int kFlatAhead = 3;        // tiles of which the input is copied ahead
constexpr int kFlatStages = 3;       // of shared memory for the terms of one warpgroup, at most

struct FlatArgs {
  int tiles, all_tiles;
  int ci, rows, range;        // channels; ranges of the input, and elements of each
  int height, width;          // of the input
  int volume, reach;          // elements of one channel of the input; last one that is a pixel of a tile
  int out[3], vector;
  int steps, chunks, stages;  // steps of 16 terms in a stage; stages of a tile; of shared memory, for each warpgroup
  int slice[32];              // distance of a range's slice
  int offset[kMaxFolded];     // of a term among the copied elements, -1: none
};

struct FlatPlan {
  FilterArgs filter;
  FlatArgs args;
  int64_t w_units;
  int bytes;
  bool ok;
};

inline FlatPlan make_flat_plan(const Form& f) {
  FlatPlan s = {};
  for (int i = 0; i < 3; ++i)
    if (f.stride[i] != 1 || f.pad[i]) return s;
  const int terms = f.ci * f.taps();
  if (f.transposed || f.groups != 1 || f.co != kFlatColumns || terms > kMaxFolded || f.ci * f.kernel[0] > 32) return s;
  const Plan p = make_plan(f, 7, kFlatColumns, 30000, 1, 1 << 30, 64, kFlatPixels);
  if (!p.ok || p.filter.all_taps != 1 || p.columns != kFlatColumns) return s;
  s.filter = p.filter;
  s.w_units = p.w_units;
  FlatArgs& a = s.args;
  const int64_t volume = f.in_volume();
  a.ci = f.ci, a.rows = f.ci * f.kernel[0], a.height = f.in[1], a.width = f.in[2], a.volume = int(volume);
  a.range = (kFlatPixels + f.dilation[1] * (f.kernel[1] - 1) * f.in[2] + f.dilation[2] * (f.kernel[2] - 1) + 3) / 4 * 4;
  if (a.range > 2 * kFlatPixels) return s;  // tiles would copy more of each other's pixels than of their own
  for (int i = 0; i < 3; ++i) a.out[i] = f.out[i];
  for (int row = 0; row < a.rows; ++row) a.slice[row] = row / f.ci * f.dilation[0] * f.in[1] * f.in[2];
  for (int t = 0; t < kMaxFolded; ++t) {
    const int c = t < terms ? p.input.channel[t] : -1;
    a.offset[t] = c < 0 ? -1 : (p.input.dd[t] / f.dilation[0] * f.ci + c) * a.range + p.input.dh[t] * f.in[2] + p.input.dw[t];
  }
  a.reach = ((f.out[0] - 1) * f.in[1] + f.out[1] - 1) * f.in[2] + f.out[2];
  a.tiles = (a.reach + kFlatPixels - 1) / kFlatPixels;
  if (int64_t(a.tiles) * f.images > (1 << 30) || volume > (1 << 30)) return s;
  a.all_tiles = a.tiles * f.images;
  // Several pixels of the output in one access: all of them or none exist, and their places are multiples.
  const auto multiple = [&](int n) {
    return (f.in[2] % n == 0 && f.out[2] % n == 0) ||
           (f.in[2] == f.out[2] && f.in[1] * f.in[2] % n == 0 && f.out[1] * f.out[2] % n == 0);
  };
  a.vector = multiple(4) ? 4 : multiple(2) ? 2 : 1;
  const int k16 = p.product.k8 / 2;
  a.steps = k16 % 2 == 0 ? 2 : k16 % 3 == 0 ? 3 : 1;
  a.chunks = k16 / a.steps;
  const int fixed = 256 + 2 * kFlatPixels * 4 + 2 * kFlatColumns * kPitch * 4 + int(p.w_units) * 16 +
                    (kFlatAhead + 1) * a.rows * a.range * 4;
  const int stage = a.steps * 4 * kFlatPixels * 16;
  a.stages = std::min(kFlatStages, (227 * 1024 - fixed) / (2 * stage));
  if (a.stages < (a.chunks > 1 ? 2 : 1)) return s;  // a stage is free when the next one has begun
  s.bytes = fixed + 2 * a.stages * stage;
  s.ok = true;
  return s;
}

__device__ __forceinline__ void copy_element(float* to, const float* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(exists ? 4 : 0) : "memory");
}
__device__ __forceinline__ void copies_committed() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void copies_arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

static __global__ __launch_bounds__(256 + kFlatProducers, 1) void flat(const __grid_constant__ FlatArgs a, const float* __restrict__ x,
                                                                       const uint4* __restrict__ w, int filter_bytes,
                                                                       const float* __restrict__ bias, float* __restrict__ out,
                                                                       unsigned* flags) {
  extern __shared__ __align__(128) unsigned char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + 8;
  uint64_t* ready = full + 16;
  int* places = reinterpret_cast<int*>(memory + 256);                               // [warpgroup][pixel]
  float* staged = reinterpret_cast<float*>(memory + 256 + 2 * kFlatPixels * 4);  // [warpgroup][column][kPitch]
  unsigned char* filters = memory + 256 + 2 * kFlatPixels * 4 + 2 * kFlatColumns * kPitch * 4;
  unsigned char* ring = filters + filter_bytes;  // [warpgroup][stage][block of eight terms][hi, lo][pixel], 16 bytes each
  const int stage_units = a.steps * 4 * kFlatPixels;
  float* copied = reinterpret_cast<float*>(ring + 2 * a.stages * stage_units * 16);  // [tile][range][element]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2 * a.stages; ++s) barrier_init(full + s, kFlatProducers), barrier_init(empty + s, 4);
    barrier_init(ready, 1);
    barriers_initialised();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    const int thread = threadIdx.x - 256;
    if (thread == 0) {
      barrier_expect(ready, filter_bytes);
      for (int at = 0; at < filter_bytes; at += 16384)
        bulk_copy(filters + at, reinterpret_cast<const unsigned char*>(w) + at, min(16384, filter_bytes - at), ready);
    }
    const int elements = a.rows * a.range;
    const auto copy = [&](int index, int buffer) {
      if (index < a.all_tiles) {
        const int image = index / a.tiles, first = index % a.tiles * kFlatPixels;
        const float* from = x + int64_t(image) * a.ci * a.volume;
        float* to = copied + buffer * elements;
        for (int e = thread; e < elements; e += kFlatProducers) {
          const int row = e / a.range, at = a.slice[row] + first + e - row * a.range;
          const bool exists = at < a.volume;
          copy_element(to + e, from + int64_t(row % a.ci) * a.volume + (exists ? at : 0), exists);
        }
      }
      copies_committed();
    };
    unsigned largest = 0;  // of the bits of magnitudes: what is not a number is larger than all numbers
    int buffer = 0, next = kFlatAhead;  // `next`: the buffer for the tile that is copied
    int number = 0;                 // of the tile among those of this block; warpgroups take turns
    for (int n = 0; n < kFlatAhead; ++n) copy(blockIdx.x + n * gridDim.x, n);
    for (int index = blockIdx.x; index < a.all_tiles; index += gridDim.x, ++number) {
      copies_arrived<kFlatAhead - 1>();
      ptx::named_barrier(3, kFlatProducers);  // the tile has arrived for all producers, and none reads the one before it
      copy(index + kFlatAhead * gridDim.x, next);
      const float* from = copied + buffer * elements;
      for (int chunk = 0; chunk < a.chunks; ++chunk) {
        const int sequence = number / 2 * a.chunks + chunk, slot = number % 2 * a.stages + sequence % a.stages;
        barrier_wait(empty + slot, (sequence / a.stages & 1) ^ 1);
        uint4* to = reinterpret_cast<uint4*>(ring) + slot * stage_units;
#pragma unroll 2
        for (int item = thread; item < 2 * a.steps * kFlatPixels; item += kFlatProducers) {
          const int block = item / kFlatPixels, pixel = item % kFlatPixels, term = 8 * (2 * a.steps * chunk + block);
          float v[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int offset = a.offset[term + i];
            v[i] = offset >= 0 ? from[offset + pixel] : 0.0f;
            largest = max(largest, __float_as_uint(v[i]) & 0x7fffffffu);
          }
          uint4 hi, lo;
          split8(v, hi, lo);
          to[2 * block * kFlatPixels + pixel] = hi;
          to[(2 * block + 1) * kFlatPixels + pixel] = lo;
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        barrier_arrive(full + slot);
      }
      buffer = buffer == kFlatAhead ? 0 : buffer + 1;
      next = next == kFlatAhead ? 0 : next + 1;
    }
    __syncwarp();
    const float seen = __uint_as_float(largest);
    tell_range(range_of(seen, seen != seen, kXSeen), flags);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 184;");
    const int group = warp / 4, thread = threadIdx.x % 128;
    staged += group * kFlatColumns * kPitch;
    places += group * kFlatPixels;
    const uint64_t x_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * kFlatPixels) << 16);
    const uint64_t w_base = (uint64_t(8) << 32) | (uint64_t(2 * kFlatColumns) << 16) | (shared_address(filters) >> 4);
    const uint32_t ring_units = shared_address(ring) >> 4;
    constexpr int kHalf = kFlatColumns / 2;
    float part[2][kHalf], other[2][kHalf];  // hi*hi; hi*lo + lo*hi
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < kHalf; ++i) part[m][i] = other[m][i] = 0.0f;
    barrier_wait(ready, 0);
    const int volume = a.out[0] * a.out[1] * a.out[2];
    int number = 0;  // of the tile among those of this warpgroup
    for (int index = blockIdx.x + group * gridDim.x; index < a.all_tiles; index += 2 * gridDim.x, ++number) {
      const int image = index / a.tiles, first = index % a.tiles * kFlatPixels;
      ptx::named_barrier(1 + group, 128);
      {
        const int pixel = first + thread, row = pixel / a.width, column = pixel - row * a.width;
        const int slice = row / a.height, line = row - slice * a.height;
        places[thread] = pixel < a.reach && column < a.out[2] && line < a.out[1] ? (slice * a.out[1] + line) * a.out[2] + column : -1;
      }
      int before = -1;
      for (int chunk = 0; chunk < a.chunks; ++chunk) {
        const int sequence = number * a.chunks + chunk, slot = group * a.stages + sequence % a.stages;
        barrier_wait(full + slot, sequence / a.stages & 1);
        uint64_t at = x_descriptor | (ring_units + slot * stage_units), wd = w_base + chunk * a.steps * 4 * kFlatColumns;
        ptx::wgmma_fence();
        int s = 0;
        do {
          const int add = chunk + s > 0;
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            WgmmaF16<kFlatColumns>::run(part[m], at + 64 * m, wd, add);
            WgmmaF16<kFlatColumns>::run(other[m], at + 64 * m, wd + kFlatColumns, add);
            WgmmaF16<kFlatColumns>::run(other[m], at + 64 * m + kFlatPixels, wd, 1);
          }
          at += 4 * kFlatPixels;
          wd += 4 * kFlatColumns;
        } while (++s < a.steps);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (before >= 0 && lane == 0) barrier_arrive(empty + before);
        before = slot;
      }
      ptx::wgmma_wait<0>();
      if (lane == 0) barrier_arrive(empty + before);

      float* lines = out + int64_t(image) * kFlatColumns * volume;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        ptx::named_barrier(1 + group, 128);
        const int row = 16 * (warp % 4) + lane / 4;
#pragma unroll
        for (int j = 0; j < kFlatColumns / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            staged[(8 * j + 2 * (lane % 4) + e % 2) * kPitch + row + 8 * (e / 2)] =
                fmaf(other[m][4 * j + e], kLoUnscale, part[m][4 * j + e]);
        ptx::named_barrier(1 + group, 128);
        write_pixels<kFlatColumns>(a.vector, staged, places + 64 * m, lines, bias, kFlatColumns, volume, warp % 4, lane);
      }
    }
  }
}

inline int64_t flat_workspace(const Form& f) {
  const FlatPlan s = make_flat_plan(f);
  return s.ok ? (kFlagUnits + s.w_units) * 16 : workspace_of(best_plan(f, kFlatColumns, 2));
}

// Forms and sizes that do not suit take launch_held.
inline int launch_flat(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  if (int64_t(f.images) * f.groups * f.co * f.out_volume() == 0) return 0;
  const FlatPlan s = make_flat_plan(f);
  if (!s.ok || !workspace) return launch_held<kFlatColumns, 1, 2, true, 0>(f, x, w, bias, out, workspace, stream);
  unsigned* flags = static_cast<unsigned*>(workspace);
  uint4* w_planes = static_cast<uint4*>(workspace) + kFlagUnits;
  cudaMemsetAsync(flags, 0, 256, stream);
  split_filter<<<264, 128, 0, stream>>>(s.filter, w, w_planes, flags);
  cudaError_t state = cudaFuncSetAttribute(flat, cudaFuncAttributeMaxDynamicSharedMemorySize, s.bytes);
  if (state != cudaSuccess) return int(state);
  const int blocks = std::min(processor_count(), s.args.all_tiles), threads = 256 + kFlatProducers, filter_bytes = int(s.w_units) * 16;
  flat<<<blocks, threads, s.bytes, stream>>>(s.args, x, w_planes, filter_bytes, bias, out, flags);
  state = cudaGetLastError();
  if (state != cudaSuccess) return int(state);
  return launch_direct(f, x, w, bias, out, flags, stream, Identity());
}

}  // namespace conv
}  // namespace warpsmith
