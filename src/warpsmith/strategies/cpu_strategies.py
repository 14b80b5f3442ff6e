"""Strategies for C++ on the CPU. One entry each; `catalogue` chooses among them."""

from __future__ import annotations

from warpsmith.model.strategy import Strategy, StrategyParameter

PLUGINS = (
    Strategy(
        name="alignment-hints",
        title="State the alignment of pointers",
        backends=("cpu",),
        zones=("memory", "middle", "compute"),
        families=(),
        advice=(
            "The contract gives aligned tensors: say so with std::assume_aligned or __builtin_assume_aligned on the "
            "base pointers (64 bytes or what the contract states), and keep thread boundaries at multiples of 16 "
            "floats, so that no two threads write the same cache line. Row starts are aligned only where the row "
            "length is a multiple of the vector: then state it per row, too."
        ),
        effect=(
            "Removes peeling loops and unaligned head code: 2-10 % in short vector loops, more where streaming stores "
            "need alignment anyway. Nothing for long streams on current CPUs, where unaligned loads cost the same "
            "unless they cross a line. A false statement crashes."
        ),
        example="""\
inline void add(const float* a, const float* b, float* out, long n) {
  const float* x = static_cast<const float*>(__builtin_assume_aligned(a, 64));
  const float* y = static_cast<const float*>(__builtin_assume_aligned(b, 64));
  float* to = static_cast<float*>(__builtin_assume_aligned(out, 64));
  for (long i = 0; i < n; ++i) to[i] = x[i] + y[i];
}
""",
    ),
    Strategy(
        name="cache-blocking",
        title="Work on tiles that fit a cache",
        backends=("cpu",),
        zones=(),
        families=("row_reduction", "matmul"),
        advice=(
            "Cut the loop over columns (or over the depth and width of a product) into tiles small enough that "
            "what is reused stays in the first or second cache, and finish a tile before starting the next."
        ),
        effect=("Large where the plain order walks memory with long strides: column reductions, matrix products."),
        example="""\
for (int64_t first = 0; first < cols; first += TILE)
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t j = first; j < first + TILE; ++j) sum[j - first] += x[k * cols + j];
""",
        parameters=(StrategyParameter("tile", ("128", "64", "256", "512")),),
    ),
    Strategy(
        name="collapsed-loops",
        title="Parallelise over several axes at once",
        backends=("cpu",),
        zones=("memory", "middle", "compute"),
        families=("convolution", "pooling", "matmul", "row_reduction", "attention", "transpose"),
        advice=(
            "When the outermost axis is shorter than the number of threads, or no multiple of it, parallelise over "
            "two or more axes with collapse(2) (or cut the flat range by hand), so that all threads get equal shares. "
            "Leave the innermost, contiguous loop out: it belongs to the vector unit. Where rows differ in cost use "
            "schedule(dynamic) with chunks of some 10 us."
        ),
        effect=(
            "With 6 images on 4 threads, 1.33 times (2 rounds become 1.5); with a batch of 1, as much as there are "
            "cores. Nothing where the outer axis already has hundreds of equal pieces."
        ),
        example="""\
inline void relu(const float* x, float* out, long batch, long channels, long pixels) {
#pragma omp parallel for collapse(2) schedule(static)
  for (long b = 0; b < batch; ++b)
    for (long c = 0; c < channels; ++c)
      for (long i = (b * channels + c) * pixels, end = i + pixels; i < end; ++i) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
""",
    ),
    Strategy(
        name="fused-passes",
        title="Do in one loop what one loop can do",
        backends=("cpu",),
        zones=("memory", "latency", "middle", "compute"),
        families=("row_reduction",),
        advice=(
            "Compute all reductions that do not wait for each other in one loop over the row, and keep costly "
            "intermediate values (exponentials) in the output row for the last loop instead of computing them "
            "again."
        ),
        effect=("Fewer passes over the cache and half the exponentials of a softmax."),
        example="""\
sum += (out[k] = exponential(x[k] - most));
""",
    ),
    Strategy(
        name="im2col",
        title="Lay windows out as a matrix",
        backends=("cpu",),
        zones=("compute", "middle"),
        families=("convolution",),
        advice=(
            "Ask for a workspace and write the windows of a block of output pixels into it as rows of a matrix "
            "[pixels, in channels * window], then multiply by the weights with a blocked, vectorised product. Do it "
            "for as many pixels at a time as the second-level cache holds (200-500 KiB), per thread, rather than for "
            "the whole image: the matrix is window-size times as large as the input. 1 x 1 windows with stride 1 need "
            "no layout at all: they are a product already."
        ),
        effect=(
            "Brings a convolution with many channels to 50-80 % of the speed of the matrix product itself, against "
            "5-10 % for plain nested loops. The copies cost more than they bring for depthwise convolutions and for "
            "fewer than about 8 output channels."
        ),
        example="""\
inline void columns(const float* x, float* to, long h, long w, long s, long row) {  // one channel, stride 1, no padding
  for (long col = 0; col + s <= w; ++col)
    for (long dy = 0; dy < s; ++dy)
      for (long dx = 0; dx < s; ++dx) *to++ = x[(row + dy) * w + col + dx];
}
""",
    ),
    Strategy(
        name="loop-interchange",
        title="Innermost loop along the contiguous axis",
        backends=("cpu",),
        zones=("memory", "middle", "compute"),
        families=("matmul", "convolution", "transpose", "scan", "row_reduction"),
        advice=(
            "Order the loops so that the innermost one walks the last axis of what it reads and writes, and carries "
            "no sum from step to step: in a matrix product i, k, j (add a row of B, scaled, to a row of C) rather "
            "than i, j, k (a dot product with a strided column of B). When reducing along an outer axis, keep a row "
            "of running results and sweep the rows in order. The inner loop then vectorises and the prefetcher "
            "follows it."
        ),
        effect=(
            "3-20 times over a strided inner loop, which uses 4 of every 64 bytes fetched. Where the inner loop is "
            "already contiguous nothing is left; large matrix products then need blocking as well."
        ),
        example="""\
inline void multiply(const float* a, const float* b, float* c, long m, long n, long k) {
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < n; ++j) c[i * n + j] = 0.0f;
    for (long p = 0; p < k; ++p)
#pragma omp simd
      for (long j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
  }
}
""",
    ),
    Strategy(
        name="multiple-accumulators",
        title="Several independent partial sums",
        backends=("cpu",),
        zones=("memory", "compute", "middle"),
        families=("row_reduction", "full_reduction"),
        advice=(
            "Keep two or four accumulators that do not depend on each other, each for its own stretch of the row, "
            "and combine them at the end."
        ),
        effect=(
            "Breaks the chain of dependent additions, whose latency otherwise limits the loop to one vector every "
            "four cycles. Also lowers the rounding error."
        ),
        example="""\
a0 += x[k]; a1 += x[quarter + k]; a2 += x[2 * quarter + k]; a3 += x[3 * quarter + k];
""",
        parameters=(StrategyParameter("count", ("4", "2")),),
    ),
    Strategy(
        name="no-false-sharing",
        title="Keep threads on separate cache lines",
        backends=("cpu",),
        zones=("memory", "latency", "compute"),
        families=("full_reduction", "row_reduction", "scan", "matmul"),
        advice=(
            "Sum into a local variable (or an omp reduction) and write the shared array once at the end. Where "
            "partial results must lie in memory, give each thread a cache line of its own (64 bytes, better 128 "
            "because of the adjacent-line prefetcher). Cut the work so that two threads never write the same line: "
            "chunks of whole rows, or multiples of 16 floats."
        ),
        effect=(
            "A line written by several cores travels between them at about 100 ns each time: loops that update "
            "neighbouring counters gain 2-10 times. No effect where threads write long separate ranges."
        ),
        example="""\
struct alignas(128) Partial { double sum; };
inline double total(const float* x, long n, Partial* partial, int threads) {  // partial: one per thread
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int t = 0; t < threads; ++t) {
    double sum = 0;
    for (long i = n * t / threads; i < n * (t + 1) / threads; ++i) sum += x[i];
    partial[t].sum = sum;
  }
  for (int t = 1; t < threads; ++t) partial[0].sum += partial[t].sum;
  return partial[0].sum; }
""",
    ),
    Strategy(
        name="non-temporal-stores",
        title="Write results past the caches",
        backends=("cpu",),
        zones=("memory",),
        families=("elementwise", "row_reduction"),
        advice=(
            "Compute a block into a small buffer on the stack and copy it out with streaming stores, which do not "
            "fetch the line that is about to be overwritten."
        ),
        effect=(
            "Saves a third of the traffic of a copy-like kernel on arrays much larger than the last-level cache; "
            "a loss where the result would have stayed in a cache."
        ),
        example="""\
_mm_stream_si128(reinterpret_cast<__m128i*>(out + k), block);
""",
    ),
    Strategy(
        name="one-parallel-region",
        title="One parallel region per call",
        backends=("cpu",),
        zones=("latency", "memory"),
        families=(),
        advice=(
            "Open one omp parallel region and put all loops into it as omp for, with nowait between those that do not "
            "depend on each other. Entering a region costs 1-10 us, a barrier 0.5-2 us. Where each thread's part of "
            "the second loop needs only its own part of the first, use the same static schedule in both and no "
            "barrier at all: the data are still in its cache."
        ),
        effect=(
            "2-5 us for each region saved: 1.2-3 times for operators under 50 us. Nothing for loops of milliseconds, "
            "apart from the cache reuse that equal schedules give."
        ),
        example="""\
inline void centre(const float* x, float* out, long rows, long cols, float* means) {
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (long r = 0; r < rows; ++r) means[r] = std::accumulate(x + r * cols, x + (r + 1) * cols, 0.0f) / cols;
#pragma omp for schedule(static)  // the same rows for the same threads: no barrier is needed between the two
    for (long r = 0; r < rows; ++r)
      for (long i = 0; i < cols; ++i) out[r * cols + i] = x[r * cols + i] - means[r];
  }
}
""",
    ),
    Strategy(
        name="packed-panels",
        title="Copy operands into the order in which they are read",
        backends=("cpu",),
        zones=("compute", "middle"),
        families=("matmul",),
        advice=(
            "Before multiplying, copy B into panels as wide as the register tile and A into strips as high, each "
            "stored in the order of the innermost loop, padded with zeros; keep them in the workspace."
        ),
        effect=(
            "The innermost loop reads memory straight through whatever way the operands were stored, with no edge "
            "cases. Pays for products whose sides are all at least about a hundred."
        ),
        example="""\
panel[(p * depth + k) * WIDTH + j] = b[k * n + p * WIDTH + j];
""",
    ),
    Strategy(
        name="parallel-rows",
        title="Share rows between threads",
        backends=("cpu",),
        zones=(),
        families=("elementwise", "row_reduction", "matmul"),
        advice=(
            "Put `#pragma omp parallel for schedule(static)` before the loop over independent rows (or blocks of "
            "a long array), so that each core has a contiguous part."
        ),
        effect=(
            "Close to the number of cores for work bound by arithmetic; less where one core already takes most of "
            "the memory bandwidth. Below some ten thousand elements starting the threads costs more than it "
            "brings."
        ),
        example="""\
#pragma omp parallel for schedule(static)
for (int64_t row = 0; row < rows; ++row) one_row(row);
""",
    ),
    Strategy(
        name="serial-when-small",
        title="Stay serial when the work is small",
        backends=("cpu",),
        zones=("latency",),
        families=(),
        advice=(
            "Use an if clause on the parallel loop: below some 10 000-50 000 elements of light arithmetic one "
            "vectorised thread is done before the others have woken up. Limit the number of threads (num_threads) so "
            "that each gets at least about 30 us of work. Workloads of different sizes can then share one kernel."
        ),
        effect=(
            "Saves 2-20 us of waking and joining threads: up to several times for tensors that fit the first-level "
            "cache. No effect on large tensors."
        ),
        example="""\
inline void scale(const float* x, float* out, long n, float a) {
#pragma omp parallel for simd schedule(static) if (n > 32768)
  for (long i = 0; i < n; ++i) out[i] = a * x[i];
}
""",
    ),
    Strategy(
        name="simd",
        title="Vectorise the loop along a row",
        backends=("cpu",),
        zones=(),
        families=("elementwise", "row_reduction", "full_reduction", "matmul"),
        advice=(
            "Put `#pragma omp simd` (with `reduction` where there is one) before the innermost loop: it allows "
            "the compiler to reorder sums, which it may not do by itself. Avoid branches and library calls in the "
            "loop. Ask for 512-bit vectors where the machine has them."
        ),
        effect=("Up to the number of lanes, 8 to 16 for float, while data comes from a cache."),
        example="""\
#pragma omp simd reduction(+ : sum)
for (int64_t k = 0; k < cols; ++k) sum += x[k];
""",
        parameters=(StrategyParameter("width", ("512", "256")),),
        excludes=("unroll",),
    ),
    Strategy(
        name="static-chunks",
        title="Choose how many items a thread takes at a time",
        backends=("cpu",),
        zones=(),
        families=("elementwise", "row_reduction", "matmul"),
        advice=(
            "Give threads chunks of a fixed number of items in turn: `schedule(static, CHUNK)`. Small chunks even "
            "out rows of different cost, large ones keep pages and cache lines apart."
        ),
        effect=("Some per cent; more where a thread's neighbour disturbs it or pages are spread over memory nodes."),
        example="""\
#pragma omp parallel for schedule(static, CHUNK)
""",
        parameters=(StrategyParameter("chunk", ("16", "1", "4", "64")),),
        needs=("parallel-rows",),
    ),
    Strategy(
        name="vector-exp",
        title="An exponential that vectorises",
        backends=("cpu",),
        zones=(),
        families=("elementwise", "row_reduction", "full_reduction", "matmul"),
        advice=(
            "Replace expf, tanhf, erff and logf by branch-free polynomials: split x into n ln 2 + r, evaluate a "
            "polynomial in r with fused multiply-adds, and put n into the exponent bits. A loop with a library "
            "call is not vectorised; this one is."
        ),
        effect=("Five to ten times on softmax, GELU and the like, because the library call is where the time goes."),
        example="""\
const float n = rintf(x * 1.44269504f);
const float r = x - n * 0.69314718f;
return polynomial(r) * bit_cast<float>((int(n) + 127) << 23);
""",
    ),
)
