// Put into each candidate of this folder by next.sh, where it says (mixed.cuh).

// As kept_rows of kept.cuh, but the next row is reduced while a row is written, TUNE_BEHIND chunks behind.
template <typename P, int THREADS, int PACKS, int SLOTS>
__global__ void __launch_bounds__(THREADS + 32, 1)
    mixed_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks) {
  namespace cg = cooperative_groups;
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32, CHUNK = THREADS * PACKS;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[WARPS];
  __shared__ Stat of_blocks[2][kMostBlocks];
  __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS], told[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(blockIdx.x % unsigned(blocks));
  const int64_t first_row = blockIdx.x / unsigned(blocks), step = gridDim.x / unsigned(blocks);
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&full[k], 32);
      barrier_init(&empty[k], THREADS);
    }
    barrier_init(&told[0], unsigned(blocks));
    barrier_init(&told[1], unsigned(blocks));
    barriers_initialised();
  }
  cluster_sync();

  Place<SLOTS> place;
  if (warp == WARPS) {
    for (int64_t row = first_row; row < rows; row += step) {
      const RowPart<CHUNK> part(RowSpan(row, cols), rank, blocks);
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        barrier_wait(&empty[place.slot], place.parity ^ 1);
        fetch_chunk(policy, rows * cols, part, c, memory + place.slot * CHUNK, &full[place.slot]);
      }
    }
  } else {
    Place<SLOTS> again;  // the same slots once more
    unsigned turn = 0;   // rows done
    Stat next = P::none();
    int seen = 0;  // chunks of the next row that `next` is of
    auto see = [&](const RowSpan& span, const RowPart<CHUNK>& part) {
      float4 v[PACKS];
      barrier_wait(&full[place.slot], place.parity);
      const auto bits = take_chunk<P, THREADS, PACKS>(span, part, seen, memory + place.slot * CHUNK, v);
      next = P::merge(next, P::template local<PACKS>(v, bits));
      place.advance();
      ++seen;
    };
    for (int64_t row = first_row; row < rows; row += step, ++turn) {
      const RowSpan span(row, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      const auto early = load_early(policy, row, 0);
      while (seen < part.chunks) see(span, part);
      Stat stat = warp_merge<P>(next);
      if (lane == 0) of_warps[warp] = stat;
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
      const int side = turn & 1;
      if (warp == 0) {
        stat = warp_merge<P>(lane < WARPS ? of_warps[lane] : P::none());
        if (lane < blocks) {
          *cg::this_cluster().map_shared_rank(&of_blocks[side][rank], lane) = stat;
          barrier_arrive_remote(&told[side], unsigned(lane));
        }
      }
      barrier_wait_cluster(&told[side], (turn >> 1) & 1);
      stat = warp_merge<P>(lane < blocks ? of_blocks[side][lane] : P::none());
      const typename P::Ready ready = prepare_with(policy, stat, row, early);
      if (rank == 0 && threadIdx.x == 0) policy.once(stat, ready, row);
      const int64_t after = row + step < rows ? row + step : row;
      const RowSpan span_after(after, cols);
      const RowPart<CHUNK> part_after(span_after, rank, blocks);
      next = P::none(), seen = 0;
      for (int c = 0; c < part.chunks; ++c, again.advance()) {
        float4 v[PACKS];
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + again.slot * CHUNK, v);
        barrier_arrive(&empty[again.slot]);
        put_chunk<P, THREADS, PACKS>(policy, span, part, c, v, bits, ready, row);
        if (c >= TUNE_BEHIND && after != row && seen < part_after.chunks) see(span_after, part_after);
      }
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_mixed(const P& policy, int64_t rows, int64_t cols, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  auto kernel = mixed_rows<P, THREADS, PACKS, SLOTS>;
  int blocks = 1, clusters = 0;
  while (blocks < kMostBlocks && longest_kept(blocks, THREADS, PACKS, SLOTS) < cols) blocks *= 2;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(blocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess && blocks > 8) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * blocks));
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, blocks);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

