// Pooling of any windows along one, two or three axes, by way of shared memory.
//
// A block takes a band of the outputs: some rows (and slices) of one plane, a tile of columns where rows are long, or
// several small planes. It brings the inputs of the band into shared memory with bulk copies, in stretches as long as
// they lie next to each other; rows may begin anywhere. Of the input, only what windows of two bands share is read twice.
// A thread then computes outputs below each other: what a row gives is used for all of them.
//
// Windows of more than 512 elements that overlap little take a warp or a block for each output instead (`pool_wide`),
// which reads device memory directly.
//
// A form describes the windows as a type, so that the loops over a window are unrolled:
//   struct Shape {  // axes that are missing come first: kernel and stride 1, no padding
//     static constexpr int kernel[3] = {1, 3, 3}, stride[3] = {1, 2, 2}, padding[3] = {0, 1, 1}, dilation[3] = {1, 1, 1};
//     static constexpr bool counts_padding = true;  // in the number that an average is divided by
//     static constexpr int divisor = 0;             // of averages; 0: the number of elements
//     static constexpr bool rounds_up = false;      // `ceil_mode`: windows may reach beyond the padding
//   };
#pragma once
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/divisor.cuh>
#include <warpsmith/pool.cuh>

namespace warpsmith {
namespace bands {

constexpr int kFew = 264;          // blocks: with fewer, bands become smaller
constexpr int kEach = 48;          // elements that a stretch costs besides its own: pieces of cache lines, the request
constexpr int kMostBytes = 49000;  // of shared memory, without a request for more

enum Layout { STRETCH, SLICES, ROWS };  // one stretch of memory; one for each slice; one for each row of each slice

// What is known of the windows when the kernel is compiled.
template <typename S>
struct Known {
  static constexpr int K0 = S::kernel[0], K1 = S::kernel[1], K2 = S::kernel[2];
  static constexpr int S0 = S::stride[0], S1 = S::stride[1], S2 = S::stride[2];
  static constexpr int P0 = S::padding[0], P1 = S::padding[1], P2 = S::padding[2];
  static constexpr int D0 = S::dilation[0], D1 = S::dilation[1], D2 = S::dilation[2];
  static constexpr int E0 = (K0 - 1) * D0 + 1, E1 = (K1 - 1) * D1 + 1, E2 = (K2 - 1) * D2 + 1;  // extents of a window
  static constexpr bool flat = K0 == 1 && S0 == 1 && P0 == 0;          // slices have nothing to do with each other
  static constexpr bool line = flat && K1 == 1 && S1 == 1 && P1 == 0;  // nor have rows
  static constexpr bool cut = S::rounds_up || P0 > 0 || P1 > 0 || P2 > 0;  // windows may reach beyond the input
  static constexpr bool plain = !S::rounds_up && S::divisor == 0 && (S::counts_padding || !cut);  // same number for all
  static constexpr int64_t volume = int64_t(K0) * K1 * K2;
  // Outputs below each other that a thread computes. Slices leave room for fewer rows.
  static constexpr int R = S1 >= E1 || E1 > 64 ? 1 : S1 == 1 ? (flat && K1 >= 3 ? 8 : 4) : S1 == 2 && flat ? 4 : 2;
  static constexpr bool wide = volume > 512 && 2 * int64_t(S0) * S1 * S2 >= volume;
};

struct Plan {
  int64_t planes, total;  // planes (volumes); elements of the input
  int in[3], out[3];
  int band[3];             // outputs of a block along the axes
  int group;               // planes of a block
  int pitch;               // elements from one stretch to the next in shared memory
  int nothing;             // where shared memory has a row for what lies beside the input
  Layout layout;
  unsigned bytes;
  int64_t grid;
  int64_t loaded;  // elements that all blocks bring in, about; 0: no band fits
  Divisor columns, rows, slices;  // by the band's columns, groups of rows and slices
  Divisor across, down, deep;     // by the blocks along the axes
};

// Keeps the compiler from computing a value again where it is used.
__device__ __forceinline__ void keep(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void keep(int64_t& value) { asm volatile("" : "+l"(value)); }

// One over the number that an average is divided by.
template <typename S>
__device__ __forceinline__ float weight(const int (&in)[3], int oz, int oy, int ox) {
  using W = Known<S>;
  if constexpr (W::plain) {
    return 1.0f / float(W::volume);
  } else if constexpr (S::divisor != 0) {
    return 1.0f / float(S::divisor);
  } else {
    const int at[3] = {oz, oy, ox};
    int padded = 1, inside = 1;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      constexpr int kernels[3] = {W::K0, W::K1, W::K2}, strides[3] = {W::S0, W::S1, W::S2};
      constexpr int paddings[3] = {W::P0, W::P1, W::P2};
      const int from = at[a] * strides[a] - paddings[a];
      padded *= min(kernels[a], in[a] + paddings[a] - from);
      inside *= min(from + kernels[a], in[a]) - max(from, 0);
    }
    return 1.0f / float(S::counts_padding ? padded : inside);
  }
}

template <typename P, typename S, Layout LAYOUT, int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    pool_band(const float* __restrict__ x, float* __restrict__ out, const __grid_constant__ Plan a) {
  using W = Known<S>;
  constexpr int R = W::R;
  constexpr int TALL = R == 1 ? W::K1 : (R - 1) * W::S1 + W::E1, APART = R == 1 ? W::D1 : 1;  // rows that a thread reads
  extern __shared__ float4 packs[];
  float* const memory = reinterpret_cast<float*>(packs);
  __shared__ uint64_t arrived;

  // The outputs of the block, and the inputs that they need: [lo, lo + some) along each axis.
  unsigned rest = blockIdx.x;
  int first[3] = {0, 0, 0};
  auto take = [&](int axis, const Divisor& blocks) {
    const unsigned next = blocks.quotient(rest);
    first[axis] = int(rest - next * blocks.by) * a.band[axis], rest = next;
  };
  if constexpr (LAYOUT == ROWS) take(2, a.across);
  if constexpr (!W::line) take(1, a.down);
  if constexpr (!W::flat) take(0, a.deep);
  const int64_t plane = int64_t(rest) * a.group;
  const int planes = int(min(int64_t(a.group), a.planes - plane));
  constexpr int strides[3] = {W::S0, W::S1, W::S2}, paddings[3] = {W::P0, W::P1, W::P2};
  constexpr int extents[3] = {W::E0, W::E1, W::E2};
  int lo[3], some[3], mine[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    mine[d] = min(a.band[d], a.out[d] - first[d]);
    lo[d] = max(first[d] * strides[d] - paddings[d], 0);
    const int hi = min((first[d] + mine[d] - 1) * strides[d] - paddings[d] + extents[d], a.in[d]);
    some[d] = max(hi - lo[d], 0);
  }
  if constexpr (LAYOUT != ROWS) lo[2] = 0, some[2] = a.in[2];  // whole rows
  const int width = a.in[2];
  const int64_t slice = int64_t(a.in[1]) * width;
  const int64_t start = (plane * a.in[0] + lo[0]) * slice + int64_t(lo[1]) * width + lo[2];

  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      barrier_init(&arrived, 32);
      barriers_initialised();
    }
    __syncwarp();
    int pieces = 1;
    int64_t length = some[2];
    if constexpr (LAYOUT == ROWS) pieces = some[0] * some[1];
    if constexpr (LAYOUT == SLICES) pieces = some[0], length = int64_t(some[1]) * width;
    if constexpr (LAYOUT == STRETCH)
      length = int64_t((planes - 1) * a.in[0] + some[0] - 1) * slice + int64_t(some[1]) * width;
    if (some[0] == 0 || some[1] == 0 || some[2] == 0) pieces = 0;
    auto place = [&](int piece) -> int64_t {  // of the first element of a stretch
      if constexpr (LAYOUT == ROWS) return start + piece / some[1] * slice + int64_t(piece % some[1]) * width;
      return start + piece * slice;
    };
    // Stretches begin and end at multiples of four elements. Elements behind the last whole pack of the tensor are
    // loaded one by one.
    const int64_t whole = a.total & ~int64_t(3);
    auto begin_of = [](int64_t from) { return from & ~int64_t(3); };
    auto bytes_of = [&](int64_t from) {
      return unsigned(max(min((from + length + 3) & ~int64_t(3), whole) - begin_of(from), int64_t(0))) * 4;
    };
    unsigned bytes = 0;
#pragma unroll 1
    for (int piece = threadIdx.x; piece < pieces; piece += 32) bytes += bytes_of(place(piece));
    barrier_expect(&arrived, bytes);
#pragma unroll 1
    for (int piece = threadIdx.x; piece < pieces; piece += 32) {
      const int64_t from = place(piece), begin = begin_of(from);
      float* const to = memory + piece * a.pitch;
      if (const unsigned some_bytes = bytes_of(from); some_bytes > 0) bulk_copy(to, x + begin, some_bytes, &arrived);
#pragma unroll 1
      for (int64_t e = max(from, whole); e < from + length; ++e) to[e - begin] = __ldg(x + e);
    }
  } else if constexpr (W::cut && !W::line) {
    // A row for what lies above and below the input.
    for (int c = threadIdx.x - 32; c < some[2]; c += THREADS - 32) memory[a.nothing + c] = P::identity();
  }
  __syncthreads();
  barrier_wait(&arrived, 0);

  const unsigned low = unsigned(start), high = unsigned(slice);  // the last two bits say how stretches are shifted
  // Where slice z of plane p begins, and row y of it, both counted from what is here.
  auto slice_at = [&](int p, int z) -> int {
    if constexpr (LAYOUT == STRETCH) return int((low & 3u) + (unsigned(p) * unsigned(a.in[0]) + unsigned(z)) * high);
    if constexpr (LAYOUT == SLICES) return z * a.pitch + int((low + unsigned(z) * high) & 3u);
    return z * some[1] * a.pitch;
  };
  auto row_at = [&](int at, int z, int y) -> int {
    if constexpr (LAYOUT != ROWS) return at + y * width;
    return at + y * a.pitch + int((low + unsigned(z) * high + unsigned(y) * unsigned(width)) & 3u);
  };
  const int64_t out_slice = int64_t(a.out[1]) * a.out[2];
  int64_t target = (plane * a.out[0] + first[0]) * out_slice + int64_t(first[1]) * a.out[2] + first[2];
  int out_plane = LAYOUT == STRETCH ? int(a.out[0] * out_slice) : 0;  // there is one plane where this may be too long
  keep(target), keep(out_plane);

  const int items = planes * int(a.slices.by * a.rows.by * a.columns.by);
#pragma unroll 1
  for (int item = threadIdx.x; item < items; item += THREADS) {
    unsigned left = a.columns.quotient(item);
    const int ox = int(item - left * a.columns.by);  // of the block's outputs, as oy and oz
    int oy = 0, oz = 0;
    if constexpr (!W::line) {
      const unsigned next = a.rows.quotient(left);
      oy = int(left - next * a.rows.by) * R, left = next;
    }
    if constexpr (!W::flat) {
      const unsigned next = a.slices.quotient(left);
      oz = int(left - next * a.slices.by), left = next;
    }
    const int p = int(left);
    if (ox >= mine[2] || oy >= mine[1] || oz >= mine[0]) continue;
    const int z0 = (first[0] + oz) * W::S0 - W::P0 - lo[0], y0 = (first[1] + oy) * W::S1 - W::P1 - lo[1];
    const int x0 = (first[2] + ox) * W::S2 - W::P2 - lo[2];
    // Lanes whose columns lie in the same bank of shared memory begin with different columns of their windows.
    constexpr int SAME = W::S2 % 32 == 0 ? 32 : W::S2 % 16 == 0 ? 16 : W::S2 % 8 == 0 ? 8 : W::S2 % 4 == 0 ? 4 : 1;
    constexpr bool TURNED = SAME > 1 && W::K2 > 1 && W::K2 <= 16;
    const int turn = TURNED ? (ox / (32 / SAME)) % (SAME < W::K2 ? SAME : W::K2) : 0;
    float acc[R];
#pragma unroll
    for (int r = 0; r < R; ++r) acc[r] = P::identity();
#pragma unroll(W::volume <= 16 ? W::K0 : 1)
    for (int k = 0; k < W::K0; ++k) {
      const int z = z0 + k * W::D0;
      if (W::cut && !W::flat && unsigned(z) >= unsigned(some[0])) continue;
      int origin = slice_at(p, z) + x0;
      keep(origin);
#pragma unroll(R > 1 || W::K1 * W::K2 <= 256 ? TALL : 1)
      for (int n = 0; n < TALL; ++n) {
        const int i = n * APART;
        bool used = R == 1;
#pragma unroll
        for (int r = 0; r < R; ++r) used |= i >= r * W::S1 && (i - r * W::S1) % W::D1 == 0 && i - r * W::S1 < W::E1;
        if (!used) continue;
        int at;
        if constexpr (!W::cut)
          at = row_at(origin, z, R == 1 ? y0 + i : min(y0 + i, some[1] - 1));  // the last rows may be those of no output
        else if constexpr (W::line)
          at = row_at(origin, z, 0);
        else
          at = unsigned(y0 + i) < unsigned(some[1]) ? row_at(origin, z, y0 + i) : a.nothing + x0;
        if constexpr (R > 1) keep(at);
        const float* const row = memory + at;
        auto element = [&](int j) {
          if constexpr (TURNED) j = j + turn < W::K2 ? j + turn : j + turn - W::K2;
          return !W::cut || unsigned(x0 + j * W::D2) < unsigned(some[2]) ? row[j * W::D2] : P::identity();
        };
        float sum = P::identity();
        constexpr int STEP = W::K2 <= 16 ? W::K2 : 8, LAST = W::K2 % STEP;
#pragma unroll 1
        for (int j = 0; j < W::K2 - LAST; j += STEP) {
          float v[STEP];
#pragma unroll
          for (int e = 0; e < STEP; ++e) v[e] = element(j + e);
          sum = STEP == W::K2 ? tree<P, STEP>(v) : P::apply(sum, tree<P, STEP>(v));
        }
        if constexpr (LAST > 0) {
          float v[LAST];
#pragma unroll
          for (int e = 0; e < LAST; ++e) v[e] = element(W::K2 - LAST + e);
          sum = P::apply(sum, tree<P, LAST>(v));
        }
#pragma unroll
        for (int r = 0; r < R; ++r)
          if (R == 1 || (i >= r * W::S1 && (i - r * W::S1) % W::D1 == 0 && i - r * W::S1 < W::E1))
            acc[r] = W::K0 == 1 && i == r * W::S1 ? sum : P::apply(acc[r], sum);
      }
    }
    float* const to = out + (target + int64_t(oy) * a.out[2] + (W::flat ? 0 : oz * out_slice) + p * out_plane + ox);
#pragma unroll
    for (int r = 0; r < R; ++r)
      if (R == 1 || oy + r < mine[1])
        put(to + int64_t(r) * a.out[2],
            P::finish(acc[r], weight<S>(a.in, first[0] + oz, first[1] + oy + r, first[2] + ox)));
  }
}

// TEAM threads, a warp or a block, for each output; neighbouring threads read neighbouring elements.
template <typename P, typename S, int TEAM>
__global__ void __launch_bounds__(256) pool_wide(const float* __restrict__ x, float* __restrict__ out,
                                                 const __grid_constant__ Plan a) {
  using W = Known<S>;
  constexpr int TOGETHER = 8;  // loads of a thread that are on their way
  __shared__ float found[8];
  const int member = threadIdx.x % TEAM;
  const int64_t n = a.planes * a.out[0] * a.out[1] * a.out[2];
  const int64_t step = int64_t(gridDim.x) * (256 / TEAM);
  for (int64_t i = int64_t(blockIdx.x) * (256 / TEAM) + threadIdx.x / TEAM; i < n; i += step) {
    int64_t rest;
    int ox, oy, oz;
    if (n < int64_t(1) << 31) {
      const unsigned rows = a.across.quotient(unsigned(i)), slices = a.down.quotient(rows);
      const unsigned volumes = a.deep.quotient(slices);
      ox = int(unsigned(i) - rows * a.across.by), oy = int(rows - slices * a.down.by), oz = int(slices - volumes * a.deep.by);
      rest = volumes;
    } else {
      ox = int(i % a.out[2]), rest = i / a.out[2];
      oy = int(rest % a.out[1]), rest /= a.out[1];
      oz = int(rest % a.out[0]), rest /= a.out[0];
    }
    const int z0 = oz * W::S0 - W::P0, y0 = oy * W::S1 - W::P1, x0 = ox * W::S2 - W::P2;
    const float* const from = x + rest * a.in[0] * a.in[1] * a.in[2];
    float acc = P::identity();
    for (int64_t done = 0; done < W::volume; done += TEAM * TOGETHER) {
      float v[TOGETHER];
#pragma unroll
      for (int t = 0; t < TOGETHER; ++t) {
        const int64_t e = done + t * TEAM + member;
        v[t] = P::identity();
        if (e < W::volume) {
          const unsigned place = unsigned(e), line = place / unsigned(W::K2);
          const int z = z0 + int(line / unsigned(W::K1)) * W::D0, y = y0 + int(line % unsigned(W::K1)) * W::D1;
          const int at = x0 + int(place % unsigned(W::K2)) * W::D2;
          const bool rows = unsigned(z) < unsigned(a.in[0]) && unsigned(y) < unsigned(a.in[1]);
          if (!W::cut || (rows && unsigned(at) < unsigned(a.in[2])))
            v[t] = __ldg(from + (int64_t(z) * a.in[1] + y) * a.in[2] + at);
        }
      }
      acc = P::apply(acc, tree<P, TOGETHER>(v));
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) acc = P::apply(acc, __shfl_xor_sync(kAll, acc, step));
    if constexpr (TEAM > 32) {
      if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = acc;
      __syncthreads();
      acc = tree<P, 8>(found);
      __syncthreads();
    }
    if (member == 0) out[i] = P::finish(acc, weight<S>(a.in, oz, oy, ox));
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// What blocks take.

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// `count` in parts of at most `part`, which are about as long as each other and multiples of `unit`, if `part` is one.
inline int64_t even(int64_t count, int64_t part, int64_t unit) {
  if (part >= count) return count;
  const int64_t each = ceil_div(count, ceil_div(count, part));
  return part % unit ? each : least(ceil_div(each, unit) * unit, count);
}

template <typename S>
struct Planner {
  using W = Known<S>;
  int64_t planes;
  int64_t in[3], out[3];

  // Elements along an axis that neighbouring outputs need.
  int64_t reach(int axis, int64_t outputs) const {
    constexpr int64_t strides[3] = {W::S0, W::S1, W::S2}, extents[3] = {W::E0, W::E1, W::E2};
    return least((outputs - 1) * strides[axis] + extents[axis], in[axis]);
  }
  // As many outputs as `room` elements along an axis are enough for; at least as many as there are: all of them.
  int64_t fit(int axis, int64_t room) const {
    constexpr int64_t strides[3] = {W::S0, W::S1, W::S2}, extents[3] = {W::E0, W::E1, W::E2};
    if (room >= in[axis]) return out[axis];
    return room < extents[axis] ? 0 : least((room - extents[axis]) / strides[axis] + 1, out[axis]);
  }
  Plan made(int64_t nz, int64_t ny, int64_t nx, int64_t group) const {
    Plan p{};
    const int64_t band[3] = {nz, ny, nx};
    int64_t blocks = ceil_div(planes, group);
    for (int d = 0; d < 3; ++d) {
      p.in[d] = int(in[d]), p.out[d] = int(out[d]), p.band[d] = int(band[d]);
      blocks *= ceil_div(out[d], band[d]);
    }
    const int64_t slices = reach(0, nz), rows = reach(1, ny);
    p.planes = planes, p.total = planes * in[0] * in[1] * in[2], p.group = int(group), p.grid = blocks;
    int64_t elements;
    if (nx < out[2]) {
      p.layout = ROWS, p.pitch = int((reach(2, nx) + 9) / 4 * 4);
      elements = slices * rows * p.pitch;
      p.loaded = blocks * slices * rows * (p.pitch + kEach);
    } else if (ny < out[1] && slices > 1) {
      p.layout = SLICES, p.pitch = int((rows * in[2] + 9) / 4 * 4);
      elements = slices * p.pitch, p.loaded = blocks * slices * (p.pitch + kEach);
    } else {
      const int64_t length = group > 1 ? group * in[0] * in[1] * in[2]
                             : ny < out[1] ? rows * in[2]
                                           : slices * in[1] * in[2];
      p.layout = STRETCH, p.pitch = 0;
      elements = length + 9, p.loaded = blocks * (length + kEach);
    }
    p.nothing = int(elements);
    if (W::cut && !W::line) elements += p.layout == ROWS ? reach(2, nx) : in[2];
    p.bytes = unsigned(ceil_div(elements, 4) * 16);
    return p;
  }
  // The plan with its divisors, which take some time to find.
  static Plan finished(Plan p) {
    auto along = [&](int axis) { return Divisor(unsigned(ceil_div(p.out[axis], p.band[axis]))); };
    p.deep = along(0), p.down = along(1), p.across = along(2);
    p.slices = Divisor(unsigned(p.band[0])), p.columns = Divisor(unsigned(p.band[2]));
    p.rows = Divisor(unsigned(ceil_div(p.band[1], W::R)));
    return p;
  }
  // The bands that bring the least in, of those that fit into so many elements of shared memory.
  Plan best(int64_t room) const {
    const int64_t volume = in[0] * in[1] * in[2];
    int64_t nz = 0, ny = 0, nx = out[2];
    double least_cost = 0;
    Plan found{};
    auto consider = [&](int64_t z, int64_t y, int64_t c) {
      const Plan p = made(z, y, c, 1);
      // A group of rows costs the same whether all of them are needed or not.
      const double cost = double(p.loaded) * (1 + double(ceil_div(y, W::R) * W::R) / double(y));
      if (int64_t(p.bytes) <= room * 4 && (found.loaded == 0 || cost < least_cost))
        found = p, least_cost = cost, nz = z, ny = y, nx = c;
    };
    auto rows_of = [&](int64_t rows) {  // whole groups of rows, of about the same number
      if (rows < out[1] && rows > W::R) rows -= rows % W::R;
      return even(out[1], rows, W::R);
    };
    for (int64_t z = 1; z <= least(out[0], 64); ++z) {
      const int64_t slices = reach(0, z), rows = fit(1, (room / slices - 12) / in[2]);
      if (room / slices < 13 || rows < 1) break;
      consider(z, rows_of(rows), out[2]);
    }
    for (int64_t z = 1; z <= least(out[0], 4); z *= 2)
      for (int64_t y = least(8 * W::R, out[1]); y > 0; y /= 2) {
        const int64_t across = room / (reach(0, z) * reach(1, y)) - 12;
        int64_t columns = across > 0 ? fit(2, across) : 0;
        if (columns > 32 && columns < out[2]) columns -= columns % 32;
        if (columns > 0) consider(z, y, even(out[2], columns, columns % 32 ? 1 : 32));
      }
    if (found.loaded == 0) return found;
    if (nz == out[0] && ny == out[1] && nx == out[2]) {
      const int64_t group = least((room - 12 - (W::cut && !W::line ? in[2] : 0)) / volume, planes / (2 * kFew));
      if (group > 1) return made(nz, ny, nx, group);
    }
    // Smaller bands where there would be few blocks.
    while (found.grid < kFew) {
      if (ny > W::R) ny = ceil_div(ceil_div(ny, 2), W::R) * W::R;
      else if (nz > 1) nz = ceil_div(nz, 2);
      else if (W::line && nx > 256) nx = ceil_div(ceil_div(nx, 2), 32) * 32;
      else break;
      const Plan smaller = made(nz, ny, nx, 1);
      if (int64_t(smaller.bytes) > room * 4) break;
      found = smaller;
    }
    return found;
  }
};

}  // namespace bands

// BYTES: shared memory of a block, about; more where this saves much of what is read twice.
template <typename P, typename S, int THREADS, int BYTES>
int pool_bands(const float* x, float* out, int64_t planes, int64_t depth, int64_t height, int64_t width,
               int64_t out_depth, int64_t out_height, int64_t out_width, void* stream) {
  using W = bands::Known<S>;
  static_assert(BYTES >= 4096 && BYTES <= bands::kMostBytes, "no such block");
  if (planes <= 0 || out_depth <= 0 || out_height <= 0 || out_width <= 0) return 0;
  const int64_t furthest[3] = {(out_depth - 1) * W::S0 + W::E0, (out_height - 1) * W::S1 + W::E1,
                               (out_width - 1) * W::S2 + W::E2};
  const bool inside = furthest[0] <= depth && furthest[1] <= height && furthest[2] <= width;
  constexpr int64_t kLong = int64_t(1) << 29;
  const bool known = (W::cut || inside) && depth < kLong && height < kLong && width < kLong && furthest[0] < kLong &&
                     furthest[1] < kLong && furthest[2] < kLong && W::volume < kLong;
  const auto s = static_cast<cudaStream_t>(stream);
  if (known) {
    bands::Planner<S> planner{planes, {depth, height, width}, {out_depth, out_height, out_width}};
    if (W::flat) planner.planes *= depth, planner.in[0] = planner.out[0] = 1;
    if (W::line) planner.planes *= height, planner.in[1] = planner.out[1] = 1;
    if constexpr (W::wide) {
      const bands::Plan plan = planner.finished(planner.made(1, 1, 1, 1));
      const int64_t outputs = planner.planes * planner.out[0] * planner.out[1] * planner.out[2];
      constexpr int64_t kGrid = 1 << 20;
      if (W::volume >= 1024 && outputs < 132 * 64 * (W::volume / 1024))
        bands::pool_wide<P, S, 256><<<unsigned(bands::least(outputs, kGrid)), 256, 0, s>>>(x, out, plan);
      else
        bands::pool_wide<P, S, 32><<<unsigned(bands::least(ceil_div(outputs, 8), kGrid)), 256, 0, s>>>(x, out, plan);
      return int(cudaGetLastError());
    } else {
      bands::Plan plan = planner.best(BYTES / 4);
      const bands::Plan larger = planner.best(bands::kMostBytes / 4);
      if (larger.loaded > 0 && (plan.loaded == 0 || larger.loaded * 5 < plan.loaded * 4)) plan = larger;
      if (plan.loaded > 0 && plan.grid < (int64_t(1) << 31)) {
        plan = planner.finished(plan);
        const unsigned grid = unsigned(plan.grid), bytes = plan.bytes;
        if (plan.layout == bands::STRETCH)
          bands::pool_band<P, S, bands::STRETCH, THREADS><<<grid, THREADS, bytes, s>>>(x, out, plan);
        else if (plan.layout == bands::SLICES)
          bands::pool_band<P, S, bands::SLICES, THREADS><<<grid, THREADS, bytes, s>>>(x, out, plan);
        else
          bands::pool_band<P, S, bands::ROWS, THREADS><<<grid, THREADS, bytes, s>>>(x, out, plan);
        return int(cudaGetLastError());
      }
    }
  }
  constexpr int64_t kMost = (int64_t(1) << 31) - 1;  // extents are int from here on
  if (depth > kMost || height > kMost || width > kMost) return int(cudaErrorInvalidValue);
  return pool_windows<P>(x, out,
                         {planes,
                          {int(depth), int(height), int(width)},
                          {int(out_depth), int(out_height), int(out_width)},
                          {W::K0, W::K1, W::K2},
                          {W::S0, W::S1, W::S2},
                          {W::P0, W::P1, W::P2},
                          {W::D0, W::D1, W::D2},
                          S::counts_padding,
                          S::divisor},
                         stream);
}

}  // namespace warpsmith
