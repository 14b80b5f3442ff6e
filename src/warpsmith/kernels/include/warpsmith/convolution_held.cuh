// convolution_held.cuh: the product of convolution.cuh with the sums of all pixels of a tile held in the tensor cores' registers.
//
// `product` multiplies 64 pixels of a stage, waits for the tensor cores, adds to fp32 registers, and goes on with the next 64.
// `held` has registers of its own for every 64 pixels: all products of a stage are one group, the next group is issued before the
// last one is done, and sums are added to fp32 registers only where the next stage would make more than `Fold` steps of 16 terms.
// Tensor cores cut sums off after every step, so that a longer sum is less accurate: relative rms error 6e-7 after 27 steps, where
// `product` has 2e-7.
#pragma once

#include <warpsmith/convolution.cuh>

namespace warpsmith {
namespace conv {

constexpr int kLongestSum = 27;  // steps of 16 terms that are added in the tensor cores' registers, at most

// Steps of 16 terms of the longest sum of a plan.
inline int longest_sum(const Plan& p) {
  int taps = 0;
  for (int q = 0; q < p.product.problems; ++q) taps = std::max(taps, p.product.problem[q].taps);
  return taps * (p.product.k8 / 2);
}

// Writes 64 pixels of `most` staged columns, where neighbouring pixels are neighbours in the output.
template <int Columns>
__device__ __forceinline__ void write_pixels(int vector, const float* staged, const int* places, float* lines, const float* extra, int most,
                                             int volume, int warp, int lane) {
  if (vector == 4)
    write_lines<4, Columns>(staged, places, lines, extra, most, volume, warp, lane, Identity());
  else if (vector == 2)
    write_lines<2, Columns>(staged, places, lines, extra, most, volume, warp, lane, Identity());
  else
    write_lines<1, Columns>(staged, places, lines, extra, most, volume, warp, lane, Identity());
}

// As `product`, with kRows times 64 pixels of a warpgroup. kTriple: three products of one width, so that hi*lo and lo*hi share
// registers; else hi*[hi lo] is one product of double width, which reads the pixels twice instead of three times. kFold 0: sums are
// added at the end of a tile only.
template <int Columns, int OutStep, int kRows, bool kTriple, int kFold>
__global__ __launch_bounds__(kProductThreads, 1) void held(const __grid_constant__ ProductArgs a, const uint4* __restrict__ x,
                                                           const uint4* __restrict__ w, const float* __restrict__ bias,
                                                           float* __restrict__ out) {
  extern __shared__ __align__(128) unsigned char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + 8;
  int* places = reinterpret_cast<int*>(memory + 256);          // [warpgroup][place, left][256]
  float* staged = reinterpret_cast<float*>(memory + kHead);  // [warpgroup][column][kPitch]
  unsigned char* ring = memory + kHead + 2 * Columns * kPitch * 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) barrier_init(full + s, 1), barrier_init(empty + s, kConsumers / 32);
    barriers_initialised();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int chunks = a.k8 / (2 * a.steps);
  int slot = 0;
  uint32_t parity = 0;

  if (warp >= kConsumers / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == kConsumers) {
      for (int round = 0, turn = blockIdx.x; round < a.all_tiles; round += gridDim.x, turn = (turn + a.turn) % gridDim.x) {
        const int index = round + turn;
        if (index >= a.all_tiles) continue;
        const Tile t = tile_of(a, index);
        const Problem& q = a.problem[t.problem];
        const uint4* from = x + (int64_t(t.image) * a.groups + t.group) * a.k8 * 2 * a.total;
        const uint4* filters = w + (int64_t(t.group) * a.column_tiles + t.column_tile) * a.w_tile;
        for (int r = 0; r < q.runs; ++r) {
          const Run run = a.run[q.run + r];
          const int begin = t.first + run.offset;
          const int length = min(a.range, a.total - begin);
          const uint32_t filter_bytes = run.taps * a.steps * 64 * Columns;
          const uint32_t x_bytes = length > 0 ? length * 16 : 0;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            barrier_wait(empty + slot, parity ^ 1);
            unsigned char* to = ring + slot * a.stage_bytes;
            barrier_expect(full + slot, filter_bytes + 4 * a.steps * x_bytes);
            bulk_copy(to + a.x_bytes, filters + (int64_t(run.tap) * (a.k8 / 2) + chunk * run.taps * a.steps) * 4 * Columns,
                      filter_bytes, full + slot);
            if (x_bytes)
              for (int b = 0; b < 4 * a.steps; ++b)
                bulk_copy(to + b * a.range * 16, from + int64_t(chunk * 4 * a.steps + b) * a.total + begin, x_bytes, full + slot);
            if (++slot == a.stages) slot = 0, parity ^= 1;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int group = warp / 4;  // warpgroup
    staged += group * Columns * kPitch;
    places += group * 512;
    const int thread = threadIdx.x % 128;
    const uint64_t x_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * a.range) << 16);
    const uint64_t w_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * Columns) << 16);
    const uint32_t ring_units = shared_address(ring) >> 4;
    // Triple: hi*hi; hi*lo + lo*hi. Else: hi*hi, then hi*lo; lo*hi.
    constexpr int kHalf = Columns / 2, kPart = kTriple ? kHalf : Columns;
    float part[kRows][kPart], other[kRows][kHalf];
    float sums[kFold ? kRows : 1][kFold ? kHalf : 1];
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
#pragma unroll
      for (int i = 0; i < kPart; ++i) part[m][i] = 0.0f;
#pragma unroll
      for (int i = 0; i < kHalf; ++i) other[m][i] = 0.0f;
    }
    const auto total = [&](int m, int i) {
      return kTriple ? fmaf(other[m][i], kLoUnscale, part[m][i])
                     : fmaf(part[m][(kHalf + i) % kPart] + other[m][i], kLoUnscale, part[m][i]);
    };

    for (int round = 0, turn = blockIdx.x; round < a.all_tiles; round += gridDim.x, turn = (turn + a.turn) % gridDim.x) {
      const int index = round + turn;
      if (index >= a.all_tiles) continue;
      const Tile t = tile_of(a, index);
      const Problem& q = a.problem[t.problem];
      ptx::named_barrier(1 + group, 128);
#pragma unroll
      for (int i = thread; i < 64 * kRows; i += 128) {
        int left;
        places[i] = place_of(a, q, t.first + group * kRows * 64 + i, left);
        places[256 + i] = left;
      }
      if constexpr (kFold > 0) {
#pragma unroll
        for (int m = 0; m < kRows; ++m)
#pragma unroll
          for (int i = 0; i < kHalf; ++i) sums[m][i] = 0.0f;
      }
      int done = 0;       // steps since the accumulators were last begun anew
      int before = -1;  // the slot of the group before, which may still be read
      for (int r = 0; r < q.runs; ++r) {
        const int first = a.run[q.run + r].tap, taps = a.run[q.run + r].taps;
        for (int chunk = 0; chunk < chunks; ++chunk) {
          barrier_wait(full + slot, parity);
          const uint32_t base = ring_units + (slot * a.stage_bytes >> 4);
          uint64_t wd = w_descriptor | (base + (a.x_bytes >> 4));
          const uint64_t xd = x_descriptor | (base + group * kRows * 64);
          int add = done > 0, tap = 0;
          ptx::wgmma_fence();
          do {
            uint64_t at = xd + a.shift[first + tap];
            int s = 0;
            do {
#pragma unroll
              for (int m = 0; m < kRows; ++m) {
                if constexpr (kTriple) {
                  WgmmaF16<Columns>::run(part[m], at + 64 * m, wd, add);
                  WgmmaF16<Columns>::run(other[m], at + 64 * m, wd + Columns, add);
                  WgmmaF16<Columns>::run(other[m], at + 64 * m + a.range, wd, 1);
                } else {
                  WgmmaF16<2 * Columns>::run(part[m], at + 64 * m, wd, add);
                  WgmmaF16<Columns>::run(other[m], at + 64 * m + a.range, wd, add);
                }
              }
              add = 1;
              at += 4 * a.range;
              wd += 4 * Columns;
            } while (++s < a.steps);
          } while (++tap < taps);
          ptx::wgmma_commit();
          ptx::wgmma_wait<1>();
          if (before >= 0 && lane == 0) barrier_arrive(empty + before);
          before = slot;
          if (++slot == a.stages) slot = 0, parity ^= 1;
          done += taps * a.steps;
          if constexpr (kFold > 0) {
            const bool last = chunk + 1 == chunks;
            if (last && r + 1 == q.runs) continue;  // added below
            if (done + (last ? a.run[q.run + r + 1].taps : taps) * a.steps <= kFold) continue;
            ptx::wgmma_wait<0>();
            if (lane == 0) barrier_arrive(empty + before);
            before = -1;
            done = 0;
#pragma unroll
            for (int m = 0; m < kRows; ++m)
#pragma unroll
              for (int i = 0; i < kHalf; ++i) sums[m][i] += total(m, i);
          }
        }
      }
      ptx::wgmma_wait<0>();
      if (before >= 0 && lane == 0) barrier_arrive(empty + before);

      // Through shared memory, so that neighbours in a warp write neighbours in memory.
      float* to = out + t.image * a.image_out;
      const int volume = a.out[0] * a.out[1] * a.out[2];
#pragma unroll
      for (int m = 0; m < kRows; ++m) {
        ptx::named_barrier(1 + group, 128);
        const int row = 16 * (warp % 4) + lane / 4;
#pragma unroll
        for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int i = 4 * j + e;
            float value = done > 0 ? total(m, i) : 0.0f;
            if constexpr (kFold > 0) value += sums[m][i];
            staged[(8 * j + 2 * (lane % 4) + e % 2) * kPitch + row + 8 * (e / 2)] = value;
          }
        ptx::named_barrier(1 + group, 128);
        const int channel = t.column_tile * a.couts, most = min(a.couts, a.co - channel);
        const float* extra = bias ? bias + t.group * a.co + channel : nullptr;
        float* lines = to + int64_t(t.group * a.co + channel) * volume;
        const int* mine = places + 64 * m;
        if constexpr (OutStep > 1) {
          int place[2 * OutStep];
#pragma unroll
          for (int i = 0; i < 2 * OutStep; ++i) {
            const int e = lane + 32 * i, p = e / OutStep, phase = e % OutStep;
            place[i] = phase < mine[256 + p] ? mine[p] + phase : -1;
          }
#pragma unroll 2
          for (int c = warp % 4; c < most; c += 4) {
            float value[2 * OutStep];
#pragma unroll
            for (int i = 0; i < 2 * OutStep; ++i) {
              const int e = lane + 32 * i, column = a.phase[e % OutStep];
              value[i] = column >= 0 ? staged[(column * a.couts + c) * kPitch + e / OutStep] : 0.0f;
            }
            const float more = extra ? extra[c] : 0.0f;
            float* line = lines + int64_t(c) * volume;
#pragma unroll
            for (int i = 0; i < 2 * OutStep; ++i)
              if (place[i] >= 0) line[place[i]] = value[i] + more;
          }
        } else {
          write_pixels<Columns>(a.vector, staged, mine, lines, extra, most, volume, warp % 4, lane);
        }
      }
    }
  }
}

inline int processor_count() {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  return processors;
}

// Splits the input of `images` images (times groups) and the filters, and multiplies; the workspace then begins with the range flags.
template <int Columns, int OutStep, int Rows, bool Triple, int Fold>
int multiply_held(const Plan& p, int images, const float* x, const float* w, const float* bias, float* out, void* workspace,
                  cudaStream_t stream) {
  unsigned* flags = static_cast<unsigned*>(workspace);
  uint4* w_planes = static_cast<uint4*>(workspace) + kFlagUnits;
  uint4* x_planes = w_planes + p.w_units;
  cudaMemsetAsync(flags, 0, 256, stream);
  split_filter<<<264, 128, 0, stream>>>(p.filter, w, w_planes, flags);
  const int processors = processor_count();
  const int wanted = (p.input.total + kSplitThreads - 1) / kSplitThreads;
  const dim3 grid(std::max(1, std::min(wanted, processors * 32 / std::min(images, processors * 32) + 1)), images);
  if (p.input.folded)
    split_input<true><<<grid, kSplitThreads, 0, stream>>>(p.input, x, x_planes, flags);
  else
    split_input<false><<<grid, kSplitThreads, 0, stream>>>(p.input, x, x_planes, flags);
  auto* kernel = held<Columns, OutStep, Rows, Triple, Fold>;
  const int bytes = kHead + 2 * Columns * kPitch * 4 + p.product.stages * p.product.stage_bytes;
  const cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<std::min(processors, p.product.all_tiles), kProductThreads, bytes, stream>>>(p.product, x_planes, w_planes, bias, out);
  return int(cudaGetLastError());
}

// Whether `held` computes the plan with this accuracy.
template <int Columns, int OutStep, int Fold>
bool can_hold(const Plan& p) {
  return p.ok && p.columns == Columns && p.product.ostep[2] == OutStep && (Fold || longest_sum(p) <= kLongestSum);
}

// As launch_convolution, with `held` for `product` and the same workspace. Fold: at most kLongestSum; 0 where the whole sum is no
// longer, other forms take the plain kernel.
template <int Columns, int OutStep, int Rows, bool Triple, int Fold>
int launch_held(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  static_assert(Fold <= kLongestSum, "longer sums are less accurate than fp32");
  if (int64_t(f.images) * f.groups * f.co * f.out_volume() == 0) return 0;
  const Plan p = best_plan(f, Columns, Rows);
  if (!workspace || !can_hold<Columns, OutStep, Fold>(p)) return launch_direct(f, x, w, bias, out, nullptr, stream, Identity());
  const int state = multiply_held<Columns, OutStep, Rows, Triple, Fold>(p, f.images * f.groups, x, w, bias, out, workspace, stream);
  return state ? state : launch_direct(f, x, w, bias, out, static_cast<const unsigned*>(workspace), stream, Identity());
}

}  // namespace conv
}  // namespace warpsmith
