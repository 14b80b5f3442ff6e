// convolution_stream.cuh: convolutions along one axis with few terms, in one pass over memory (sm_90a).
//
// For forms whose time is mostly memory: one spatial axis (or a filter of one tap, for which all axes count as
// one), at most 128 output channels, filters that fit into shared memory beside the data. The same mathematics as
// convolution.cuh, but the input is split into fp16 planes on its way into shared memory: four warps load, split and store,
// two warpgroups multiply and write. All filters stay in shared memory. Sums are short (at most a few hundred terms), so
// that they stay in the tensor cores' own registers until the end.
#pragma once

#include <climits>

#include <warpsmith/convolution.cuh>
#include <warpsmith/depthwise.cuh>

#ifndef TUNE_COPIES
#define TUNE_COPIES 3  // filters of one tap: batches of input that are copied to shared memory ahead of being split; 0: in registers
#endif

namespace warpsmith {
namespace conv {

constexpr int kCopyBytes = 16384;  // of a batch: 16 values for each of 256 threads, or 32 for each of 128

struct StreamArgs {
  int tiles, all_tiles;
  int ci, length, step, first;   // input: channels, extent, step per pixel, coordinate of pixel 0 for no distance
  int parts, range;              // positions modulo the step; pixels of each in a stage
  int part_units;                // 16-byte units of one of these in a stage; three more than needed, against bank conflicts
  int count, out_length, ostep;  // output: pixels, extent, step
  int vector;                    // floats per access to the output
  int co;
  int chunks, steps;             // stages of a tile; steps of 16 terms in a stage
  int taps;
  int stages, stage_bytes, filter_bytes;
  int place[64];                 // of a tap in a stage, in pixels: part and distance
  int block[64];                 // of a tap's first filter block; per chunk it moves on by `advance`
  int advance[64];
  signed char phase[kMaxPhases];
};

struct StreamPlan {
  Plan plan;
  StreamArgs args;
  int bytes;
  bool ok;
};

// The plan for a form; `rows` and `copies` as in the kernel; steps of 16 terms in a stage (0: two where it divides).
inline StreamPlan make_stream_plan(Form f, int columns, int rows, int copies = 0, int wanted_steps = 0) {
  StreamPlan s = {};
  s.ok = false;
  if (f.taps() == 1 && !f.transposed && f.stride[0] == 1 && f.stride[1] == 1 && f.stride[2] == 1 && !f.pad[0] && !f.pad[1] && !f.pad[2]) {
    f.in[2] = f.in_volume(), f.out[2] = f.out_volume();
    f.in[0] = f.in[1] = f.out[0] = f.out[1] = 1;
  }
  if (f.groups != 1 || f.in[0] != 1 || f.in[1] != 1 || f.out[0] != 1 || f.out[1] != 1 || f.kernel[0] != 1 || f.kernel[1] != 1) return s;
  if (f.kernel[2] > 64 || f.ci < 16 || f.co != columns) return s;
  const int k16 = (f.ci + 15) / 16, steps = wanted_steps ? wanted_steps : k16 % 2 == 0 ? 2 : 1;
  s.plan = make_plan(f, 0, columns, 30000, steps, 1 << 30, 64, 128 * rows);
  if (!s.plan.ok || s.plan.columns != columns || s.plan.filter.phases != 1 || s.plan.product.problems != 1) return s;
  const Plan& p = s.plan;
  StreamArgs& a = s.args;
  a.ci = f.ci, a.length = f.in[2], a.step = p.input.istep[2], a.first = p.input.first[2], a.parts = p.input.parts[2];
  a.count = p.product.count[2], a.out_length = f.out[2], a.ostep = p.product.ostep[2], a.co = f.co;
  a.steps = p.product.steps, a.chunks = k16 / a.steps, a.taps = p.filter.all_taps;
  int furthest = 0;
  for (int r = 0; r < p.product.problem[0].runs; ++r)
    for (int t = 0; t < p.product.run[r].taps; ++t) {
      const int at = p.product.run[r].offset + p.product.shift[p.product.run[r].tap + t];
      furthest = std::max(furthest, at % p.input.plane);
    }
  a.range = (128 * rows + furthest + 7) / 8 * 8;
  a.part_units = 4 * a.steps * a.range + (a.parts > 1 ? 3 : 0);
  for (int r = 0; r < p.product.problem[0].runs; ++r)
    for (int t = 0; t < p.product.run[r].taps; ++t) {
      const Run& run = p.product.run[r];
      const int tap = run.tap + t, at = run.offset + p.product.shift[tap];
      a.place[tap] = at / p.input.plane * a.part_units + at % p.input.plane;
      a.block[tap] = run.tap * k16 + t * a.steps;
      a.advance[tap] = run.taps * a.steps;
    }
  for (int i = 0; i < kMaxPhases; ++i) a.phase[i] = p.product.phase[i];
  a.filter_bytes = int(p.w_units * 16);
  a.stage_bytes = a.parts * a.part_units * 16;
  const int fixed = 256 + 512 + 2 * 32 * kPitch * 4 + a.filter_bytes + copies * kCopyBytes;
  a.vector = a.count % 4 == 0 ? 4 : a.count % 2 == 0 ? 2 : 1;
  a.stages = std::min(4, (227 * 1024 - fixed) / a.stage_bytes);
  if (a.stages < 2) return copies && steps > 1 ? make_stream_plan(f, columns, rows, copies, 1) : s;
  s.bytes = fixed + a.stages * a.stage_bytes;
  a.tiles = (a.count + 128 * rows - 1) / (128 * rows);
  if (int64_t(a.tiles) * f.images > (1 << 30)) return s;
  a.all_tiles = a.tiles * f.images;
  s.ok = true;
  return s;
}

inline int64_t stream_workspace(const StreamPlan& s) { return s.ok ? (kFlagUnits + s.plan.w_units) * 16 : 0; }

// Where the terms come from. The input itself:
struct Plain {
  const float* x;
  int ci, length;
  using Spot = const float*;
  __device__ __forceinline__ Spot spot(int image, int at) const {
    return unsigned(at) < unsigned(length) ? x + int64_t(image) * ci * length + at : nullptr;
  }
  __device__ __forceinline__ float value(Spot spot, int c) const { return spot ? __ldg(spot + int64_t(c) * length) : 0.0f; }
  // Starts a copy of the value, or of 0, into shared memory.
  __device__ __forceinline__ void copy(Spot spot, int c, bool exists, float* to) const {
    const float* from = spot && exists ? spot + int64_t(c) * length : x;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(spot && exists ? 4 : 0)
                 : "memory");
  }
};

// Or the input after a filter of 3 x 3 of its own for every channel, padded by one so that the image keeps its size (used by the
// plain kernel only).
struct Filtered3x3 {
  const float* x;
  const float* filters;  // [ci][9]
  int ci, height, width;
  struct Spot {
    const float* at;
    bool row[3], column[3];
  };
  __device__ __forceinline__ Spot spot(int image, int at) const {
    Spot s;
    const int h = at / width, w = at - h * width;
    s.at = x + int64_t(image) * ci * height * width + at;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      s.row[i] = at < height * width && unsigned(h + i - 1) < unsigned(height);
      s.column[i] = unsigned(w + i - 1) < unsigned(width);
    }
    return s;
  }
  __device__ __forceinline__ float value(const Spot& s, int c) const {
    const float* from = s.at + int64_t(c) * height * width;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        const float v = s.row[i] && s.column[j] ? __ldg(from + (i - 1) * width + j - 1) : 0.0f;
        sum = fmaf(v, __ldg(filters + c * 9 + 3 * i + j), sum);
      }
    return sum;
  }
};

// kProducers threads load and split, two warpgroups multiply.
template <int Columns, int OutStep, int kRows, int kProducers, int kCopies, class Source, class Epilogue>
__global__ __launch_bounds__(256 + kProducers, 1) void stream(const __grid_constant__ StreamArgs a, const Source source,
                                                              const uint4* __restrict__ w, const float* __restrict__ bias,
                                                              float* __restrict__ out, unsigned* flags, Epilogue epilogue) {
  extern __shared__ __align__(128) unsigned char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + 8;
  uint64_t* ready = full + 16;
  int* places = reinterpret_cast<int*>(memory + 256);            // [warpgroup][64]
  float* staged = reinterpret_cast<float*>(memory + 256 + 512);  // [warpgroup][32][kPitch]
  unsigned char* filters = memory + 256 + 512 + 2 * 32 * kPitch * 4;
  unsigned char* ring = filters + a.filter_bytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) barrier_init(full + s, kProducers), barrier_init(empty + s, 8);
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
    // Loads of the next batch are on their way while a batch is split and stored.
    constexpr int kAtOnce = kProducers == 128 ? 4 : 2;
    const unsigned blocks = 2 * a.steps, across = a.parts * a.range, items = blocks * across;  // neighbours in memory side by side
    float largest = 0.0f;
    bool bad = false;
    struct Batch {
      int index, chunk;
      unsigned base;
    };
    const auto advance = [&](Batch b) {
      b.base += kAtOnce * kProducers;
      if (b.base >= items) {
        b.base = 0;
        if (++b.chunk == a.chunks) b.chunk = 0, b.index += gridDim.x;
      }
      return b;
    };
    const auto load = [&](const Batch& b, float (&v)[kAtOnce][8]) {
      const int image = b.index / a.tiles, first = b.index % a.tiles * (128 * kRows);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const unsigned item = b.base + q * kProducers + thread, block = item / across, at = item - block * across;
        const int c = (b.chunk * blocks + block) * 8;
        const auto spot = source.spot(image, item < items ? a.step * first + a.first + int(at) : INT_MAX);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[q][i] = c + i < a.ci ? source.value(spot, c + i) : 0.0f;
      }
    };
    const auto store = [&](const Batch& b, float (&v)[kAtOnce][8]) {
      if (b.base == 0) barrier_wait(empty + slot, parity ^ 1);
      uint4* to = reinterpret_cast<uint4*>(ring + slot * a.stage_bytes);
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        const unsigned item = b.base + q * kProducers + thread, block = item / across, at = item - block * across;
        const unsigned r = a.parts == 1 ? at : at / a.parts, unit = 2 * block * a.range + r + (at - r * a.parts) * a.part_units;
#pragma unroll
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[q][i])), bad = bad || v[q][i] != v[q][i];
        uint4 hi, lo;
        split8(v[q], hi, lo);
        if (item < items) {
          to[unit] = hi;
          to[unit + a.range] = lo;
        }
      }
      if (b.base + kAtOnce * kProducers >= items) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        barrier_arrive(full + slot);
        if (++slot == a.stages) slot = 0, parity ^= 1;
      }
    };
    Batch now = {int(blockIdx.x), 0, 0};
    if constexpr (kCopies > 0) {
      static_assert(kAtOnce * 8 * kProducers * 4 == kCopyBytes, "what the plan leaves room for");
      float* copies = reinterpret_cast<float*>(ring + a.stages * a.stage_bytes) + thread;  // [batch][item][term][thread]
      const auto copy = [&](const Batch& b, int which) {
        const int image = b.index / a.tiles, first = b.index % a.tiles * (128 * kRows);
        float* to = copies + which * (kCopyBytes / 4);
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) {
          const unsigned item = b.base + q * kProducers + thread, block = item / across, at = item - block * across;
          const int c = (b.chunk * blocks + block) * 8;
          const auto spot = source.spot(image, item < items ? a.step * first + a.first + int(at) : INT_MAX);
#pragma unroll
          for (int i = 0; i < 8; ++i) source.copy(spot, c + i, c + i < a.ci, to + (8 * q + i) * kProducers);
        }
      };
      Batch next = now;
      for (int n = 0; n < kCopies; ++n, next = advance(next)) {
        if (next.index < a.all_tiles) copy(next, n);
        asm volatile("cp.async.commit_group;" ::: "memory");
      }
      for (int which = 0; now.index < a.all_tiles; now = advance(now), next = advance(next)) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kCopies - 1) : "memory");
        float v[kAtOnce][8];
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q)
#pragma unroll
          for (int i = 0; i < 8; ++i) v[q][i] = copies[which * (kCopyBytes / 4) + (8 * q + i) * kProducers];
        store(now, v);
        if (next.index < a.all_tiles) copy(next, which);
        asm volatile("cp.async.commit_group;" ::: "memory");
        which = which + 1 == kCopies ? 0 : which + 1;
      }
    } else {
      float even[kAtOnce][8], odd[kAtOnce][8];
      load(now, even);
      while (now.index < a.all_tiles) {
        const Batch next = advance(now);
        if (next.index < a.all_tiles) load(next, odd);
        store(now, even);
        now = next;
        if (now.index >= a.all_tiles) break;
        const Batch after = advance(now);
        if (after.index < a.all_tiles) load(after, even);
        store(now, odd);
        now = after;
      }
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
              staged[(8 * j + 2 * (lane % 4) + e % 2) * kPitch + row + 8 * (e / 2)] =
                  fmaf(other[m][i], kLoUnscale, part[m][i]);
            }
          ptx::named_barrier(1 + group, 128);
float* lines = to + int64_t(32 * set) * a.out_length;
          const float* extra = bias ? bias + 32 * set : nullptr;
          if (OutStep > 1) {
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
                if (place < a.out_length) line[place] = epilogue(value[i] + more);
              }
            }
          } else if (a.vector == 4) {
            write_lines<4, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, epilogue);
          } else if (a.vector == 2) {
            write_lines<2, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, epilogue);
          } else {
            write_lines<1, 32>(staged, places, lines, extra, 32, a.out_length, warp % 4, lane, epilogue);
          }
        }
      }
    }
  }
}

// Launches the kernel of a plan.
template <int Columns, int OutStep, int Rows, int Producers, int Copies, class Source, class Epilogue>
int launch_stream_plan(const StreamPlan& s, const Source& source, const uint4* filters, const float* bias, float* out, unsigned* flags,
                       cudaStream_t at, Epilogue epilogue) {
  auto* kernel = stream<Columns, OutStep, Rows, Producers, Copies, Source, Epilogue>;
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, s.bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<std::min(processors, s.args.all_tiles), 256 + Producers, s.bytes, at>>>(s.args, source, filters, bias, out, flags, epilogue);
  return int(cudaGetLastError());
}

// Launches all but the repair; 0, an error, or -1 where the form does not suit.
template <int Columns, int OutStep, int Rows, int Producers, class Source, class Epilogue>
int launch_stream_of(const Form& f, const Source& source, const float* w, const float* bias, float* out, void* workspace, cudaStream_t at,
                     Epilogue epilogue) {
  const StreamPlan copying = f.taps() == 1 ? make_stream_plan(f, Columns, Rows, TUNE_COPIES) : StreamPlan{};
  const StreamPlan s = copying.ok ? copying : make_stream_plan(f, Columns, Rows);
  if (!s.ok || s.args.ostep != OutStep || !workspace) return -1;
  uint4* units = static_cast<uint4*>(workspace);
  unsigned* flags = reinterpret_cast<unsigned*>(units);
  cudaMemsetAsync(flags, 0, 256, at);
  split_filter<<<264, 128, 0, at>>>(s.plan.filter, w, units + kFlagUnits, flags);
  if (copying.ok)
    return launch_stream_plan<Columns, OutStep, Rows, Producers, TUNE_COPIES>(s, source, units + kFlagUnits, bias, out, flags, at, epilogue);
  return launch_stream_plan<Columns, OutStep, Rows, Producers, 0>(s, source, units + kFlagUnits, bias, out, flags, at, epilogue);
}

// A convolution along one axis (or of one tap) with `Columns` output channels; other forms take the plain kernel.
template <int Columns, int OutStep, int Rows, int Producers = 128, class Epilogue = Identity>
int launch_stream(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t at,
                  Epilogue epilogue = Epilogue()) {
  if (int64_t(f.images) * f.groups * f.co * f.out_volume() == 0) return 0;
  const int state = launch_stream_of<Columns, OutStep, Rows, Producers>(f, Plain{x, f.ci, f.in_volume()}, w, bias, out, workspace, at, epilogue);
  if (state > 0) return state;
  return launch_direct(f, x, w, bias, out, state < 0 ? nullptr : static_cast<const unsigned*>(workspace), at, epilogue);
}

// One output of a 3 x 3 filter per channel followed by a mixture of channels, in plain arithmetic.
template <class Epilogue>
__global__ void direct_separable(const __grid_constant__ Form f, const float* __restrict__ x, const float* __restrict__ filters,
                                 const float* __restrict__ w, float* __restrict__ out, const unsigned* flags, Epilogue epilogue) {
  if (flags && *flags == (kXSeen | kWSeen)) return;
  const int height = f.out[1], width = f.out[2];
  const int64_t volume = f.out_volume(), total = int64_t(f.images) * f.co * volume;
  for (int64_t e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; e < total; e += int64_t(gridDim.x) * blockDim.x) {
    const int64_t channels = e / volume;
    const int pixel = int(e - channels * volume), image = int(channels / f.co), channel = int(channels % f.co);
    const Filtered3x3 source{x, filters, f.ci, height, width};
    const auto spot = source.spot(image, pixel);
    float sum = 0.0f;
    for (int c = 0; c < f.ci; ++c) sum = fmaf(source.value(spot, c), w[channel * f.ci + c], sum);
    out[e] = epilogue(sum);
  }
}

// A 3 x 3 filter per channel (padding 1), then `Columns` mixtures of all channels. The filtered image goes through memory: filtering
// while the mixture's terms are loaded took four times as long (too few warps, nine loads per value).
inline int64_t separable_workspace(const Form& f, const StreamPlan& s) {
  return s.ok ? (stream_workspace(s) + 255) / 256 * 256 + int64_t(f.images) * f.ci * f.in_volume() * 4 : 0;
}

template <int Columns, int Rows, int Producers = 256, class Epilogue = Identity>
int launch_separable(const Form& f, const float* x, const float* filters, const float* w, float* out, void* workspace, cudaStream_t at,
                     Epilogue epilogue = Epilogue()) {
  if (int64_t(f.images) * f.co * f.out_volume() == 0) return 0;
  const StreamPlan s = make_stream_plan(f, Columns, Rows);
  const bool fits = s.ok && workspace;
  if (fits) {
    float* between = reinterpret_cast<float*>(static_cast<unsigned char*>(workspace) + (stream_workspace(s) + 255) / 256 * 256);
    int state = depthwise::launch_padded<3, 3>(x, filters, between, f.images, f.ci, f.in[1], f.in[2], at);
    if (state) return state;
    state = launch_stream_of<Columns, 1, Rows, Producers>(f, Plain{between, f.ci, f.in_volume()}, w, nullptr, out, workspace, at, epilogue);
    if (state) return state;
  }
  direct_separable<<<132 * 8, 256, 0, at>>>(f, x, filters, w, out, fits ? static_cast<const unsigned*>(workspace) : nullptr, epilogue);
  return int(cudaGetLastError());
}

}  // namespace conv
}  // namespace warpsmith
