// One triangle of the product of two float32 matrices; the other one is zero, whatever the factors hold there.
//
// The main loop is that of split_product.cuh. Tiles that have no element of the triangle add up nothing. Factors may hold
// any values: a tile of the triangle needs all terms.
#pragma once

#include <warpsmith/matmul.cuh>

namespace warpsmith {
namespace split {

enum class Triangle { UPPER, LOWER };  // with the diagonal

// All terms, or one of several equal parts of them, where a tile has elements of the triangle. ONE_EACH: every tile has a
// thread block of its own, so that multiprocessors with an empty tile take the next one at once.
template <Triangle SIDE, bool ONE_EACH>
struct OfTriangle {
  int splits, group;
  static constexpr bool ORDERED = ONE_EACH;
  template <class S>
  __device__ __forceinline__ Extent extent(int tile_m, int tile_n, int split, int chunks) const {
    const int row = tile_m * S::TILE_M, column = tile_n * S::TILE_N;
    if (SIDE == Triangle::UPPER ? row >= column + S::TILE_N : column >= row + S::TILE_M) return {0, 0};
    return {int(int64_t(chunks) * split / splits), int(int64_t(chunks) * (split + 1) / splits)};
  }
  // Columns of `group` tiles one after the other, as work_at() has them for products without an order of their own.
  __device__ __forceinline__ int2 tile(int index, int rows, int columns) const {
    const int wide = group * columns, first = index / wide * group, high = min(rows - first, group);
    return make_int2(first + index % wide % high, index % wide / high);
  }
};

// Stores the elements of the triangle, and zeros for the others.
template <Triangle SIDE>
struct StoreTriangle {
  static constexpr bool REPAIRS = true;
  Store plain;
  __device__ __forceinline__ bool by_rows() const { return plain.by_rows(); }
  __device__ __forceinline__ float* row_at(int64_t slice, int row) const { return plain.row_at(slice, row); }
  __device__ __forceinline__ void finish(int64_t, int row, int column, float& u, float& v) const {
    if (SIDE == Triangle::UPPER ? column < row : column > row) u = 0.f;
    if (SIDE == Triangle::UPPER ? column + 1 < row : column + 1 > row) v = 0.f;
  }
  __device__ __forceinline__ void store(int64_t slice, int64_t stack, int row, int column, float u, float v) const {
    finish(stack, row, column, u, v);
    plain.store(slice, stack, row, column, u, v);
  }
};

}  // namespace split

// The plan of the product of half as many rows: about half of the tiles are empty.
template <class Class>
inline Plan plan_of_triangle(const Product& p) {
  return plan_for<Class>({p.stack, (p.rows + 1) / 2, p.terms, p.columns, p.shared_b});
}

// Bytes of workspace that multiply_triangle() needs.
template <class Class = Float32>
inline int64_t triangle_bytes(const Product& p) {
  const Plan plan = plan_of_triangle<Class>(p);
  return plan.way == Way::WIDE ? bytes_of<typename Class::Wide>(p, plan.splits)
                               : bytes_of<typename Class::Narrow>(p, plan.splits);
}

template <class S, split::Triangle SIDE>
inline cudaError_t triangle_by(const Product& p, int splits, const split::Matrix& a, const split::Matrix& b, float* out,
                               void* workspace, cudaStream_t stream) {
  char* memory = static_cast<char*>(workspace);
  const split::Planes pa = split::planes_at(memory, 1, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES);
  memory += split::plane_bytes(1, p.rows, p.terms, S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES).total();
  const split::Planes pb = split::planes_at(memory, 1, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES);
  memory += split::plane_bytes(1, p.columns, p.terms, S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES).total();
  cudaError_t error = split::prepare<S::TILE_M, S::BLOCK_K, S::CHUNK, S::PLANES>(a, pa, 1, stream);
  if (error == cudaSuccess) error = split::prepare<S::TILE_N, S::BLOCK_K, S::CHUNK, S::PLANES>(b, pb, 1, stream);
  if (error != cudaSuccess) return error;
  const int group = 8;
  const split::Task task{pa, pb, 1, 0, group, 0};
  const split::StoreTriangle<SIDE> epilogue{dense(out, p)};
  if (splits == 1)
    return split::run_product<S>(task, split::OfTriangle<SIDE, true>{1, group}, epilogue, a, b, stream);
  float* parts = reinterpret_cast<float*>(memory);
  const split::Partial partial{parts, p.columns, p.rows * p.columns, int(p.columns), p.columns % 2 == 0};
  error = split::run_product<S>(task, split::OfTriangle<SIDE, false>{splits, group}, partial, a, b, stream);
  if (error != cudaSuccess) return error;
  const int64_t pairs = p.rows * ((p.columns + 1) / 2), blocks = (pairs + 255) / 256;
  const int most = split::multiprocessors() * 8;
  split::add_parts<<<unsigned(blocks < most ? blocks : most), 256, 0, stream>>>(
      parts, splits, 1, int(p.rows), int(p.columns), int(p.terms), epilogue, a, b);
  return cudaGetLastError();
}

// The upper or lower triangle of the product of two matrices, into a dense row-major one.
template <split::Triangle SIDE, class Class = Float32>
inline cudaError_t multiply_triangle(const Product& p, const split::Matrix& a, const split::Matrix& b, float* out,
                                     void* workspace, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.terms == 0) return cudaMemsetAsync(out, 0, size_t(p.rows) * size_t(p.columns) * 4, stream);
  const Plan plan = plan_of_triangle<Class>(p);
  return plan.way == Way::WIDE
             ? triangle_by<typename Class::Wide, SIDE>(p, plan.splits, a, b, out, workspace, stream)
             : triangle_by<typename Class::Narrow, SIDE>(p, plan.splits, a, b, out, workspace, stream);
}

}  // namespace warpsmith
