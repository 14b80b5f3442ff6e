// Products of float32 matrices and of stacks of them, in the fp32 class, built from split_product.cuh.
//
// multiply_bytes() and multiply() choose between tiles of 128 x 192 and 128 x 128 by an estimate of the time, and split
// the terms between several thread blocks where there are fewer tiles than multiprocessors. Class says how exact the
// result is: Float32, or Tf32 with one fp16 product instead of three.
#pragma once

#include <warpsmith/split_product.cuh>

namespace warpsmith {

struct Product {
  int64_t stack, rows, terms, columns;
  bool shared_b;  // all products of the stack have the same second factor
};

enum class Way { WIDE, NARROW };

struct Plan {
  Way way;
  int splits;
};

// Shapes, and clock cycles that a tile takes per term (measured on an H200).
struct Float32 {
  using Wide = split::Shape<192, 128, 32, 3, 1, false, true>;
  using Narrow = split::Shape<128, 128, 32, 4, 1, false, true>;
  static constexpr double WIDE_CYCLES = 41, NARROW_CYCLES = 29;
};
struct Tf32 {
  using Wide = split::Shape<192, 256, 64, 3, 1, false, true, 1>;
  using Narrow = split::Shape<128, 256, 64, 4, 1, false, true, 1>;
  static constexpr double WIDE_CYCLES = 17, NARROW_CYCLES = 11.5;
};

// Estimated microseconds of one way; `best` is lowered and `plan` set where this way is faster.
template <class S>
inline void consider(const Product& p, Way way, double cycles_per_term, int sms, Plan& plan, double& best) {
  const double ghz = 1.6, bytes_per_us = 3.6e6;
  const int64_t tiles = split::round_up((p.rows + S::TILE_M - 1) / S::TILE_M, S::CLUSTER) *
                        ((p.columns + S::TILE_N - 1) / S::TILE_N) * p.stack;
  const int64_t chunks = (p.terms + S::CHUNK - 1) / S::CHUNK;
  const double a = double(p.stack) * p.rows * p.terms, b = double(p.shared_b ? 1 : p.stack) * p.columns * p.terms;
  const double before = 4.0 + (a + b) * (4 + 2 * S::PLANES) / bytes_per_us;
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

template <class Class>
inline Plan plan_for(const Product& p) {
  const int sms = split::multiprocessors();
  Plan plan = {Way::NARROW, 1};
  double best = 1e30;
  consider<typename Class::Wide>(p, Way::WIDE, Class::WIDE_CYCLES, sms, plan, best);
  consider<typename Class::Narrow>(p, Way::NARROW, Class::NARROW_CYCLES, sms, plan, best);
  return plan;
}

template <class S>
inline int64_t bytes_of(const Product& p, int splits) {
  const int64_t parts = splits > 1 ? split::round_up(p.stack * splits * p.rows * p.columns * 4, 256) : 0;
  return parts +
         split::plane_bytes(p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES).total() +
         split::plane_bytes(p.shared_b ? 1 : p.stack, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES)
             .total();
}

// Bytes of workspace that multiply() needs.
template <class Class = Float32>
inline int64_t multiply_bytes(const Product& p) {
  const Plan plan = plan_for<Class>(p);
  return plan.way == Way::WIDE ? bytes_of<typename Class::Wide>(p, plan.splits)
                               : bytes_of<typename Class::Narrow>(p, plan.splits);
}

template <class S, class Epilogue, class A, class B>
inline cudaError_t multiply_by(const Product& p, int splits, const A& a, const B& b, const Epilogue& epilogue,
                               void* workspace, cudaStream_t stream) {
  char* memory = static_cast<char*>(workspace);
  const int stack_b = p.shared_b ? 1 : int(p.stack);
  const split::Planes pa = split::planes_at(memory, p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES);
  memory += split::plane_bytes(p.stack, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES).total();
  const split::Planes pb = split::planes_at(memory, stack_b, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES);
  memory += split::plane_bytes(stack_b, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES).total();
  cudaError_t error = split::prepare<S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES>(a, pa, int(p.stack), stream);
  if (error == cudaSuccess) error = split::prepare<S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES>(b, pb, stack_b, stream);
  if (error != cudaSuccess) return error;
  // Row tiles that are worked on side by side. With few terms the result is written one column of tiles after the other;
  // with few columns all tiles of a row come one after the other, so that A is read from memory once.
  const int group = p.terms <= 128 ? 256 : p.terms <= 512 && pb.tiles <= 8 ? 1 : 8;
  const split::Task task{pa, pb, int(p.stack), p.shared_b ? 0 : 1, group, 0};
  if (splits == 1) return split::run_product<S>(task, split::Full{1}, epilogue, a, b, stream);
  float* parts = reinterpret_cast<float*>(memory);
  error = split::run_product<S>(
      task, split::Full{splits},
      split::Partial{parts, p.columns, p.rows * p.columns, int(p.columns), p.columns % 2 == 0}, a, b, stream);
  if (error != cudaSuccess) return error;
  const int64_t pairs = p.stack * p.rows * ((p.columns + 1) / 2), blocks = (pairs + 255) / 256;
  const int most = split::multiprocessors() * 8;
  split::add_parts<<<unsigned(blocks < most ? blocks : most), 256, 0, stream>>>(
      parts, splits, int(p.stack), int(p.rows), int(p.columns), int(p.terms), epilogue, a, b);
  return cudaGetLastError();
}

// The product of two factors (split::Matrix or others with the same members), handed to an epilogue.
template <class Class = Float32, class Epilogue, class A, class B>
inline cudaError_t multiply(const Product& p, const A& a, const B& b, const Epilogue& epilogue, void* workspace,
                            cudaStream_t stream) {
  const Plan plan = plan_for<Class>(p);
  return plan.way == Way::WIDE
             ? multiply_by<typename Class::Wide>(p, plan.splits, a, b, epilogue, workspace, stream)
             : multiply_by<typename Class::Narrow>(p, plan.splits, a, b, epilogue, workspace, stream);
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
