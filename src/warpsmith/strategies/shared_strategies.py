"""Strategies that apply to the CPU and to GPUs alike. One entry each; `catalogue` chooses among them."""

from __future__ import annotations

from warpsmith.model.strategy import Strategy, StrategyParameter

PLUGINS = (
    Strategy(
        name="batched-small-matrices",
        title="A warp or block per small matrix",
        backends=("cuda", "cpu"),
        zones=("memory", "latency", "middle"),
        families=("matmul",),
        advice=(
            "With many products of sides up to 64, do not tile each one: give a whole product to one warp (sides up "
            "to 16) or one block (up to 64), load both matrices once into shared memory or registers with "
            "compile-time sizes, and compute with everything on chip. Put several small products into one block, so "
            "that it has 128 threads or more. On the CPU give whole products to threads, and keep the sums of a row "
            "in vector registers."
        ),
        effect=(
            "Such batches are memory-bound: each matrix read once is the limit, 3-10 times over a general tiled "
            "kernel whose 128 x 128 tiles are mostly empty. Not for sides above about 100."
        ),
        example="""\
__global__ void multiply16(const float* a, const float* b, float* c) {  // blockDim (16, 16): one product per block
  __shared__ float sa[16][17], sb[16][17];
  long long base = (long long)blockIdx.x * 256 + threadIdx.y * 16 + threadIdx.x;
  sa[threadIdx.y][threadIdx.x] = a[base], sb[threadIdx.y][threadIdx.x] = b[base];
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < 16; ++k) sum += sa[threadIdx.y][k] * sb[k][threadIdx.x];
  c[base] = sum;
}
""",
    ),
    Strategy(
        name="branchless",
        title="Select instead of branching",
        backends=("cuda", "cpu"),
        zones=("compute", "middle", "memory"),
        families=(),
        advice=(
            "Write conditions on data as selections: fmaxf, fminf, the conditional operator, a multiplication by 0 or "
            "1, a mask. Take bounds tests out of the main loop: run it over whole tiles, and handle the rest once at "
            "the end. Where work differs by kind, arrange it so that all lanes of a warp (all elements of a vector on "
            "the CPU) take the same side."
        ),
        effect=(
            "On the CPU it is what lets a loop vectorise at all: 4 to 16 times. On a GPU 1.1-2 times where lanes "
            "diverge on data with long sides; short conditionals are predicated by the compiler already. Do not "
            "evaluate an expensive side for all where whole warps could skip it."
        ),
        example="""\
inline void leaky_relu(const float* x, float* out, long n, float slope) {
#pragma omp simd
  for (long i = 0; i < n; ++i) out[i] = x[i] * (x[i] > 0.0f ? 1.0f : slope);
}
""",
    ),
    Strategy(
        name="constant-folding",
        title="Make fixed sizes compile-time constants",
        backends=("cuda", "cpu"),
        zones=(),
        families=(),
        advice=(
            "Use the constants of namespace task (axes that never change, numbers of the operator) as template "
            "arguments, array extents and loop bounds, so that loops unroll, divisions become multiplications and "
            "tail tests vanish. Where an axis takes a few known values, make the kernel a template over it and choose "
            "in launch, with a general version for any other value. Compute scale factors such as 1.0f / cols once on "
            "the host."
        ),
        effect=(
            "5-30 % in kernels with short inner loops or index arithmetic (convolution windows, small matrices, "
            "multi-dimensional indices), because unrolled loops keep their data in registers. Next to nothing for "
            "long streaming loops. Each instance costs compile time and code size."
        ),
        example="""\
template <int COLS> __global__ void row_sum(const float* x, float* out) {
  float v[COLS];  // in registers, because every index below is known
  for (int i = 0; i < COLS; ++i) v[i] = x[(long long)threadIdx.x * COLS + i];
  float sum = 0.0f;
  for (int i = 0; i < COLS; ++i) sum += v[i];
  out[threadIdx.x] = sum;
}
// Host: if (cols == 8) row_sum<8><<<...>>>(x, out); else if (cols == 16) row_sum<16><<<...>>>(x, out); else general...
""",
    ),
    Strategy(
        name="direct-convolution",
        title="Direct convolution in registers",
        backends=("cuda", "cpu"),
        zones=("memory", "middle", "compute"),
        families=("convolution",),
        advice=(
            "Let each thread (on the CPU: each vector) compute a strip of neighbouring outputs of one channel, 4 to 8 "
            "of them, with the window loops unrolled by compile-time sizes: an input loaded once serves all windows "
            "it lies in, from a register. Weights are read once per strip, from shared memory or as one broadcast. On "
            "the CPU vectorise along the last axis and run outer loops over output channels in parallel; treat the "
            "borders apart from the middle."
        ),
        effect=(
            "The best form for depthwise and grouped convolutions, for few channels (an RGB input), and on the CPU: "
            "2-4 times over one output per thread. For many channels on both sides a (implicit) matrix product reuses "
            "more and wins."
        ),
        example="""\
template <int TAPS, int STRIP> __device__ void strip(const float* x, const float* weight, float* out) {
  float in[STRIP + TAPS - 1];
  for (int i = 0; i < STRIP + TAPS - 1; ++i) in[i] = x[i];
  for (int o = 0; o < STRIP; ++o) {
    float sum = 0.0f;
    for (int t = 0; t < TAPS; ++t) sum += weight[t] * in[o + t];
    out[o] = sum;
  }
}
""",
    ),
    Strategy(
        name="flash-attention-tiling",
        title="Attention tile by tile",
        backends=("cuda", "cpu", "triton"),
        zones=("memory", "middle", "compute"),
        families=("attention",),
        advice=(
            "Never write the score matrix. Keep a tile of queries on chip and walk over tiles of keys and values: "
            "scores of the tile, running row maximum, correction of the earlier sums and outputs by exp(old maximum - "
            "new maximum), then add this tile's part. Divide by the row sum once at the end. Fold the scale (times "
            "log2 e, with exp2f) into the queries. With a causal mask skip tiles that are wholly masked. Tiles of 64 "
            "x 64 or 128 x 64; on the CPU one thread per head and query tile."
        ),
        effect=(
            "Traffic falls from quadratic to linear in the sequence length: 2-8 times for 1024 tokens and more, and "
            "no workspace. Under about 128 tokens there is little to save. The matrix products inside decide the "
            "rest: they need register tiles, or tensor cores where the precision class allows them."
        ),
        example="""\
struct Row { float largest = -INFINITY, sum = 0.0f; };
__device__ void absorb(Row& row, float* acc, int width, float score, const float* value) {
  float largest = fmaxf(row.largest, score);
  float keep = expf(row.largest - largest), weight = expf(score - largest);
  row.sum = row.sum * keep + weight;
  for (int i = 0; i < width; ++i) acc[i] = acc[i] * keep + weight * value[i];
  row.largest = largest;  // at the end: acc[i] / row.sum
}
""",
    ),
    Strategy(
        name="halo-tiles",
        title="Tiles with a halo for windows",
        backends=("cuda", "cpu"),
        zones=("memory", "middle"),
        families=("convolution", "pooling"),
        advice=(
            "Give a block an output tile (32 x 8, say) and load the input it needs, the tile plus a rim of (window - "
            "1) * dilation elements, once into shared memory, with zeros (or -infinity for max pooling) outside the "
            "image. After one synchronisation every window reads shared memory only. For several input channels loop "
            "over them with two buffers. On the CPU do the same by keeping the few rows of a window in the "
            "first-level cache."
        ),
        effect=(
            "A k x k window read from global memory asks for each input k * k times; caches catch much of it, so "
            "expect 1.3-3 times for 3 x 3 to 7 x 7 windows with stride 1. Nothing for 1 x 1 windows or where stride "
            "equals the window: then no input is used twice."
        ),
        example="""\
__global__ void max3x3(const float* x, float* out, int h, int w) {  // blockDim (32, 8), stride 1, padding 1
  __shared__ float tile[10][34];
  int left = blockIdx.x * 32 - 1, top = blockIdx.y * 8 - 1, me = threadIdx.y * 32 + threadIdx.x;
  for (int i = me; i < 340; i += 256) {
    int r = top + i / 34, c = left + i % 34;
    tile[i / 34][i % 34] = r >= 0 && r < h && c >= 0 && c < w ? x[r * w + c] : -INFINITY;
  }
  __syncthreads();
  float best = -INFINITY;
  for (int i = 0; i < 9; ++i) best = fmaxf(best, tile[threadIdx.y + i / 3][threadIdx.x + i % 3]);
  if (top + 1 + threadIdx.y < h && left + 1 + threadIdx.x < w)
    out[(top + 1 + threadIdx.y) * w + left + 1 + threadIdx.x] = best; }
""",
    ),
    Strategy(
        name="kernel-fusion",
        title="One kernel for the whole chain",
        backends=("cuda", "cpu", "triton"),
        zones=("memory", "latency"),
        families=(),
        advice=(
            "Do the whole chain of operations in one kernel (on the CPU: in one loop): load each input element once, "
            "keep everything in between in registers, store each result once. Where a reduction stands in the middle "
            "of the chain, give one block (or warp, or thread on the CPU) the whole row, so that what comes after the "
            "reduction still finds the row in registers, shared memory or cache. Broadcast vectors (bias, scale) are "
            "read inside the same loop."
        ),
        effect=(
            "Removes a write and a read of the intermediate tensor for every pair of operations fused: a chain of k "
            "element-wise operations becomes up to k times faster where memory decides, and saves k - 1 launches (2-5 "
            "us each) where the launch decides. No gain across a full reduction that every later element waits for, "
            "nor where the fused code spills registers."
        ),
        example="""\
__global__ void bias_gelu(const float* x, const float* bias, float* out, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i] + bias[i % cols];                          // never stored
  out[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
}
""",
    ),
    Strategy(
        name="one-pass-variance",
        title="Mean and variance in one pass",
        backends=("cuda", "cpu"),
        zones=("memory", "middle"),
        families=("row_reduction", "normalisation"),
        advice=(
            "Read the row once for both moments. Subtract a value close to the mean first (the row's first element "
            "will do) and sum the differences and their squares, or use Welford's update per thread and Chan's "
            "formula to merge threads. Never use E[x^2] - E[x]^2 on raw values: it cancels where the mean is large, "
            "and fails the error check. Where the row fits registers or shared memory, two passes over the copy on "
            "chip are better still."
        ),
        effect=(
            "Saves one of three readings of the row: about 1.3 times for norms over rows too long to stay on chip. "
            "Nothing where the row is kept on chip between the passes."
        ),
        example="""\
struct Moments { float count, mean, m2; };
__host__ __device__ inline Moments merge(Moments a, Moments b) {  // Chan's formula; count must not be 0 in both
  float count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * b.count / count, a.m2 + b.m2 + delta * delta * a.count * b.count / count};
}
__host__ __device__ inline float variance(Moments m) { return m.m2 / m.count; }
""",
    ),
    Strategy(
        name="online-softmax",
        title="Maximum and sum of exponentials in one pass",
        backends=("cuda", "cpu"),
        zones=("memory",),
        families=("row_reduction",),
        advice=(
            "Keep a running maximum and a running sum of exponentials relative to it; when the maximum grows, "
            "scale the sum by the exponential of the difference. Merge partial results the same way. That makes "
            "two passes (statistics, output) out of three."
        ),
        effect=(
            "Up to a third less traffic where the row does not fit into registers or a near cache. A few more "
            "exponentials; no gain where the row is kept on chip."
        ),
        example="""\
const float next = fmaxf(most, v);
sum = sum * expf(most - next) + expf(v - next);
most = next;
""",
    ),
    Strategy(
        name="register-tile",
        title="Compute a small tile of outputs per thread",
        backends=("cuda", "cpu"),
        zones=("compute", "middle"),
        families=("matmul",),
        advice=(
            "Let each thread (each innermost kernel on a CPU) keep a tile of 8 by 8 or 16 by 8 sums (8 rows by two "
            "vectors) in registers: load one column of A and one row of B, then do all products between them."
        ),
        effect=(
            "Turns 2 loads per product into 16 loads per 64 products: the step that makes a matrix product bound "
            "by arithmetic. Needs about a hundred registers; 16 by 8 sums need two hundred, and are 5 % faster "
            "where there are tiles of 256 by 128 for every multiprocessor."
        ),
        example="""\
for (int i = 0; i < TM; ++i)
  for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
""",
        parameters=(StrategyParameter("rows", ("8", "4", "12", "16")),),
    ),
    Strategy(
        name="restrict-pointers",
        title="Declare that pointers do not overlap",
        backends=("cuda", "cpu"),
        zones=("memory", "middle", "compute"),
        families=(),
        advice=(
            "Mark every pointer argument of kernels and inner functions __restrict__, inputs const as well: inputs "
            "and outputs never overlap under the contract. The compiler may then move loads ahead of stores, keep "
            "values in registers across stores, use the read-only path on a GPU, and vectorise on the CPU without "
            "run-time overlap tests. Inline functions that take three or more pointers."
        ),
        effect=(
            "0-20 %, for one word: most in loops that store and load several arrays (norms with weights, in-place "
            "style updates). No effect on a kernel with one load and one store."
        ),
        example="""\
__global__ void affine(const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                       float* __restrict__ out, int cols) {
  long long row = (long long)blockIdx.x * cols;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) out[row + i] = fmaf(x[row + i], scale[i], shift[i]);
}
""",
    ),
    Strategy(
        name="skinny-products",
        title="Treat skinny products as reductions",
        backends=("cuda", "cpu"),
        zones=("memory", "latency"),
        families=("matmul",),
        advice=(
            "When one side of the product is 1 to 16, every element of the large matrix is used that few times: "
            "stream it once, coalesced, with vector loads, and forget tiles. Matrix times vector with row-major A: "
            "one warp (or block) per row, a dot product with the vector kept in shared memory or cache. With A "
            "transposed: a thread per column, split over rows, partial sums combined. For 2 to 16 columns keep that "
            "many sums per thread. Split long rows, so that all SMs have work."
        ),
        effect=(
            "80-95 % of the bandwidth, against 10-30 % for a general tiled product. Above about 32 columns arithmetic "
            "begins to count and tiling pays."
        ),
        example="""\
__global__ void matrix_vector(const float4* a, const float4* x, float* y, int rows, int quads) {  // a warp per row
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = lane; i < quads; i += 32) {
    float4 p = a[(long long)row * quads + i], q = x[i];
    sum += (p.x * q.x + p.y * q.y) + (p.z * q.z + p.w * q.w);
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) y[row] = sum; }
""",
    ),
    Strategy(
        name="sliding-window",
        title="Slide the window",
        backends=("cuda", "cpu"),
        zones=("memory", "middle", "compute"),
        families=("pooling", "convolution"),
        advice=(
            "Neighbouring windows overlap in all but one row or column. Split separable windows (sum, average, "
            "maximum) into a pass along the rows and one along the columns: 2 k operations instead of k * k. Let a "
            "thread walk down a column with the last k row results in registers. Recompute running sums every some "
            "dozen steps, or add windows up directly: adding and subtracting for ever collects rounding errors."
        ),
        effect=(
            "k / 2 times fewer operations for k x k pooling: 1.5-3 times for windows of 5 and more at stride 1. No "
            "gain where stride equals the window, the usual 2 x 2 pooling, which is a plain streaming kernel."
        ),
        example="""\
template <int K> __device__ void column_max(const float* x, float* out, int h, int w) {  // K row maxima in registers
  float last[K];
  for (int r = 0; r < h; ++r) {
    for (int k = 0; k + 1 < K; ++k) last[k] = last[k + 1];
    last[K - 1] = x[r * w];
    float best = last[0];
    for (int k = 1; k < K; ++k) best = fmaxf(best, last[k]);
    if (r + 1 >= K) out[(r + 1 - K) * w] = best;
  }
}
""",
    ),
    Strategy(
        name="software-prefetch",
        title="Prefetch what comes next",
        backends=("cpu", "cuda"),
        zones=("memory", "latency"),
        families=("gather",),
        advice=(
            "On the CPU call __builtin_prefetch some 200-500 bytes ahead in streams the hardware does not follow: "
            "gathered rows, strides over a page, the first lines of the next row. On a GPU load the next iteration's "
            "values into registers before computing on the current ones, so that their latency passes during the "
            "arithmetic. Start with a distance of one row or 8 cache lines and measure twice and half of it."
        ),
        effect=(
            "1.2-2 times for gathers and row starts on the CPU; 5-25 % for GPU loops with few warps. Nothing for "
            "plain sequential streams, which the hardware prefetcher follows by itself; too long a distance evicts "
            "data before it is used."
        ),
        example="""\
inline void gather(const float* table, const long* index, float* out, long count, long width) {
  for (long r = 0; r < count; ++r) {
    if (r + 4 < count) __builtin_prefetch(table + index[r + 4] * width);
    for (long i = 0; i < width; ++i) out[r * width + i] = table[index[r] * width + i];
  }
}
""",
    ),
    Strategy(
        name="strength-reduction",
        title="Cheap operations in the inner loop",
        backends=("cuda", "cpu"),
        zones=("compute", "middle", "latency"),
        families=(),
        advice=(
            "Replace what is costly by what is cheap and equal: one reciprocal outside the loop and a multiplication "
            "inside it, pointers that are advanced instead of i * stride + j, shifts and masks for divisions by "
            "powers of two, x * x for pow(x, 2), rsqrt for 1 / sqrt, fmaf for a * b + c, float literals (0.5f) so "
            "that no double creeps in. Integer division and modulo by a run-time number cost 20-40 instructions on a "
            "GPU: carry row and column along instead."
        ),
        effect=(
            "1.1 to 2 times where the profile shows arithmetic or integer instructions as the limit: element-wise "
            "kernels with pow or division, index-heavy kernels. A stray double constant alone can cost a factor of 10 "
            "on a GPU. Nothing where memory is the limit."
        ),
        example="""\
__global__ void normalise(const float* x, const float* norm, float* out, int cols) {
  const float scale = 1.0f / norm[blockIdx.x];  // one division per row
  const float* in = x + (long long)blockIdx.x * cols;
  float* to = out + (long long)blockIdx.x * cols;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = in[i] * scale;
}
""",
    ),
    Strategy(
        name="structural-zeros",
        title="Skip what the operator makes zero",
        backends=("cuda", "cpu"),
        zones=("compute", "middle", "memory"),
        families=("structured",),
        advice=(
            "Where the reference itself applies a triangular or diagonal mask, or builds a diagonal matrix from a "
            "vector, skip tiles that the mask makes zero, and bound the k loop of the others: in a product of two "
            "lower triangular matrices tile (i, j) needs only j <= k <= i. Still write the zeros. A product with "
            "diag(v) is a scaling of rows. Rely only on what the reference computes: inputs that merely happen to be "
            "triangular are checked with other values."
        ),
        effect=(
            "Up to 2 times for one triangular side, 3-6 times for two; a diagonal turns a matrix product into a "
            "streaming kernel, 100 times and more. Nothing where zeros are only a property of the data."
        ),
        example="""\
// diag(v) @ b is a scaling of rows: memory-bound instead of 2 m n m operations.
__global__ void diagonal_product(const float* v, const float* b, float* out, int n) {
  const float scale = v[blockIdx.x];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    out[(long long)blockIdx.x * n + i] = scale * b[(long long)blockIdx.x * n + i];
}
""",
    ),
    Strategy(
        name="top-k-selection",
        title="Select instead of sorting",
        backends=("cuda", "cpu"),
        zones=("memory", "latency", "compute"),
        families=("selection",),
        advice=(
            "Do not sort the row. For k up to about 32 let each thread keep its own largest in registers in one pass, "
            "then merge by warp and by block. For larger k find the k-th value by radix selection: turn floats into "
            "ordered unsigned numbers, count digits of 8 bits from the top in shared memory, keep only the bin that "
            "holds the k-th, and collect in a last pass. Agree with the reference on the order of equal values and on "
            "which index is given for them."
        ),
        effect=(
            "One to four passes over the row instead of a sort's dozens: 5-20 times for k much smaller than the row. "
            "With k above about a quarter of the row, or rows under 1024 elements, a sort in shared memory is as "
            "good."
        ),
        example="""\
__device__ unsigned ordered(float f) {  // a larger float gives a larger number
  unsigned bits = __float_as_uint(f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ void count(const float* x, int n, unsigned* bins) {  // 256 bins in shared memory, cleared before
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[ordered(x[i]) >> 24], 1u);
}
""",
    ),
    Strategy(
        name="two-stage-reduction",
        title="Partial results first, then one small second stage",
        backends=("cuda", "cpu"),
        zones=("memory", "latency"),
        families=("full_reduction",),
        advice=(
            "Let every block (or thread) reduce its own part and write one partial result to the workspace; a "
            "second kernel of one block (or a short loop) combines them in a fixed order."
        ),
        effect=(
            "Needed to use the whole device for a result of one number. Deterministic, and more accurate than one "
            "long sum. The second launch costs a few microseconds."
        ),
        example="""\
partial<<<blocks, THREADS, 0, stream>>>(x, scratch, n);
finish<<<1, THREADS, 0, stream>>>(scratch, blocks, out);
""",
        parameters=(StrategyParameter("block", ("4096", "16384", "1024", "65536")),),
        excludes=("atomic-reduction",),
    ),
    Strategy(
        name="unroll",
        title="Unroll the innermost loop",
        backends=("cuda", "cpu"),
        zones=(),
        families=("elementwise", "row_reduction", "full_reduction", "matmul"),
        advice=(
            "Unroll the innermost loop by a small factor, with all loads of one round before the arithmetic, so "
            "that several independent memory accesses and operations are in flight per thread."
        ),
        effect=(
            "Hides latency where there is too little parallelism otherwise. Costs registers; past a factor of "
            "eight it rarely helps."
        ),
        example="""\
#pragma unroll
for (int u = 0; u < UNROLL; ++u) v[u] = x[i + u * stride];
""",
        parameters=(StrategyParameter("factor", ("4", "2", "8", "12")),),
    ),
    Strategy(
        name="winograd",
        title="Winograd for 3 x 3 convolutions",
        backends=("cuda", "cpu"),
        zones=("compute",),
        families=("convolution",),
        advice=(
            "For 3 x 3 windows with stride 1 use F(2x2, 3x3): transform 4 x 4 input tiles and the weights, multiply "
            "element by element summed over input channels (16 independent matrix products), and transform the sums "
            "back to 2 x 2 outputs. The transforms are additions only. Keep to F(2x2): larger tiles save more and "
            "lose digits. The weights must be transformed in every call (into the workspace), since nothing may be "
            "kept between calls."
        ),
        effect=(
            "2.25 times fewer multiplications; 1.3-1.8 times in practice for 64 and more channels where arithmetic is "
            "the limit. Rounding errors grow about 2-3 times, so check the tolerance. No gain for other windows, "
            "other strides, few channels, or on tensor cores, where implicit products are faster."
        ),
        example="""\
// One dimension, F(2, 3): two outputs of a 3-tap filter from four inputs by 4 products instead of 6.
inline void outputs(const float d[4], const float g[3], float y[2]) {
  float m1 = (d[0] - d[2]) * g[0];
  float m2 = (d[1] + d[2]) * 0.5f * (g[0] + g[1] + g[2]);
  float m3 = (d[2] - d[1]) * 0.5f * (g[0] - g[1] + g[2]);
  float m4 = (d[1] - d[3]) * g[2];
  y[0] = m1 + m2 + m3, y[1] = m2 - m3 - m4;
}
""",
        precisions=("fp32", "fp64", "tf32"),
    ),
)
