// How an fp32 matrix product is best written without tensor cores: sums of a thread, depth of a tile, stages, and how
// tiles reach shared memory. Prints a line for each form; benchmarks/README.md has those that matter.
//
//     nvcc -O3 -arch=sm_90a -std=c++17 -DWW=4 benchmarks/probes/products.cu -o products && ./products
//
// WW=4: 2048 x 8192 x 4096, in packs of four; WW=1: 8205 x 2949 x 5921, element by element. TM x TN sums of a thread, D
// the depth of a tile, S stages, B blocks of a multiprocessor at least, g rows of tiles that are walked together.
#include <cuda_pipeline.h>

#include "timing.cuh"

template <int W>
struct alignas(4 * W) Pk {
  float at[W];
};
// MODE 0: A transposed in shared by registers; 1: A transposed by 4-byte async; 2: A as it lies, by async of W
template <int TM, int TN, int DEPTH, int STAGES, int MODE, int W, int MINB>
__global__ void __launch_bounds__(256, MINB)
    mm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K, int gm) {
  constexpr int BM = 16 * TM, BN = 16 * TN, T = 256, PAD = 4;
  constexpr int AR = MODE == 2 ? BM * (DEPTH + PAD) : DEPTH * (BM + PAD);
  constexpr int BR = DEPTH * (BN + PAD);
  extern __shared__ __align__(16) float sh[];
  float* As = sh;
  float* Bs = sh + STAGES * AR;
  int tn = (N + BN - 1) / BN, tm = (M + BM - 1) / BM;
  int bid = blockIdx.x;
  int bm, bn;
  if (gm > 0) {
    int per = gm * tn;
    int g = bid / per;
    int first = g * gm;
    int rows = min(gm, tm - first);
    bm = first + bid % per % rows;
    bn = bid % per / rows;
  } else {
    bm = bid / tn;
    bn = bid % tn;
  }
  const int r0 = bm * BM, c0 = bn * BN;
  const int tx = threadIdx.x % 8 + 8 * (threadIdx.x / 32 % 2), ty = threadIdx.x % 32 / 8 + 4 * (threadIdx.x / 64);
  constexpr int NA = (DEPTH * BM / W + T - 1) / T, NB = (DEPTH * BN / W + T - 1) / T;
  Pk<W> fa[MODE == 0 ? NA : 1], fb[MODE == 0 ? NB : 1];
  float acc[TM][TN] = {};
  auto loadA = [&](int k0, int st) {
#pragma unroll
    for (int i = 0; i < NA; i++) {
      int at = i * T + threadIdx.x;
      int k = at % (DEPTH / W) * W, x = at / (DEPTH / W);
      bool in = r0 + x < M && k0 + k < K;
      const float* s = A + int64_t(r0 + x) * K + k0 + k;
      if constexpr (MODE == 0) {
        if (in)
          fa[i] = *reinterpret_cast<const Pk<W>*>(s);
        else
          for (int j = 0; j < W; j++) fa[i].at[j] = 0;
      } else if constexpr (MODE == 1) {
#pragma unroll
        for (int j = 0; j < W; j++)
          __pipeline_memcpy_async(&As[st * AR + (k + j) * (BM + PAD) + x], in ? s + j : A, 4, in ? 0 : 4);
      } else
        __pipeline_memcpy_async(&As[st * AR + x * (DEPTH + PAD) + k], in ? s : A, W * 4, in ? 0 : W * 4);
    }
  };
  auto loadB = [&](int k0, int st) {
#pragma unroll
    for (int i = 0; i < NB; i++) {
      int at = i * T + threadIdx.x;
      int x = at % (BN / W) * W, k = at / (BN / W);
      bool in = c0 + x < N && k0 + k < K;
      const float* s = B + int64_t(k0 + k) * N + c0 + x;
      if constexpr (MODE == 0) {
        if (in)
          fb[i] = *reinterpret_cast<const Pk<W>*>(s);
        else
          for (int j = 0; j < W; j++) fb[i].at[j] = 0;
      } else
        __pipeline_memcpy_async(&Bs[st * BR + k * (BN + PAD) + x], in ? s : B, W * 4, in ? 0 : W * 4);
    }
  };
  auto put = [&](int st) {
    if constexpr (MODE == 0) {
#pragma unroll
      for (int i = 0; i < NA; i++) {
        int at = i * T + threadIdx.x;
        int k = at % (DEPTH / W) * W, x = at / (DEPTH / W);
#pragma unroll
        for (int j = 0; j < W; j++) As[st * AR + (k + j) * (BM + PAD) + x] = fa[i].at[j];
      }
#pragma unroll
      for (int i = 0; i < NB; i++) {
        int at = i * T + threadIdx.x;
        int x = at % (BN / W) * W, k = at / (BN / W);
        *reinterpret_cast<Pk<W>*>(&Bs[st * BR + k * (BN + PAD) + x]) = fb[i];
      }
    }
  };
  auto compute = [&](int st) {
    const float *a0 = As + st * AR, *b0 = Bs + st * BR;
    if constexpr (MODE != 2) {
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; i += 4)
          *reinterpret_cast<float4*>(a + i) = *reinterpret_cast<const float4*>(a0 + k * (BM + PAD) + i * 16 + ty * 4);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
          *reinterpret_cast<float4*>(b + j) = *reinterpret_cast<const float4*>(b0 + k * (BN + PAD) + j * 16 + tx * 4);
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
          for (int j = 0; j < TN; j++) acc[i][j] += a[i] * b[j];
      }
    } else {
#pragma unroll
      for (int k = 0; k < DEPTH; k += 4) {
        float b[4][TN];
#pragma unroll
        for (int q = 0; q < 4; q++)
#pragma unroll
          for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4*>(b[q] + j) =
                *reinterpret_cast<const float4*>(b0 + (k + q) * (BN + PAD) + j * 16 + tx * 4);
#pragma unroll
        for (int i = 0; i < TM; i++) {  // row of thread: i/1: rows ty + 16*i
          float4 a = *reinterpret_cast<const float4*>(a0 + (i * 16 + ty) * (DEPTH + PAD) + k);
#pragma unroll
          for (int j = 0; j < TN; j++) {
            acc[i][j] += a.x * b[0][j];
            acc[i][j] += a.y * b[1][j];
            acc[i][j] += a.z * b[2][j];
            acc[i][j] += a.w * b[3][j];
          }
        }
      }
    }
  };
  const int steps = (K + DEPTH - 1) / DEPTH;
  if constexpr (MODE == 0) {
    loadA(0, 0);
    loadB(0, 0);
    put(0);
    __syncthreads();
    int now = 0;
    for (int s = 0; s < steps; s++) {
      if (s + 1 < steps) {
        loadA((s + 1) * DEPTH, 0);
        loadB((s + 1) * DEPTH, 0);
      }
      compute(now);
      if (s + 1 < steps) put(1 - now);
      __syncthreads();
      now ^= 1;
    }
  } else {
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
      if (s < steps) {
        loadA(s * DEPTH, s);
        loadB(s * DEPTH, s);
      }
      __pipeline_commit();
    }
    int now = 0, nxt = STAGES - 1;
    for (int s = 0; s < steps; s++) {
      __pipeline_wait_prior(STAGES - 2);
      __syncthreads();
      if (s + STAGES - 1 < steps) {
        loadA((s + STAGES - 1) * DEPTH, nxt);
        loadB((s + STAGES - 1) * DEPTH, nxt);
      }
      __pipeline_commit();
      compute(now);
      now = now + 1 == STAGES ? 0 : now + 1;
      nxt = nxt + 1 == STAGES ? 0 : nxt + 1;
    }
  }
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int r = MODE == 2 ? r0 + i * 16 + ty : r0 + (i / 4) * 64 + ty * 4 + i % 4;
    if (r < M) {
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        int c = c0 + j * 16 + tx * 4;
        if (W == 4) {
          if (c < N)
            *reinterpret_cast<float4*>(C + int64_t(r) * N + c) =
                make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
        } else
          for (int q = 0; q < 4; q++)
            if (c + q < N) C[int64_t(r) * N + c + q] = acc[i][j + q];
      }
    }
  }
}
template <int TM, int TN, int DEPTH, int STAGES, int MODE, int W, int MINB>
void go(const float* A, const float* B, float* C, int M, int N, int K, int gm) {
  constexpr int BM = 16 * TM, BN = 16 * TN, PAD = 4;
  auto k = mm<TM, TN, DEPTH, STAGES, MODE, W, MINB>;
  size_t sh = STAGES * 4 * ((MODE == 2 ? BM * (DEPTH + PAD) : DEPTH * (BM + PAD)) + DEPTH * (BN + PAD));
  CHECK(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sh)));
  cudaFuncAttributes fa;
  cudaFuncGetAttributes(&fa, k);
  int grid = ((M + BM - 1) / BM) * ((N + BN - 1) / BN);
  float m = timed([&] { k<<<grid, 256, sh>>>(A, B, C, M, N, K, gm); });
  float h[2];
  cudaMemcpy(h, C + int64_t(M - 1) * N + N - 1, 4, cudaMemcpyDeviceToHost);
  printf("mm %dx%dx%d TM%d TN%d D%d S%d MODE%d W%d B%d g%d regs%d spill%zu sh%zu %.4f ms %.2f TF  [%g]\n", M, K, N, TM,
         TN, DEPTH, STAGES, MODE, W, MINB, gm, fa.numRegs, fa.localSizeBytes, sh, m, 2.0 * M * N * K / m / 1e9, h[0]);
}
__global__ void fill(float* p, int64_t n) {
  for (int64_t i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL)
    p[i] = ((i * 2654435761u) % 1000) / 1000.f - 0.5f;
}
template <int W>
void all(int M, int N, int K, const float* A, const float* B, float* C) {
  go<8, 8, 8, 2, 1, W, 2>(A, B, C, M, N, K, 0);
  go<8, 8, 16, 2, 1, W, 2>(A, B, C, M, N, K, 0);
  go<8, 8, 16, 2, 1, W, 2>(A, B, C, M, N, K, 8);
  go<8, 8, 8, 2, 0, W, 2>(A, B, C, M, N, K, 0);
  go<8, 8, 16, 2, 0, W, 2>(A, B, C, M, N, K, 0);
  go<8, 8, 16, 3, 2, W, 2>(A, B, C, M, N, K, 8);
  go<8, 8, 32, 2, 2, W, 2>(A, B, C, M, N, K, 8);
  go<8, 8, 8, 4, 1, W, 2>(A, B, C, M, N, K, 8);
  go<16, 8, 8, 2, 0, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 16, 2, 0, W, 1>(A, B, C, M, N, K, 8);
  go<8, 16, 8, 2, 0, W, 1>(A, B, C, M, N, K, 8);
  go<8, 16, 16, 2, 0, W, 1>(A, B, C, M, N, K, 8);
  go<8, 16, 16, 3, 1, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 8, 4, 1, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 16, 3, 1, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 16, 3, 2, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 32, 2, 2, W, 1>(A, B, C, M, N, K, 8);
  go<16, 8, 16, 4, 2, W, 1>(A, B, C, M, N, K, 0);
  go<8, 16, 16, 3, 2, W, 1>(A, B, C, M, N, K, 8);
  go<8, 16, 32, 3, 2, W, 1>(A, B, C, M, N, K, 8);
}
int main() {
  float *A, *B, *C;
  int64_t n = 1 << 27;
  CHECK(cudaMalloc(&A, n * 4));
  CHECK(cudaMalloc(&B, n * 4));
  CHECK(cudaMalloc(&C, n * 4));
  fill<<<1024, 256>>>(A, n);
  fill<<<1024, 256>>>(B, n);
#if WW == 4
  all<4>(2048, 4096, 8192, A, B, C);
#else
  all<1>(8205, 5921, 2949, A, B, C);
#endif
}
