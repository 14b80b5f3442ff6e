// Products of float32 matrices and of stacks of them, in the fp32 class, built from split_product.cuh.
//
// multiply_bytes() and multiply() choose between three ways by an estimate of the time:
//   planes with tiles of 128 x 192 or 128 x 128 (the factors are split once, in a kernel of their own), and
//   direct (the factors are split on their way to the tensor cores, by every tile that uses them),
// each with the terms split between several thread blocks where there are fewer tiles than multiprocessors.
#pragma once

#include <warpsmith/split_product.cuh>

namespace warpsmith {

struct Product {
  int64_t stack, rows, terms, columns;
  bool shared_b;  // all products of the stack have the same second factor
};

enum class Way { WIDE, NARROW, DIRECT };

struct Plan {
  Way way;
  int splits;
};

using Wide = split::Shape<192, 128, 32, 3, 1, false, true>;
using Narrow = split::Shape<128, 128, 32, 4, 1, false, true>;
using Direct = split::DirectShape<6>;

// Estimated microseconds of one way; `best` is lowered and `plan` set where this way is faster.
template <class S>
inline void consider(const Product& p, Way way, double cycles_per_term, bool prepares, int sms, Plan& plan, double& best) {
  const double ghz = 1.6, bytes_per_us = 3.6e6;
  const int64_t tiles = split::round_up((p.rows + S::TILE_M - 1) / S::TILE_M, S::CLUSTER) *
                        ((p.columns + S::TILE_N - 1) / S::TILE_N) * p.stack;
  const int64_t chunks = (p.terms + S::CHUNK - 1) / S::CHUNK;
  const double a = double(p.stack) * p.rows * p.terms, b = double(p.shared_b ? 1 : p.stack) * p.columns * p.terms;
  const double before = prepares ? 4.0 + (a + b) * 8 / bytes_per_us : 0.0;
  for (int splits = 1; splits <= 64 && splits <= chunks; ++splits) {
    if (splits > 1 && tiles * (splits - 1) >= 2 * sms) break;
    const int64_t waves = (tiles * splits + sms - 1) / sms;
    const double loop = double(waves) * ((chunks + splits - 1) / splits) * S::CHUNK * cycles_per_term / (1000 * ghz) +
                        waves * 1.5;
    const double result = double(p.stack) * p.rows * p.columns * 4 / bytes_per_us;
    const double after = splits > 1 ? 4.0 + result * (2.0 * splits + 1) : 0.0;
    const double time = before + (loop > result ? loop : result) + after;
    if (time < best) best = time, plan = {way, splits};
  }
}

inline Plan plan_for(const Product& p) {
  const int sms = split::multiprocessors();
  Plan plan = {Way::NARROW, 1};
  double best = 1e30;
  consider<Wide>(p, Way::WIDE, 41, true, sms, plan, best);
  consider<Narrow>(p, Way::NARROW, 29, true, sms, plan, best);
  consider<Direct>(p, Way::DIRECT, 60, false, sms, plan, best);
  return plan;
}

template <class S>
inline int64_t bytes_of(const Product& p, int splits, bool planes) {
  int64_t bytes = splits > 1 ? split::round_up(p.stack * splits * p.rows * p.columns * 4, 256) : 0;
  if (planes)
    bytes += split::plane_bytes(p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK).total() +
             split::plane_bytes(p.shared_b ? 1 : p.stack, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK).total();
  return bytes;
}

inline int64_t multiply_bytes(const Product& p) {
  const Plan plan = plan_for(p);
  if (plan.way == Way::WIDE) return bytes_of<Wide>(p, plan.splits, true);
  if (plan.way == Way::NARROW) return bytes_of<Narrow>(p, plan.splits, true);
  return bytes_of<Direct>(p, plan.splits, false);
}

template <class S, bool PLANES, class Epilogue, class A, class B>
inline cudaError_t multiply_by(const Product& p, int splits, const A& a, const B& b,
                               const Epilogue& epilogue, void* workspace, cudaStream_t stream) {
  char* memory = static_cast<char*>(workspace);
  const int stack_b = p.shared_b ? 1 : int(p.stack);
  const split::Planes pa = split::planes_at(memory, p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK);
  if (PLANES) memory += split::plane_bytes(p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK).total();
  const split::Planes pb = split::planes_at(memory, stack_b, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK);
  if (PLANES) memory += split::plane_bytes(stack_b, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK).total();
  if constexpr (PLANES) {
    cudaError_t error = split::prepare<S::TILE_M, S::BLOCK_K, S::CHUNK>(a, pa, int(p.stack), stream);
    if (error == cudaSuccess) error = split::prepare<S::TILE_N, S::BLOCK_K, S::CHUNK>(b, pb, stack_b, stream);
    if (error != cudaSuccess) return error;
  }
  // With few terms the result is written column of tiles by column of tiles: all rows of A then stay in the cache.
  const split::Task task{pa, pb, int(p.stack), p.shared_b ? 0 : 1, p.terms <= 128 ? 256 : 8, 0};
  const split::Full part{splits};
  auto run = [&](const auto& end) {
    if constexpr (PLANES)
      return split::run_product<S>(task, part, end, a, b, stream);
    else
      return split::run_direct<S>(task, part, end, a, b, stream);
  };
  if (splits == 1) return run(epilogue);
  float* parts = reinterpret_cast<float*>(memory);
  const cudaError_t error =
      run(split::Partial{parts, p.columns, p.rows * p.columns, int(p.columns), p.columns % 2 == 0});
  if (error != cudaSuccess) return error;
  const int64_t pairs = p.stack * p.rows * ((p.columns + 1) / 2), blocks = (pairs + 255) / 256;
  const int most = split::multiprocessors() * 8;
  split::add_parts<<<unsigned(blocks < most ? blocks : most), 256, 0, stream>>>(
      parts, splits, int(p.stack), int(p.rows), int(p.columns), int(p.terms), epilogue, a, b);
  return cudaGetLastError();
}

template <class Epilogue, class A, class B>
inline cudaError_t multiply(const Product& p, const A& a, const B& b, const Epilogue& epilogue,
                            void* workspace, cudaStream_t stream) {
  const Plan plan = plan_for(p);
  if (plan.way == Way::WIDE) return multiply_by<Wide, true>(p, plan.splits, a, b, epilogue, workspace, stream);
  if (plan.way == Way::NARROW) return multiply_by<Narrow, true>(p, plan.splits, a, b, epilogue, workspace, stream);
  return multiply_by<Direct, false>(p, plan.splits, a, b, epilogue, workspace, stream);
}

// The result as a dense row-major tensor.
inline split::Store dense(float* out, const Product& p) {
  return {out, p.columns, p.rows * p.columns, int(p.columns), p.columns % 2 == 0};
}

// A factor [stack, rows, terms] or, transposed, [stack, terms, rows].
inline split::Matrix plain(const float* data, int64_t rows, int64_t terms, bool shared = false) {
  return {data, terms, 1, shared ? 0 : rows * terms};
}
inline split::Matrix transposed(const float* data, int64_t rows, int64_t terms, bool shared = false) {
  return {data, 1, rows, shared ? 0 : rows * terms};
}

}  // namespace warpsmith
