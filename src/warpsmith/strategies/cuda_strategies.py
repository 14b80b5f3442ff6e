"""Strategies for kernels on an NVIDIA GPU (CUDA C++ and Triton). One entry each; `catalogue` chooses among them."""

from __future__ import annotations

from warpsmith.model.strategy import Strategy, StrategyParameter

PLUGINS = (
    Strategy(
        name="async-copy",
        title="Copy to shared memory asynchronously",
        backends=("cuda",),
        zones=("compute", "middle", "memory"),
        families=("matmul",),
        advice=(
            "Copy tiles from global to shared memory with cp.async (__pipeline_memcpy_async) while the tile "
            "before is being used: commit each stage, wait for the oldest only."
        ),
        effect=(
            "Frees the registers that a double buffer needs and keeps more bytes in flight. Slower than a double "
            "buffer where a tile has to be transposed, 4 bytes at a time. Needs compute capability 8.0, and 4, 8 "
            "or 16 bytes per copy."
        ),
        example="""\
__pipeline_memcpy_async(&As[next][i], &a[j], 4);
__pipeline_commit();
__pipeline_wait_prior(0);
__syncthreads();
""",
        needs=("shared-tile",),
        excludes=("double-buffer",),
    ),
    Strategy(
        name="atomic-reduction",
        title="Finish in the same launch with an atomic ticket",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("full_reduction",),
        advice=(
            "Let every block write its partial result, pass a memory fence and take a ticket with atomicAdd; the "
            "block that takes the last ticket combines all partial results. Clear the ticket with cudaMemsetAsync "
            "before the launch."
        ),
        effect=(
            "Saves the second launch: it counts for small inputs. The order of combination stays fixed, so that "
            "results do not vary from run to run."
        ),
        example="""\
__threadfence();
if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
""",
        excludes=("two-stage-reduction",),
    ),
    Strategy(
        name="block-per-row",
        title="One block for each row",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("row_reduction",),
        advice=(
            "Give every row to one block: its threads walk the row side by side, so that accesses coalesce, and "
            "combine their partial results through shared memory."
        ),
        effect=(
            "The usual form for rows of a thousand elements and more; with fewer, most threads idle. Needs at "
            "least as many rows as the device has multiprocessors, better several times as many."
        ),
        example="""\
for (int64_t k = threadIdx.x; k < cols; k += THREADS) sum += x[blockIdx.x * cols + k];
sum = block_sum(sum);
""",
        excludes=("warp-per-row",),
    ),
    Strategy(
        name="block-scan",
        title="Prefix sums by one block per row",
        backends=("cuda",),
        zones=("memory",),
        families=("scan",),
        advice=(
            "Give each row to one block and walk it in tiles of threads * 4 elements: load float4 per thread, scan in "
            "registers, scan the threads' totals by warp (shuffles), scan the warps' totals by the first warp through "
            "shared memory, add both offsets and the total carried from earlier tiles, and store. cub::BlockScan does "
            "the middle part. Load the next tile before the barrier of this one. For a scan along an outer axis give "
            "each thread a column instead: no cooperation needed."
        ),
        effect=(
            "70-90 % of the bandwidth for rows of a thousand elements and more, when there are at least as many rows "
            "as SMs; with fewer rows most of the device is idle: use a single-pass scan with look-back. One thread "
            "per row is 10-50 times slower."
        ),
        example="""\
__global__ void scan_rows(const float* x, float* out, int cols) {  // 256 threads
  using Scan = cub::BlockScan<float, 256>;
  __shared__ typename Scan::TempStorage storage;
  float carried = 0.0f;
  for (int base = 0; base < cols; base += 256) {
    int i = base + threadIdx.x;
    float v = i < cols ? x[(long long)blockIdx.x * cols + i] : 0.0f, sum, total;
    Scan(storage).InclusiveSum(v, sum, total);
    if (i < cols) out[(long long)blockIdx.x * cols + i] = carried + sum;
    carried += total, __syncthreads();
  }
}
""",
    ),
    Strategy(
        name="block-size",
        title="Choose the threads per block",
        backends=("cuda",),
        zones=(),
        families=("elementwise", "row_reduction", "full_reduction"),
        advice=(
            "Make the number of threads per block a constant and choose it by measurement: a multiple of 32 such "
            "that several blocks fit on a multiprocessor, and, for one block per row, not more threads than a row "
            "has vectors. State it in __launch_bounds__ so that the compiler can spend the registers that are "
            "left."
        ),
        effect=(
            "Some per cent either way; more where a row is much shorter than the block, or where registers limit "
            "how many blocks are resident."
        ),
        example="""\
__global__ void __launch_bounds__(THREADS) kernel(...);
kernel<<<blocks, THREADS, 0, stream>>>(...);
""",
        parameters=(StrategyParameter("threads", ("256", "128", "512", "1024")),),
    ),
    Strategy(
        name="cluster-shared-memory",
        title="Share memory between blocks of a cluster",
        backends=("cuda",),
        zones=("memory", "middle", "compute"),
        families=("row_reduction", "matmul", "attention"),
        advice=(
            "Launch clusters of 2, 4 or 8 blocks (__cluster_dims__ or the launch attribute). For a row too long "
            "for one block's shared memory, split it over the cluster: each block keeps its part on chip, they "
            "exchange partial maxima and sums through distributed shared memory (cluster.map_shared_rank), and the "
            "row is read from global memory only once. In matrix products let TMA multicast one tile to all blocks "
            "of the cluster that need it. Give every reduction a cell of its own: then it takes one "
            "cluster.sync(), between writing and reading. So that no block leaves while others read, call "
            "cluster.barrier_arrive() after the last reading and cluster.barrier_wait() at the very end, with the "
            "stores in between."
        ),
        effect=(
            "Rows of 64 K to 400 K floats: 1.1 to 1.5 times for softmax and norms, which otherwise read the row "
            "twice. Multicast saves 5-10 % in large matrix products. No use for rows that fit one block, or on GPUs "
            "before Hopper."
        ),
        example="""\
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(4, 1, 1) cluster_sum(const float* x, float* out) {
  __shared__ float mine;  // of this reduction only
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = x[blockIdx.x];
  cluster.sync();
  float sum = 0.0f;
  for (unsigned r = 0; r < cluster.num_blocks(); ++r) sum += *cluster.map_shared_rank(&mine, r);
  cluster.barrier_arrive();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
  cluster.barrier_wait();  // nobody leaves while others still read
}
""",
        parameters=(StrategyParameter("blocks", ("8", "4", "2")),),
        excludes=("block-per-row", "warp-per-row", "row-in-registers", "split-rows"),
        least_arch=90,
    ),
    Strategy(
        name="coalesced-access",
        title="Neighbouring threads, neighbouring addresses",
        backends=("cuda",),
        zones=("memory", "middle"),
        families=(),
        advice=(
            "Let threadIdx.x run along the contiguous (last) axis, so that the 32 lanes of a warp touch 128 "
            "consecutive bytes per load. Where the algorithm walks along another axis, let each thread own a column "
            "and loop over the rows, rather than let each thread own a row. Split an array of structures by loading "
            "it in order into shared memory first. Start every row's accesses at a multiple of 32 bytes where the row "
            "length allows it."
        ),
        effect=(
            "A strided load fetches a 32-byte sector for every 4 bytes used: up to 8 times the traffic, so up to 8 "
            "times slower. Nothing to gain where lanes already read consecutive words, or where the whole tensor "
            "stays in L2 and another unit is the limit."
        ),
        example="""\
// Sum over dimension 0 of a [rows, cols] matrix: lanes on cols, the loop on rows.
__global__ void column_sums(const float* x, float* out, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) sum += x[(long long)row * cols + col];
  out[col] = sum;
}
""",
    ),
    Strategy(
        name="decoupled-look-back",
        title="Scan in one pass with look-back",
        backends=("cuda",),
        zones=("memory",),
        families=("scan",),
        advice=(
            "Scan long sequences in a single kernel: each block scans its tile, publishes the tile's sum at once, and "
            "then walks back over its predecessors, adding published sums until it meets one that has published its "
            "whole prefix; then it publishes its own. Keep flag and value in one 64-bit word, written by one store. "
            "Take tile numbers from a counter (atomicAdd), so that predecessors are sure to run. Clear counter and "
            "flags (in the workspace) with cudaMemsetAsync on the stream in every call."
        ),
        effect=(
            "Reads and writes each element once: close to the speed of a copy, against 3 passes (about 1.5-2 times as "
            "long) for reduce, scan, add. For many independent rows that fit a block each, a block scan per row is "
            "simpler and as fast."
        ),
        example="""\
// state[b] = flag << 32 | bits of a float: 0 nothing yet, 1 sum of tile b, 2 sum of all tiles up to b.
__device__ float sum_before(volatile unsigned long long* state, int tile) {
  float sum = 0.0f;
  for (int b = tile - 1; b >= 0; --b) {
    unsigned long long seen = state[b];
    while (seen >> 32 == 0) seen = state[b];
    sum += __uint_as_float((unsigned)seen);
    if (seen >> 32 == 2) break;
  }
  return sum;
}
""",
    ),
    Strategy(
        name="double-buffer",
        title="Load the next tile while computing on this one",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul",),
        advice=(
            "Keep two tiles of each operand in shared memory: load the next one into registers before the "
            "multiplication of the present one, store it to the other buffer afterwards, with one barrier per "
            "step."
        ),
        effect=(
            "Hides the latency of global loads: 5 to 20 % for products with enough depth. Twice the shared memory."
        ),
        example="""\
fetch(next);
compute(tile[now]);
store(tile[1 - now]);
__syncthreads();
""",
        needs=("shared-tile",),
        excludes=("async-copy",),
    ),
    Strategy(
        name="fast-intrinsics",
        title="Use the hardware's approximate functions",
        backends=("cuda",),
        zones=("compute", "middle", "memory", "latency"),
        families=("elementwise", "row_reduction", "full_reduction", "matmul"),
        advice=(
            "Replace expf, logf, division and tanhf by __expf, __logf, __fdividef and tanh.approx, which take one "
            "or two instructions of the special function unit."
        ),
        effect=(
            "Large where special functions dominate (GELU, sigmoid, softmax in fast memory), nothing where memory "
            "does. Costs accuracy: about 2 to 3 more bits lost for __expf, about 1e-4 relative for tanh.approx; "
            "the check may refuse it in fp32."
        ),
        example="""\
y = __fdividef(x, 1.0f + __expf(-x));
""",
    ),
    Strategy(
        name="gather-in-flight",
        title="Keep many gathered rows in flight",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("gather",),
        advice=(
            "Gathered addresses hang on loaded indices, two trips through memory in a row. Load indices for several "
            "rows ahead (a vector of them per thread, or 32 per warp handed round by shuffle), then issue all row "
            "loads before using any. Give each row to as many lanes as cover it with 16-byte loads: 8 lanes for 32 "
            "floats, a warp for 128. Check bounds as the reference does. For scattered sums, sort or group by target "
            "where there are many hits per target, else use atomics."
        ),
        effect=(
            "1.5-3 times over one row per thread; rows of 128 bytes and more then reach 70-90 % of the bandwidth. "
            "Short rows (under 32 bytes) stay limited to whole sectors: at best bytes used / 32 of the bandwidth."
        ),
        example="""\
__global__ void gather(const float4* table, const long long* index, float4* out, int count) {  // rows of 32 floats
  int group = (blockIdx.x * blockDim.x + threadIdx.x) / 8 * 4, lane = threadIdx.x % 8;
  float4 v[4];
  for (int k = 0; k < 4; ++k) if (group + k < count) v[k] = table[index[group + k] * 8 + lane];
  for (int k = 0; k < 4; ++k) if (group + k < count) out[(long long)(group + k) * 8 + lane] = v[k];
}
""",
    ),
    Strategy(
        name="grid-stride",
        title="A grid that fits the device, looping over the work",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("elementwise", "full_reduction"),
        advice=(
            "Launch as many blocks as the device holds at once (a few per multiprocessor) and let each thread "
            "loop over the work with a stride of the whole grid, instead of launching one thread per element."
        ),
        effect=(
            "Saves block scheduling and lets a thread reuse what it has loaded, such as a broadcast vector. On "
            "large element-wise work a plain grid with unrolling is often just as fast."
        ),
        example="""\
for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) out[i] = f(x[i]);
""",
        parameters=(StrategyParameter("blocks-per-sm", ("8", "4", "16", "32")),),
    ),
    Strategy(
        name="implicit-gemm",
        title="Convolution as an implicit matrix product",
        backends=("cuda", "triton"),
        zones=("compute", "middle"),
        families=("convolution",),
        advice=(
            "Treat the convolution as C[pixels, out channels] = A[pixels, in channels * window] * B and tile it like "
            "a matrix product, but compute the address of each element of A from its pixel and its window position "
            "while loading the tile into shared memory, with zeros outside the image. Precompute the offsets of the "
            "window positions; let neighbouring threads load neighbouring pixels. Then use register tiles, double "
            "buffering and, where the precision class allows it, tensor cores."
        ),
        effect=(
            "The method of choice for 3 x 3 and larger windows with 16 or more channels on both sides: 60-85 % of "
            "what a matrix product of the same size reaches. Poor for depthwise convolutions and for fewer than 8 "
            "input channels, where a direct kernel wins."
        ),
        example="""\
// Element (pixel, k) of the matrix that is never stored; stride 1, NCHW, one image, window s x s, padding p.
__device__ float element(const float* x, int pixel, int k, int h, int w, int out_w, int s, int p) {
  int channel = k / (s * s), dy = k / s % s, dx = k % s;
  int row = pixel / out_w + dy - p, col = pixel % out_w + dx - p;
  return row >= 0 && row < h && col >= 0 && col < w ? x[(channel * h + row) * w + col] : 0.0f;
}
""",
    ),
    Strategy(
        name="independent-chains",
        title="Independent chains of arithmetic",
        backends=("cuda",),
        zones=("compute", "middle", "latency"),
        families=("full_reduction", "row_reduction", "matmul"),
        advice=(
            "A dependent multiply-add takes 4 cycles, a special function 20 and more, a load from memory 400-800. "
            "Break long chains of dependent steps: 4 to 8 partial sums or maxima per thread over interleaved "
            "elements, combined at the end; all loads of an iteration before their first use; a loop unrolled far "
            "enough for both. Different partial sums also reduce rounding error."
        ),
        effect=(
            "1.2-2 times in reductions and other loops with few warps per SM. Nothing at full occupancy in a "
            "bandwidth-limited kernel, where other warps fill the gaps."
        ),
        example="""\
__device__ float sum(const float* x, int n) {  // n % 4 == 0
  float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
  for (int i = 0; i < n; i += 4) a += x[i], b += x[i + 1], c += x[i + 2], d += x[i + 3];
  return (a + b) + (c + d);
}
""",
    ),
    Strategy(
        name="index-32-bit",
        title="Indices of 32 bits in inner loops",
        backends=("cuda",),
        zones=("compute", "middle", "memory"),
        families=(),
        advice=(
            "GPUs have no 64-bit integer unit: every 64-bit multiplication is several instructions. Add the 64-bit "
            "row offset to the pointer once, then index inside the row with int (or unsigned for divisions). For "
            "whole tensors test in launch that they have fewer than 2^31 elements and call the 32-bit instance, with "
            "a 64-bit one for the rest. Mind blockIdx.x * blockDim.x, which is 32 bits wide, when tensors are larger."
        ),
        effect=(
            "5-15 % in index-heavy kernels (convolution, permutation, broadcasting over several axes), and 2-8 "
            "registers fewer. Nothing for kernels that compute one address and stream on."
        ),
        example="""\
template <typename Index> __global__ void scale(const float* x, float* out, Index n, float a) {
  Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = blockIdx.x * (Index)blockDim.x + threadIdx.x; i < n; i += step) out[i] = a * x[i];
}
// Host: n < (1ll << 30) ? scale<int><<<...>>>(x, out, (int)n, a) : scale<long long><<<...>>>(x, out, n, a);
""",
    ),
    Strategy(
        name="l2-friendly-order",
        title="Order tiles for the second-level cache",
        backends=("cuda", "triton"),
        zones=("compute", "middle", "memory"),
        families=("matmul", "convolution", "attention"),
        advice=(
            "Number the blocks so that those running at the same time form a compact square of the output rather than "
            "a long row of tiles: group 8 tile rows and walk down the group before going right. The tiles of A and B "
            "that a wave reads then fit L2 and are fetched from memory once. The same holds for convolutions (output "
            "channels against pixels) and attention (heads that share keys)."
        ),
        effect=(
            "5-30 % for products of 4096 and more on a side, where a plain row-major order reads B again for every "
            "row of tiles. No effect when both operands fit L2 (40 MiB on A100, 50 MiB on H100) or when the grid has "
            "a single wave."
        ),
        example="""\
__device__ void place(int tiles_m, int tiles_n, int& tile_m, int& tile_n) {  // from blockIdx.x
  const int group = 8;
  int per_group = group * tiles_n, first = (int)blockIdx.x / per_group * group;
  int height = min(group, tiles_m - first);
  tile_m = first + (int)blockIdx.x % per_group % height;
  tile_n = (int)blockIdx.x % per_group / height;
}
""",
    ),
    Strategy(
        name="last-block-reduction",
        title="The last block finishes the reduction",
        backends=("cuda",),
        zones=("latency", "memory"),
        families=("full_reduction",),
        advice=(
            "Reduce everything in one kernel: each block writes its partial result to the workspace, calls "
            "__threadfence(), and takes a ticket with atomicAdd; the block with the last ticket adds the partial "
            "results, in fixed order, and writes the output. The workspace holds garbage at entry, so the counter "
            "must be cleared by cudaMemsetAsync on the stream in every call (a memset of 4 bytes is cheaper than a "
            "kernel)."
        ),
        effect=(
            "Saves the second kernel of a two-stage reduction: 1-3 us, up to 1.5 times for problems of a few "
            "microseconds, and unlike floating-point atomics it gives the same result every time. No difference for "
            "reductions of a millisecond."
        ),
        example="""\
__global__ void total(const float* sums, float* partial, unsigned* tickets, float* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sums[blockIdx.x];  // in practice: this block's own reduction
    __threadfence();
    last = atomicAdd(tickets, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  float sum = 0.0f;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += ((volatile float*)partial)[b];
  *out = sum; }
""",
    ),
    Strategy(
        name="launch-bounds",
        title="Tell the compiler the block size",
        backends=("cuda",),
        zones=("middle", "compute", "memory"),
        families=(),
        advice=(
            "Write __launch_bounds__(threads, blocks_per_sm) on the kernel with the block size it is really launched "
            "with. Without it the compiler allows for 1024 threads per block and caps registers at 64. Lower the "
            "second number where the compiler reports spills; raise it where registers alone keep a second block from "
            "fitting. Launching with more threads than declared fails."
        ),
        effect=(
            "Removes spills in kernels with big register tiles (10-30 %, more in matrix products with 8 x 8 results "
            "per thread); a second number that fits one more block gives 5-15 % in memory-bound kernels. No effect on "
            "kernels that use fewer than about 32 registers."
        ),
        example="""\
__global__ void __launch_bounds__(256, 2) update(const float* x, float* out, int n) {  // <= 128 registers each
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = x[i] * x[i];
}
""",
    ),
    Strategy(
        name="occupancy-balance",
        title="Enough warps, not the most warps",
        backends=("cuda",),
        zones=("memory", "middle", "compute"),
        families=(),
        advice=(
            "Work out what limits resident warps: registers (65536 per SM), shared memory (164 KiB on A100, 228 KiB "
            "on H100) or the block size. A memory-bound kernel needs about 40 KiB of loads in flight per SM: reach "
            "that with more warps, or with more independent loads per thread. A compute-bound kernel with long "
            "independent chains runs best at 25-50 % occupancy with many registers. Above 48 KiB of shared memory per "
            "block call cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize."
        ),
        effect=(
            "Going from 25 % to 50 % occupancy often gives 20-50 % in a memory-bound kernel with one load per thread; "
            "from 50 % to 100 % rarely more than 5 %. Forcing occupancy up by capping registers causes spills, which "
            "cost more than it gains."
        ),
        example="""\
__global__ void worker(float* data) { extern __shared__ float scratch[]; scratch[threadIdx.x] = data[threadIdx.x]; }
int resident_blocks(int threads, int shared_bytes) {
  int blocks = 0;
  cudaFuncSetAttribute(worker, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, worker, threads, shared_bytes);
  return blocks;
}
""",
    ),
    Strategy(
        name="packed-half",
        title="Two half-precision values at a time",
        backends=("cuda",),
        zones=("memory", "middle", "compute"),
        families=("elementwise", "row_reduction", "full_reduction", "normalisation"),
        advice=(
            "Load fp16 or bf16 data as 16-byte vectors (8 values), take them apart as __half2 or __nv_bfloat162, "
            "convert pairs to float2 for sums, exponentials and divisions, and pack results by __float22half2_rn or "
            "__float22bfloat162_rn before one 16-byte store. Simple arithmetic that the tolerance allows in half "
            "precision (scaling, ReLU, adding a bias) can stay in half2: two results per instruction. Accumulate in "
            "float always."
        ),
        effect=(
            "2-byte loads reach about half of the bandwidth; 16-byte ones all of it: up to 2 times for streaming "
            "kernels. No use for float32 tensors."
        ),
        example="""\
__device__ uint4 relu(uint4 eight) {  // eight fp16 values
  __half2* pair = reinterpret_cast<__half2*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) pair[i] = __hmax2(pair[i], __float2half2_rn(0.0f));
  return eight;
}
""",
        precisions=("fp16", "bf16"),
    ),
    Strategy(
        name="padded-shared",
        title="Pad rows of shared tiles",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul",),
        advice=(
            "Make rows of a shared-memory tile a few elements longer than needed (4 floats keep vector loads "
            "aligned), so that threads that walk down a column hit different banks."
        ),
        effect=("Removes bank conflicts where a tile is written transposed; nothing where there are none."),
        example="""\
__shared__ float As[TK][TM + 4];
""",
        needs=("shared-tile",),
    ),
    Strategy(
        name="persistent-blocks",
        title="Blocks that stay and take several pieces",
        backends=("cuda", "triton"),
        zones=("memory", "middle", "compute"),
        families=("row_reduction", "matmul", "attention", "convolution"),
        advice=(
            "Launch exactly as many blocks as the device holds at once (SM count times resident blocks per SM) and "
            "let each loop over tiles or rows with a stride of gridDim.x. Set up once per block what all its pieces "
            "share (weights in shared memory, pointers, barriers), and begin loading the next piece before the "
            "current one is stored."
        ),
        effect=(
            "Saves block start-up and the half-empty last wave: 5-20 % where a block lives for only a few "
            "microseconds, or where the number of tiles is slightly above a multiple of the SM count. No gain with "
            "thousands of long blocks, and a loss where the pieces differ much in length: then take them from a "
            "counter instead."
        ),
        example="""\
__global__ void by_rows(const float* x, float* out, int rows, int cols) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x)
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
      out[(long long)row * cols + i] = 2.0f * x[(long long)row * cols + i];
}
// Host: int sms, per_sm; cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
//       cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, by_rows, 256, 0);
//       by_rows<<<sms * per_sm, 256, 0, stream>>>(x, out, n_rows, cols);
""",
    ),
    Strategy(
        name="read-only-loads",
        title="Load through the read-only path",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("elementwise", "row_reduction", "full_reduction"),
        advice=(
            "Load inputs with __ldg, and mark pointers const __restrict__, so that the compiler may use the non- "
            "coherent path and reorder loads freely."
        ),
        effect=(
            "Small; it matters where the compiler could not prove that inputs and outputs do not overlap and "
            "therefore serialised loads behind stores."
        ),
        example="""\
const float4 v = __ldg(reinterpret_cast<const float4*>(x) + i);
""",
    ),
    Strategy(
        name="row-in-registers",
        title="Keep the row in registers between passes",
        backends=("cuda",),
        zones=("memory",),
        families=("row_reduction",),
        advice=(
            "Load the row once, each thread a fixed number of elements into an array with constant indices (so "
            "that it stays in registers), and let all passes work on that array; write the result at the end. "
            "Make the array's length a template parameter and pick it at launch from the row length; read the row "
            "again from memory where it is too long."
        ),
        effect=(
            "Two or three passes over memory become one: for softmax and normalisations the largest single gain. "
            "Limited by registers: about 64 values per thread."
        ),
        example="""\
float kept[COUNT];
#pragma unroll
for (int c = 0; c < COUNT; ++c) kept[c] = x[row * cols + c * THREADS + threadIdx.x];
""",
        excludes=("row-in-shared",),
    ),
    Strategy(
        name="row-in-shared",
        title="Keep the row in shared memory between passes",
        backends=("cuda",),
        zones=("memory",),
        families=("row_reduction",),
        advice=(
            "Load the row into dynamic shared memory in the first pass and let all later passes read it from "
            "there. Ask for more than 48 KiB with cudaFuncSetAttribute; read from global memory again where the "
            "row does not fit."
        ),
        effect=(
            "One pass over global memory for rows of up to about fifty thousand floats. Large rows leave room for "
            "one block per multiprocessor only, so give it many threads."
        ),
        example="""\
extern __shared__ float row[];
for (int k = threadIdx.x; k < cols; k += THREADS) { row[k] = x[k]; most = fmaxf(most, row[k]); }
""",
        excludes=("row-in-registers",),
    ),
    Strategy(
        name="shared-tile",
        title="Stage tiles of both operands in shared memory",
        backends=("cuda",),
        zones=("compute", "middle", "memory"),
        families=("matmul",),
        advice=(
            "Compute a tile of the output per block: in each step load a tile of A and a tile of B into shared "
            "memory, side by side and coalesced whatever way the operands are stored, synchronise, and multiply "
            "from there."
        ),
        effect=(
            "Every element loaded is used as often as the tile is wide: ten times and more over the plain kernel. "
            "Alone it is bound by shared memory; combine it with register tiles."
        ),
        example="""\
for (int k0 = 0; k0 < K; k0 += TK) {
  load_tiles(k0);
  __syncthreads();
  for (int k = 0; k < TK; ++k) sum += As[k][row] * Bs[k][col];
  __syncthreads();
}
""",
        parameters=(StrategyParameter("depth", ("16", "8", "32")),),
    ),
    Strategy(
        name="shared-transpose",
        title="Transpose through a shared tile",
        backends=("cuda",),
        zones=("memory",),
        families=("transpose",),
        advice=(
            "Move a 32 x 32 tile: read it row by row (coalesced) into shared memory declared [32][33], synchronise, "
            "and write it out row by row of the transposed matrix (coalesced again). The extra column spreads a "
            "column over all 32 banks. Use 32 x 8 threads and 4 rows per thread. The same tile serves permutations "
            "that move the last axis, and a product whose operand lies the wrong way round."
        ),
        effect=(
            "A plain transposition reaches 10-25 % of the bandwidth, because one of its two sides is strided; the "
            "tile reaches 80-95 %. Without the extra column the reads of a column are 32-way bank conflicts and half "
            "of that is lost again. Does not help where the last axis stays in its place: then whole rows can be "
            "copied."
        ),
        example="""\
__global__ void transpose(const float* in, float* out, int rows, int cols) {  // blockDim (32, 8)
  __shared__ float tile[32][33];
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (row + j < rows && col < cols) tile[threadIdx.y + j][threadIdx.x] = in[(long long)(row + j) * cols + col];
  __syncthreads();
  col = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (row + j < cols && col < rows) out[(long long)(row + j) * rows + col] = tile[threadIdx.x][threadIdx.y + j];
}
""",
    ),
    Strategy(
        name="single-kernel-launch",
        title="One launch per call",
        backends=("cuda", "triton"),
        zones=("latency",),
        families=(),
        advice=(
            "Do everything in one launch. Each further kernel costs 2-5 us, which is more than small problems "
            "compute. Replace a second pass by the last block to finish (it counts with an atomic), by a cluster, or "
            "by one block that does it all; fold clearing of an output into the kernel that writes it. Call no "
            "cudaMemsetAsync, no attribute queries and no occupancy calculation in launch where a constant will do."
        ),
        effect=(
            "Each launch saved is 2-5 us: 2-3 times for operators that take under 10 us. Means nothing for kernels of "
            "a millisecond, where a second small kernel is cheaper than atomics."
        ),
        example="""\
__global__ void mean(const float* x, float* out, int n) {  // <<<1, 1024>>>, n up to some 100 000
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 1024) sum += x[i];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  __shared__ float warps[32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = threadIdx.x < 32 ? warps[threadIdx.x] : 0.0f;
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x == 0) *out = sum / n;
}
""",
    ),
    Strategy(
        name="small-problem-one-block",
        title="Few blocks for tiny problems",
        backends=("cuda",),
        zones=("latency",),
        families=("full_reduction", "row_reduction", "elementwise", "matmul", "scan"),
        advice=(
            "With under about 100 000 elements neither bandwidth nor arithmetic matters: the time is the launch plus "
            "one trip through memory (about 1 us) per dependent step. Make those steps few: load everything at once "
            "(vector loads, all independent), reduce by shuffles with a single barrier, store. Use one block where a "
            "result needs all the data, otherwise as many blocks of 128-256 threads as give every thread one vector. "
            "No loops over memory, no second kernel, no atomics."
        ),
        effect=(
            "From 8-15 us down to the 3-4 us that an empty launch takes. Once data exceed about 1 MiB one block is "
            "far too slow: it draws at most some 50-100 GB/s."
        ),
        example="""\
__global__ void sum_small(const float4* x, float* out, int quads) {  // one warp, up to 256 quads
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; ++k) {  // eight independent loads in flight
    int i = k * 32 + threadIdx.x;
    if (i < quads) { float4 v = x[i]; sum += (v.x + v.y) + (v.z + v.w); }
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x == 0) *out = sum;
}
""",
    ),
    Strategy(
        name="split-k",
        title="Share the depth of a product between blocks",
        backends=("cuda",),
        zones=("compute", "middle", "memory", "latency"),
        families=("matmul",),
        advice=(
            "Where the output has fewer tiles than the device has multiprocessors, let several blocks work on one "
            "tile, each on a part of the depth, write partial sums to the workspace and add them in a second "
            "kernel."
        ),
        effect=(
            "Many times faster for small outputs with a long depth, with about as many parts as give every "
            "multiprocessor two blocks; a loss where there are enough tiles already."
        ),
        example="""\
const int64_t first = depth * blockIdx.z / SPLIT, last = depth * (blockIdx.z + 1) / SPLIT;
""",
        parameters=(StrategyParameter("parts", ("4", "2", "8", "16", "32", "64", "128")),),
    ),
    Strategy(
        name="split-product",
        title="Float32 products from parts on tensor cores",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul", "convolution", "attention"),
        advice=(
            "Write each float32 factor as a sum of two fp16 parts (the rounded value, and what the rounding left, "
            "scaled by 2048) or of two TF32 parts, and add three products on tensor cores: large with large, large "
            "with small, small with large. Tensor cores truncate when they accumulate: after every 32 to 128 terms "
            "add the partial sums to float32 registers with ordinary additions and begin anew from zero. Split while "
            "tiles are written to shared memory, once per element; `<warpsmith/split_product.cuh>` does, for sm_90a."
        ),
        effect=(
            "Two to four times float32 arithmetic on large products. Without the additions in ordinary registers the "
            "error grows with the number of terms and exceeds the limit; one part alone always does."
        ),
        example="""\
__half large = __float2half_rn(a);
__half small = __float2half_rn((a - __half2float(large)) * 2048.0f);
// per chunk: mma(part, a_large, b_large); mma(rest, a_large, b_small); mma(rest, a_small, b_large);
sum += part + rest * (1.0f / 2048.0f);  // in ordinary registers, then part = rest = 0
""",
        needs=("shared-tile",),
        excludes=("tensor-cores",),
        precisions=("fp32",),
        least_arch=80,
    ),
    Strategy(
        name="split-rows",
        title="Several blocks for each of a few long rows",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("row_reduction",),
        advice=(
            "Where there are fewer rows than the device has places for blocks, let several blocks share a row. Each "
            "writes its part of the sum or maximum to the workspace; the next kernel adds the parts up, in a fixed "
            "order, before it goes on."
        ),
        effect=(
            "Many times faster for some dozens of rows with a million elements each, where one block per row leaves "
            "most of the device idle. A loss for many rows: every reduction ends a kernel, and the next one reads the "
            "row again."
        ),
        example="""\
const int64_t row = blockIdx.x / parts, part = blockIdx.x % parts, end = cols * (part + 1) / parts;
for (int64_t k = cols * part / parts + threadIdx.x; k < end; k += THREADS) sum += x[row * cols + k];
""",
        parameters=(StrategyParameter("blocks", ("2048", "1024", "4096")),),
        excludes=("block-per-row", "warp-per-row", "row-in-registers", "row-in-shared", "online-softmax"),
    ),
    Strategy(
        name="streaming-stores",
        title="Write results past the cache",
        backends=("cuda",),
        zones=("memory",),
        families=("elementwise", "row_reduction"),
        advice=(
            "Store results that the kernel does not read again with __stcs (evict first), so that they do not "
            "push inputs out of the cache."
        ),
        effect=(
            "A few per cent where inputs are read more than once or the working set is near the size of the L2 "
            "cache. None or a little loss where the next kernel would have found the result in L2."
        ),
        example="""\
__stcs(reinterpret_cast<float4*>(out) + i, v);
""",
    ),
    Strategy(
        name="swizzled-shared",
        title="Swizzle the shared-memory layout",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul", "transpose", "attention", "convolution"),
        advice=(
            "Store the 16-byte unit c of row r at position c ^ (r & 7) of the row (8 units, 128 bytes per row), and "
            "read it back by the same rule. Rows and columns are then both free of bank conflicts, at no cost in "
            "memory, and every unit keeps its 16-byte alignment, which a padding of one float destroys. ldmatrix, "
            "cp.async and TMA's 128-byte mode all want this form."
        ),
        effect=(
            "Takes 8-way conflicts of column-wise or ldmatrix reads down to none: 10-50 % in matrix products whose "
            "limit is shared memory. Nothing to gain where the profile shows no bank conflicts; for scalar reads a "
            "padding column is simpler."
        ),
        example="""\
__device__ int slot(int row, int unit) { return row * 8 + (unit ^ (row & 7)); }  // in float4
__global__ void turn(const float4* in, float4* out) {  // 8 x 8 units, 64 threads
  __shared__ float4 tile[64];
  int row = threadIdx.x / 8, unit = threadIdx.x % 8;
  tile[slot(row, unit)] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[slot(unit, row)];
}
""",
    ),
    Strategy(
        name="tensor-cores",
        title="Multiply on tensor cores",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul",),
        advice=(
            "Multiply with wmma or mma instructions, in the precision of the task: "
            "tiles of 16 by 16 per warp, operands through shared memory, sums in float32."
        ),
        effect="Up to an order of magnitude over ordinary arithmetic.",
        precisions=("tf32", "fp16", "bf16"),
        example="""\
wmma::load_matrix_sync(a, As, lda);
wmma::mma_sync(sum, a, b, sum);
""",
        needs=("shared-tile",),
        excludes=("register-tile", "double-buffer", "async-copy", "padded-shared", "split-k"),
    ),
    Strategy(
        name="thread-coarsening",
        title="Several results per thread",
        backends=("cuda",),
        zones=("memory", "middle", "compute", "latency"),
        families=(),
        advice=(
            "Let each thread compute 2 to 8 results. Load all the inputs of its share first, into registers, and only "
            "then compute: independent loads in flight are what hides memory latency. Keep the results of one thread "
            "blockDim.x apart (or adjacent and loaded as one vector), so that each load stays coalesced. Reuse index "
            "arithmetic, broadcast values and shared-memory reads among the results."
        ),
        effect=(
            "10-40 % for light element-wise kernels, where one load per thread leaves the memory system idle; in "
            "matrix-like kernels the reuse per shared-memory read grows with the share. Past about 8 results per "
            "thread registers run short and occupancy falls. Harmful for small problems, which need every thread they "
            "can get."
        ),
        example="""\
template <int ITEMS> __global__ void scaled(const float* x, float* out, int n, float a) {
  int base = blockIdx.x * blockDim.x * ITEMS + threadIdx.x;
  float v[ITEMS];
  for (int k = 0; k < ITEMS; ++k) { int i = base + k * blockDim.x; v[k] = i < n ? x[i] : 0.0f; }
  for (int k = 0; k < ITEMS; ++k) { int i = base + k * blockDim.x; if (i < n) out[i] = a * v[k]; }
}
""",
    ),
    Strategy(
        name="tma-loads",
        title="Bulk copies by the tensor memory accelerator",
        backends=("cuda",),
        zones=("memory", "middle", "compute"),
        families=("matmul", "row_reduction", "attention", "convolution"),
        advice=(
            "Let one thread start a bulk copy from global to shared memory, and let an mbarrier count the bytes; no "
            "other thread spends registers or instructions on addresses. Rows and other contiguous pieces need only "
            "cp.async.bulk, no descriptor: address and size must be multiples of 16 bytes. Tiles of a matrix need a "
            "CUtensorMap made on the host, with a swizzle that matches how the tile is read (128 bytes for WGMMA). "
            "Keep 2 to 4 stages in flight."
        ),
        effect=(
            "5-20 % for matrix products and attention on H100, above all together with WGMMA, and 2-10 % for row "
            "kernels, where it frees registers for deeper pipelines. Not on older GPUs; no use for rows under about 1 "
            "KiB or rows whose size is not a multiple of 16 bytes."
        ),
        example="""\
using barrier = cuda::barrier<cuda::thread_scope_block>;
__global__ void copy_row(const float* x, float* out, int cols) {  // cols % 4 == 0 and cols <= 4096
  __shared__ alignas(16) float row[4096];
  __shared__ barrier ready;
  if (threadIdx.x == 0) init(&ready, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    cuda::device::memcpy_async_tx(row, x + (size_t)blockIdx.x * cols, cuda::aligned_size_t<16>(cols * 4), ready);
    (void)cuda::device::barrier_arrive_tx(ready, 1, cols * 4);
  }
  ready.wait_parity(false);  // the first phase; the next use of the barrier waits for true
  for (int i = threadIdx.x; i < cols; i += blockDim.x) out[(size_t)blockIdx.x * cols + i] = row[i]; }
""",
        least_arch=90,
    ),
    Strategy(
        name="vector-loads",
        title="Load and store several elements per instruction",
        backends=("cuda",),
        zones=("memory", "latency", "middle"),
        families=("elementwise", "row_reduction", "full_reduction", "matmul"),
        advice=(
            "Let each thread load and store 16 bytes at once: four floats as a float4, eight halves as a uint4. "
            "Reinterpret the pointer as a pointer to an aligned struct, and make sure that the row length is a "
            "multiple of the width and the pointer aligned; choose a scalar version of the kernel at launch where "
            "it is not."
        ),
        effect=(
            "Fewer instructions per byte and more bytes in flight: often the step from two thirds of the memory "
            "bandwidth to nine tenths. No gain where the kernel is bound by arithmetic or the access is strided."
        ),
        example="""\
const float4 v = reinterpret_cast<const float4*>(x)[i];
out4[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
""",
        parameters=(StrategyParameter("width", ("4", "2", "8")),),
    ),
    Strategy(
        name="warp-per-row",
        title="One warp for each row",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("row_reduction",),
        advice=(
            "Give every row to one warp and put several rows into a block. Reductions then need shuffles only: no "
            "shared memory and no block-wide barrier."
        ),
        effect=(
            "Best for rows of up to one or two thousand elements, where a whole block has too little to do and "
            "barriers dominate. Worse for long rows: one warp has too few bytes in flight."
        ),
        example="""\
const int64_t row = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
for (int64_t k = threadIdx.x % 32; k < cols; k += 32) sum += x[row * cols + k];
""",
        needs=("warp-shuffle-reduction",),
        excludes=("block-per-row",),
    ),
    Strategy(
        name="warp-scan",
        title="Prefix sums inside a warp",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("scan", "selection"),
        advice=(
            "Scan 32 values by five __shfl_up_sync steps with distances 1, 2, 4, 8, 16: no shared memory, no barrier. "
            "Let each lane first scan 4 to 8 values of its own in registers (loaded as a float4), shuffle only the "
            "lanes' totals, and add the result back. Short rows (up to about 1024 elements) get one warp each, in a "
            "loop that carries the running total."
        ),
        effect=(
            "3-5 times over a scan through shared memory with a barrier per step. For rows longer than a few thousand "
            "elements use whole blocks. Needs all 32 lanes active: do not return early."
        ),
        example="""\
__device__ float inclusive_scan(float v) {
  int lane = threadIdx.x % 32;
  for (int d = 1; d < 32; d *= 2) {
    float other = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += other;
  }
  return v;
}
""",
    ),
    Strategy(
        name="warp-shuffle-reduction",
        title="Reduce with shuffles instead of shared memory",
        backends=("cuda",),
        zones=("memory", "latency"),
        families=("row_reduction", "full_reduction"),
        advice=(
            "Combine partial results inside a warp with __shfl_xor_sync in five steps, and only one value per "
            "warp through shared memory."
        ),
        effect=("Two barriers per reduction instead of eight to ten: it counts for short rows and small problems."),
        example="""\
for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
""",
    ),
    Strategy(
        name="warp-specialisation",
        title="Loader warps and computing warps",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul", "attention", "convolution"),
        advice=(
            "Divide the block by warp: one warp (or one warp group of 128 threads) only fills shared-memory stages by "
            "cp.async or TMA, the others only compute on full stages. Give every stage two barriers: full (the loader "
            "arrives, consumers wait) and empty (consumers arrive, the loader waits). Use 3 or 4 stages. On Hopper "
            "move registers from loaders to consumers with setmaxnreg."
        ),
        effect=(
            "On Hopper 10-30 % over a well pipelined uniform kernel with WGMMA, because address arithmetic and "
            "waiting leave the computing warps; on Ampere seldom more than 5 %, where multi-stage cp.async issued by "
            "all warps does as well. Not worth its complexity in memory-bound kernels without reuse."
        ),
        example="""\
__global__ void pipeline(const float* x, float* out, int tiles) {  // 64 threads: warp 0 loads, warp 1 computes
  __shared__ float stage[2][32];
  int lane = threadIdx.x % 32;
  bool loader = threadIdx.x < 32;
  for (int t = 0; t <= tiles; ++t) {
    if (loader && t < tiles) stage[t % 2][lane] = x[t * 32 + lane];
    if (!loader && t > 0) out[(t - 1) * 32 + lane] = sqrtf(stage[(t - 1) % 2][lane]);
    __syncthreads();  // with more than two stages: one full and one empty mbarrier per stage instead
  }
}
""",
        least_arch=80,
    ),
    Strategy(
        name="wgmma",
        title="Matrix products by warp groups (WGMMA)",
        backends=("cuda",),
        zones=("compute", "middle"),
        families=("matmul", "attention", "convolution"),
        advice=(
            "Compute with wgmma.mma_async on 128 threads: B (and A, unless it comes from registers) lies in shared "
            "memory in a 128-byte swizzled layout that a 64-bit descriptor names; the sums stay in registers as "
            "float32. Tiles of 128 x 128 or 128 x 256 with k = 64 per stage, filled by TMA. Order: wgmma.fence, all "
            "products of the stage, commit_group, and wait_group 1, so that the next stage's products are queued "
            "before the last one's are awaited. Build for sm_90a."
        ),
        effect=(
            "The only way to H100's full tensor rate: mma.sync reaches about 60-65 % of it, WGMMA with TMA 80-90 %. "
            "Not for strict fp32 tasks, whose tolerance TF32, fp16 and bf16 exceed, and not for products with any "
            "side under 64."
        ),
        example="""\
__device__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b) {  // m64n8k16; a, b: descriptors
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;"
               " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
""",
        least_arch=90,
        precisions=("tf32", "fp16", "bf16"),
    ),
)
