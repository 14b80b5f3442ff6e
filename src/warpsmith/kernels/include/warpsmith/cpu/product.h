// Products of float matrices on the CPU, and of stacks of matrices: any sizes, each factor as it lies or transposed.
//
// The result is divided into blocks of rows and columns, which threads take one after the other. A thread sums up tiles
// of a block (`kRows` rows x up to `kVectors` vectors of columns) in vector registers, up to TUNE_SUM_TERMS terms at a time.
// Tiles read the second factor where it lies if its columns are neighbours in memory and few rows use it; else the
// thread copies its columns to panels, in which the values of a tile are neighbours. Rows of the first factor are copied
// likewise, a strip of `kRows` at a time. Few rows times columns that lie along the terms are summed up as vectors of
// terms instead. Where there are too few blocks for all threads, blocks are parts of the sums, which are added up later.
//
// Sums depend on the number of threads that the process has at the first call, and on nothing else: a call gives the
// same bits every time.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef TUNE_SUM_TERMS
#define TUNE_SUM_TERMS 256  // of a sum in registers: more would cost accuracy
#endif
#ifndef TUNE_BLOCK_KB
#define TUNE_BLOCK_KB 0  // of a thread's panels; 0: what fits into the second-level cache
#endif

namespace warpsmith::products {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 8;
#elif defined(__AVX__)
constexpr int kLanes = 8, kRows = 4;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRows = 8;
#else
constexpr int kLanes = 4, kRows = 4;
#endif
constexpr int kVectors = 3;                // of a tile, so that its sums fill the registers
constexpr int kWidth = kVectors * kLanes;  // columns of a tile
constexpr int64_t kTerms = TUNE_SUM_TERMS;
constexpr int64_t kBlockBytes = TUNE_BLOCK_KB ? TUNE_BLOCK_KB * 1024 : kLanes == 16 ? 704 << 10 : 192 << 10;
constexpr int64_t kBlockRows = 512;    // that use a thread's panels before the next ones are copied, at most
constexpr int64_t kAlone = 1 << 19;    // products that one thread computes before others would have begun
constexpr int64_t kPerElement = 4;     // products that take as long as reading an element
constexpr int64_t kPartTerms = 512;    // of a part of a sum, at least
constexpr int64_t kDotRows = kRows;    // for so many rows vectors of terms are summed up
constexpr int64_t kPackedRows = 48;    // for so many rows it pays to copy columns that are neighbours in memory,
constexpr int64_t kInPlace = 1 << 15;  // unless they have no more elements than this
constexpr int64_t kCopied = 3;         // panels that read rows where they lie, at most
constexpr int64_t kFar = 512;          // elements between terms of a row that are copied, so that they share pages
constexpr int64_t kSoon = 8;           // terms that are on their way to the cache while others are summed up
constexpr int64_t kLine = 16;          // elements of a line of the cache
constexpr int64_t kAhead = 1024;       // elements that are on their way to the cache while others are copied

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float Loose __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

// --- what is multiplied ---

struct Product {
  int64_t stack, rows, terms, columns;
};

// A factor: its lines are the rows of the first factor or the columns of the second. Steps are in elements.
struct Factor {
  const float* data;
  int64_t line, term, matrix;  // steps between lines, terms, and matrices of the stack (0: the same matrix)
};

// Lines with their terms side by side.
inline Factor along(const float* data, int64_t lines, int64_t terms, bool shared = false) {
  return {data, terms, 1, shared ? 0 : lines * terms};
}

// Terms with their lines side by side.
inline Factor across(const float* data, int64_t lines, int64_t terms, bool shared = false) {
  return {data, 1, lines, shared ? 0 : lines * terms};
}

// The end of a product that stores its sums as they are. Another end gives the value to store for a sum at a place.
struct Keep {
  float operator()(float sum, int64_t, int64_t, int64_t) const { return sum; }
};

// The end of a product that adds a number to each column.
struct Bias {
  const float* bias;
  float operator()(float sum, int64_t, int64_t, int64_t column) const { return sum + bias[column]; }
};

// For ends: NaN stays NaN.
inline float max_nan(float a, float b) { return (b > a) | (b != b) ? b : a; }
inline float min_nan(float a, float b) { return (b < a) | (b != b) ? b : a; }

// The same number in `workspace_bytes` and `launch`, whatever has happened in between.
inline int thread_count() {
  static const int threads = omp_get_max_threads();
  return threads;
}

// --- how it is divided ---

struct Plan {
  bool dots;             // vectors of terms
  bool packs;            // columns are copied to panels
  int64_t rows, columns; // of a block
  int64_t row_blocks, column_blocks, parts;
  int64_t terms;         // of a part
  int64_t step;          // terms that are summed up in registers
  int64_t panels;        // bytes of a thread's panels
  int threads;
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The extent of each of so many blocks, in multiples of `unit` where that leaves none empty.
inline int64_t share_of(int64_t extent, int64_t blocks, int64_t unit) {
  const int64_t share = ceil_div(extent, blocks);
  return std::max<int64_t>(1, ceil_div(share, unit) * unit);
}

inline Plan plan_of(const Product& p, const Factor& a, const Factor& b) {
  Plan found{};
  const int64_t elements = p.rows * p.columns + p.terms * (p.rows + p.columns);
  const int64_t work = p.stack * (p.rows * p.columns * p.terms + kPerElement * elements);
  found.threads = work > kAlone ? thread_count() : 1;
  found.dots = a.term == 1 && b.term == 1 && std::min(p.rows, p.columns) <= kDotRows;
  const int64_t steps = std::max<int64_t>(1, ceil_div(p.terms, kTerms));
  found.step = std::max<int64_t>(1, ceil_div(p.terms, steps));
  const int64_t row_unit = found.dots ? 4 : kRows, column_unit = found.dots ? 4 : kLanes;
  const int64_t most_columns = std::max<int64_t>(1, kBlockBytes / 4 / found.step / kWidth) * kWidth;
  const int64_t most_rows = ceil_div(p.rows, row_unit), most_units = ceil_div(p.columns, column_unit);
  // Of all divisions that leave no thread without a block for long, the one with the least to copy and to read.
  const int64_t least = found.dots ? 1 : ceil_div(p.columns, most_columns);
  const int64_t least_rows = found.dots ? 1 : ceil_div(p.rows, kBlockRows);
  const int64_t most = std::max<int64_t>(least, std::min<int64_t>(most_units, 2 * found.threads + least));
  double best = 0;
  for (int64_t across = least; across <= most; ++across) {
    const int64_t columns = share_of(p.columns, across, column_unit);
    for (int64_t rounds = 1; rounds <= 4; ++rounds) {
      const int64_t wanted = found.threads * rounds / std::max<int64_t>(1, p.stack * across);
      const int64_t down = std::clamp<int64_t>(wanted, std::min(least_rows, most_rows), std::max<int64_t>(most_rows, 1));
      const int64_t rows = share_of(p.rows, down, row_unit);
      const int64_t items = p.stack * ceil_div(p.rows, rows) * ceil_div(p.columns, columns);
      const double each = static_cast<double>(rows) * columns + 10.0 * (rows + columns);
      const double time = each * ceil_div(items, found.threads);
      if (!found.rows || time < best * 0.99) {
        best = time;
        found.rows = rows, found.columns = columns;
      }
      if (found.threads == 1) break;
    }
    if (found.threads == 1) break;
  }
  found.row_blocks = ceil_div(p.rows, found.rows), found.column_blocks = ceil_div(p.columns, found.columns);
  const int64_t narrowest = p.columns - (found.column_blocks - 1) * found.columns;  // of the blocks: the last one
  found.packs = !found.dots && (b.line != 1 || narrowest < kLanes ||
                                (found.rows >= kPackedRows && found.step * found.columns > kInPlace));
  const int64_t items = p.stack * found.row_blocks * found.column_blocks;
  found.parts = std::clamp<int64_t>(found.threads / std::max<int64_t>(items, 1), 1,
                                    std::max<int64_t>(1, p.terms / kPartTerms));
  found.terms = ceil_div(p.terms, found.parts);
  const int64_t part_steps = std::max<int64_t>(1, ceil_div(found.terms, kTerms));
  found.step = std::max<int64_t>(1, ceil_div(found.terms, part_steps));
  if (found.packs) found.panels = found.step * ceil_div(found.columns, kLanes) * kLanes * 4;
  return found;
}

inline int64_t sums_bytes(const Product& p, const Plan& plan) {
  return plan.parts > 1 ? plan.parts * p.stack * p.rows * p.columns * 4 : 0;
}

inline int64_t product_bytes(const Product& p, const Factor& a, const Factor& b) {
  if (p.stack * p.rows * p.columns == 0) return 0;
  const Plan plan = plan_of(p, a, b);
  return 64 + plan.threads * ceil_div(plan.panels, 64) * 64 + sums_bytes(p, plan);
}

// --- copies ---

template <int N>
struct Turned;  // vectors of N lanes, and N of them with rows and columns exchanged

#if defined(__clang__) || __GNUC__ >= 12
#define WARPSMITH_PICK(a, b, Places, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WARPSMITH_PICK(a, b, Places, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

template <>
struct Turned<4> {
  typedef float Four __attribute__((vector_size(16)));
  typedef float Read __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t Places __attribute__((vector_size(16)));
  // `from[i][0..3]` to `to + k * step`.
  static inline void exchange(const float* const* from, int64_t at, float* to, int64_t step) {
    Four v[4];
    for (int i = 0; i < 4; ++i) v[i] = *reinterpret_cast<const Read*>(from[i] + at);
    const Four a = WARPSMITH_PICK(v[0], v[1], Places, 0, 4, 1, 5), b = WARPSMITH_PICK(v[0], v[1], Places, 2, 6, 3, 7);
    const Four c = WARPSMITH_PICK(v[2], v[3], Places, 0, 4, 1, 5), d = WARPSMITH_PICK(v[2], v[3], Places, 2, 6, 3, 7);
    *reinterpret_cast<Read*>(to) = WARPSMITH_PICK(a, c, Places, 0, 1, 4, 5);
    *reinterpret_cast<Read*>(to + step) = WARPSMITH_PICK(a, c, Places, 2, 3, 6, 7);
    *reinterpret_cast<Read*>(to + 2 * step) = WARPSMITH_PICK(b, d, Places, 0, 1, 4, 5);
    *reinterpret_cast<Read*>(to + 3 * step) = WARPSMITH_PICK(b, d, Places, 2, 3, 6, 7);
  }
};

template <>
struct Turned<8> {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Read __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Places __attribute__((vector_size(32)));
  static inline void exchange(const float* const* from, int64_t at, float* to, int64_t step) {
    Eight v[8], w[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) v[i] = *reinterpret_cast<const Read*>(from[i] + at);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
      w[i] = WARPSMITH_PICK(v[i], v[i + 1], Places, 0, 8, 1, 9, 4, 12, 5, 13);
      w[i + 1] = WARPSMITH_PICK(v[i], v[i + 1], Places, 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 8
      for (int j = 0; j < 2; ++j) {
        v[i + 2 * j] = WARPSMITH_PICK(w[i + j], w[i + j + 2], Places, 0, 1, 8, 9, 4, 5, 12, 13);
        v[i + 2 * j + 1] = WARPSMITH_PICK(w[i + j], w[i + j + 2], Places, 2, 3, 10, 11, 6, 7, 14, 15);
      }
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<Read*>(to + i * step) = WARPSMITH_PICK(v[i], v[i + 4], Places, 0, 1, 2, 3, 8, 9, 10, 11);
      *reinterpret_cast<Read*>(to + (i + 4) * step) = WARPSMITH_PICK(v[i], v[i + 4], Places, 4, 5, 6, 7, 12, 13, 14, 15);
    }
  }
};

#undef WARPSMITH_PICK

constexpr int kTurn = kLanes >= 8 ? 8 : 4;  // lines of columns that are exchanged together

// to[k * step + i] = from[i * line + k] for `lines` <= N lines; all N places of a term are written.
template <int N>
inline void turn(const float* from, int64_t line, int64_t lines, int64_t terms, float* to, int64_t step) {
  const float* each[N];
  for (int i = 0; i < N; ++i) each[i] = from + std::min<int64_t>(i, lines - 1) * line;
  const int64_t whole = terms / N * N;
  for (int64_t k = 0; k < whole; k += N) Turned<N>::exchange(each, k, to + k * step, step);
  for (int64_t k = whole; k < terms; ++k)
    for (int i = 0; i < N; ++i) to[k * step + i] = each[i][k];
}

// Brings terms [begin, end) of some lines to the cache while other lines are used.
inline void fetch(const Factor& a, const float* from, int64_t lines, int64_t begin, int64_t end) {
  if (a.term == 1) {
    for (int64_t r = 0; r < lines; ++r)
      for (int64_t k = begin; k < end; k += kLine) __builtin_prefetch(from + r * a.line + k);
  } else {
    for (int64_t k = begin; k < end; ++k) __builtin_prefetch(from + k * a.term);
  }
}

// The panels of a block: vectors of columns, as many in each as in the others or one more. None is wider than the block,
// unless that is narrower than a vector.
struct Panels {
  int64_t columns, vectors, count;
  explicit Panels(int64_t given)
      : columns(given),
        vectors(ceil_div(given, kLanes)),
        count(std::max<int64_t>(ceil_div(vectors, kVectors), given > kLanes && given % kLanes ? 2 : 1)) {}
  int64_t first(int64_t panel) const { return vectors * panel / count * kLanes; }  // column
  int64_t width(int64_t panel) const { return first(panel + 1) - first(panel); }
  // Where its tiles begin: the last ones earlier, so that they end with the block.
  int64_t origin(int64_t panel) const { return std::max<int64_t>(0, std::min(first(panel), columns - width(panel))); }
};

// Copies the columns of a block to panels: to[first(panel) * terms + k * width(panel) + j] is column origin(panel) + j.
// Places behind the last column hold anything that a float can be.
inline void pack(const Factor& b, const float* from, int64_t columns, int64_t terms, float* to) {
  const Panels panels(columns);
  if (b.line == 1 && columns >= kLanes) {  // term by term, so that memory is read in order
    const int64_t ahead = ceil_div(kAhead, columns);
    for (int64_t k = 0; k < terms; ++k, from += b.term) {
      if (k + ahead < terms)
        for (int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(from + ahead * b.term + j);
      for (int64_t n = 0; n < panels.count; ++n) {
        const int64_t origin = panels.origin(n), width = panels.width(n);
        float* place = to + panels.first(n) * terms + k * width;
        for (int64_t j = 0; j < width; j += kLanes)
          *reinterpret_cast<Loose*>(place + j) = *reinterpret_cast<const Loose*>(from + origin + j);
      }
    }
    return;
  }
  for (int64_t n = 0; n < panels.count; ++n) {
    const int64_t origin = panels.origin(n), width = panels.width(n);
    float* panel = to + panels.first(n) * terms;
    if (b.term == 1) {
      for (int64_t i = 0; i < width; i += kTurn) {
        const int64_t line = std::min(origin + i, columns - 1);
        if (line + 2 * kTurn <= columns) fetch(b, from + (line + kTurn) * b.line, kTurn, 0, terms);
        turn<kTurn>(from + line * b.line, b.line, columns - line, terms, panel + i, width);
      }
      continue;
    }
    for (int64_t k = 0; k < terms; ++k)
      for (int64_t i = 0; i < width; ++i)
        panel[k * width + i] = from[std::min(origin + i, columns - 1) * b.line + k * b.term];
  }
}

// --- sums ---

// to[i][j] = or += the sum over k of a[i][k] * b[k][j]. ALONG: the terms of a row are side by side, `a_step` between
// rows; else the rows are side by side, `a_step` between terms.
using Sum = void (*)(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t terms, float* to,
                     int64_t to_step, bool fresh);

template <int M, int V, bool ALONG>
void sum_tile(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t terms, float* to, int64_t to_step,
              bool fresh) {
  // The places of the sums are on their way to the cache while they are computed.
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) __builtin_prefetch(to + i * to_step + v * kLanes, 1);
  }
  Vector sum[M][V] = {};
  for (int64_t k = 0; k < terms; ++k, b += b_step) {
    Vector values[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) values[v] = *reinterpret_cast<const Loose*>(b + v * kLanes);
#pragma GCC unroll 16
    for (int v = 0; v < V; v += kLine / kLanes) __builtin_prefetch(b + kSoon * b_step + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const float factor = ALONG ? a[i * a_step + k] : a[i];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[i][v] += factor * values[v];
    }
    if (!ALONG) a += a_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i, to += to_step) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      Loose* place = reinterpret_cast<Loose*>(to + v * kLanes);
      *place = fresh ? sum[i][v] : *place + sum[i][v];
    }
  }
}

template <int M, bool ALONG>
inline Sum sum_of_vectors(int64_t vectors) {
  return vectors == 1 ? sum_tile<M, 1, ALONG> : vectors == 2 ? sum_tile<M, 2, ALONG> : sum_tile<M, 3, ALONG>;
}

template <bool ALONG>
inline Sum sum_of(int64_t rows, int64_t vectors) {
  if constexpr (kRows == 8) {
    if (rows == 8) return sum_of_vectors<8, ALONG>(vectors);
    if (rows == 7) return sum_of_vectors<7, ALONG>(vectors);
    if (rows == 6) return sum_of_vectors<6, ALONG>(vectors);
    if (rows == 5) return sum_of_vectors<5, ALONG>(vectors);
  }
  if (rows == 4) return sum_of_vectors<4, ALONG>(vectors);
  if (rows == 3) return sum_of_vectors<3, ALONG>(vectors);
  return rows == 2 ? sum_of_vectors<2, ALONG>(vectors) : sum_of_vectors<1, ALONG>(vectors);
}

// Where the sums of a matrix go.
struct Target {
  float* out;
  int64_t step;  // between rows
};

template <class End>
inline void finish(const End& end, const float* from, int64_t from_step, const Target& to, int64_t matrix, int64_t row,
                   int64_t rows, int64_t column, int64_t columns) {
  for (int64_t i = row; i < row + rows; ++i, from += from_step) {
    float* out = to.out + i * to.step + column;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) out[j] = end(from[j], matrix, i, column + j);
  }
}

struct Block {
  int64_t matrix, row, rows, column, columns, term, terms;
};

template <class End>
inline void sum_block(const Plan& plan, const Factor& a, const Factor& b, const Block& at, const Target& to, float* packed,
                      const End& end, bool ends) {
  constexpr bool kKeeps = std::is_same_v<End, Keep>;
  alignas(64) float strip[kRows * kTerms];
  alignas(64) float tile[kRows * kWidth];
  const Panels panels(at.columns);
  const int64_t strips = ceil_div(at.rows, kRows);
  const float* rows = a.data + at.matrix * a.matrix + at.row * a.line;
  const float* columns = b.data + at.matrix * b.matrix + at.column * b.line;
  const bool copies = a.line == 1 ? panels.count > 1 && a.term >= kFar : a.term != 1 || panels.count > kCopied;
  for (int64_t done = 0; done < std::max<int64_t>(at.terms, 1); done += plan.step) {
    const int64_t term = at.term + done, terms = std::min(plan.step, at.terms - done);
    const bool fresh = done == 0, last = done + plan.step >= at.terms;
    if (plan.packs) pack(b, columns + term * b.term, at.columns, terms, packed);
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t i = at.rows * s / strips, next = at.rows * (s + 1) / strips, height = next - i, row = at.row + i;
      const float* from = rows + i * a.line + term * a.term;
      const float* following = rows + next * a.line + term * a.term;
      int64_t from_step = a.line == 1 ? a.term : a.line;
      if (copies) {
        if (a.line == 1)
          for (int64_t k = 0; k < terms; ++k) std::memcpy(strip + k * kRows, from + k * a.term, height * 4);
        else if (a.term == 1)
          turn<kRows>(from, a.line, height, terms, strip, kRows);
        else
          for (int64_t k = 0; k < terms; ++k)
            for (int64_t r = 0; r < height; ++r) strip[k * kRows + r] = from[r * a.line + k * a.term];
        from = strip, from_step = kRows;
      }
      for (int64_t n = 0; n < panels.count; ++n) {
        const int64_t first = panels.first(n), origin = panels.origin(n), width = panels.width(n);
        const int64_t skipped = first - origin, kept = std::min(width - skipped, at.columns - first);
        const float* values = plan.packs ? packed + first * terms : columns + origin + term * b.term;
        const int64_t step = plan.packs ? width : b.term;
        const Sum sum = copies || a.line == 1 ? sum_of<false>(height, width / kLanes) : sum_of<true>(height, width / kLanes);
        if (s + 1 < strips) fetch(a, following, kRows, terms * n / panels.count, terms * (n + 1) / panels.count);
        float* out = to.out + row * to.step + at.column + first;
        // Columns of the tile before are summed up again, to the same sums, if these are the first terms.
        if (skipped + kept == width && (!skipped || fresh)) {
          sum(from, from_step, values, step, terms, out - skipped, to.step, fresh);
          if (!kKeeps && ends && last)
            finish(end, out - skipped, to.step, to, at.matrix, row, height, at.column + origin, width);
          continue;
        }
        if (!fresh)
          for (int64_t r = 0; r < height; ++r) std::memcpy(tile + r * kWidth + skipped, out + r * to.step, kept * 4);
        sum(from, from_step, values, step, terms, tile, kWidth, fresh);
        if (ends && last)
          finish(end, tile + skipped, kWidth, to, at.matrix, row, height, at.column + first, kept);
        else
          for (int64_t r = 0; r < height; ++r) std::memcpy(out + r * to.step, tile + r * kWidth + skipped, kept * 4);
      }
    }
  }
}

// --- vectors of terms ---

template <int M, int N>
inline void dot_tile(const float* a, int64_t a_step, const float* b, int64_t b_step, int64_t terms, float* to) {
  float total[M][N] = {};
  for (int64_t begin = 0; begin < terms;) {
    const int64_t count = std::min<int64_t>(terms - begin, kTerms * kLanes), whole = begin + count / kLanes * kLanes;
    Vector sum[M][N] = {};
    for (int64_t k = begin; k < whole; k += kLanes) {
      Vector values[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) values[j] = *reinterpret_cast<const Loose*>(b + j * b_step + k);
#pragma GCC unroll 8
      for (int i = 0; i < M; ++i) {
        const Vector factor = *reinterpret_cast<const Loose*>(a + i * a_step + k);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sum[i][j] += factor * values[j];
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        float part = 0;
        for (int64_t k = whole; k < begin + count; ++k) part += a[i * a_step + k] * b[j * b_step + k];
        alignas(64) float lanes[kLanes];
        *reinterpret_cast<Vector*>(lanes) = sum[i][j];
        for (int half = kLanes / 2; half; half /= 2)
          for (int n = 0; n < half; ++n) lanes[n] += lanes[n + half];
        total[i][j] += lanes[0] + part;
      }
    begin += count;
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) to[i * N + j] = total[i][j];
}

template <class End>
inline void dot_block(const Factor& a, const Factor& b, const Block& at, const Target& to, const End& end, bool ends) {
  const float* rows = a.data + at.matrix * a.matrix + at.row * a.line + at.term;
  const float* columns = b.data + at.matrix * b.matrix + at.column * b.line + at.term;
  const auto each = [&](auto high, auto wide, int64_t i, int64_t j) {
    constexpr int M = decltype(high)::value, N = decltype(wide)::value;
    float sums[M * N];
    dot_tile<M, N>(rows + i * a.line, a.line, columns + j * b.line, b.line, at.terms, sums);
    for (int r = 0; r < M; ++r)
      for (int c = 0; c < N; ++c) {
        const int64_t row = at.row + i + r, column = at.column + j + c;
        to.out[row * to.step + column] = ends ? end(sums[r * N + c], at.matrix, row, column) : sums[r * N + c];
      }
  };
  using One = std::integral_constant<int, 1>;
  using Four = std::integral_constant<int, 4>;
  int64_t i = 0;
  for (; i + 4 <= at.rows; i += 4) {
    int64_t j = 0;
    for (; j + 4 <= at.columns; j += 4) each(Four{}, Four{}, i, j);
    for (; j < at.columns; ++j) each(Four{}, One{}, i, j);
  }
  for (; i < at.rows; ++i) {
    int64_t j = 0;
    for (; j + 4 <= at.columns; j += 4) each(One{}, Four{}, i, j);
    for (; j < at.columns; ++j) each(One{}, One{}, i, j);
  }
}

// --- entry point ---

// out[s][i][j] = end(the sum over k of a[s][i][k] * b[s][k][j], s, i, j), rows side by side.
template <class End = Keep>
inline int multiply(const Product& p, const Factor& a, const Factor& b, float* out, void* workspace, const End& end = {}) {
  if (p.stack * p.rows * p.columns == 0) return 0;
  const Plan plan = plan_of(p, a, b);
  const int64_t items = p.stack * plan.row_blocks * plan.column_blocks * plan.parts, volume = p.rows * p.columns;
  const int64_t room = ceil_div(plan.panels, 64) * 64;
  char* base = static_cast<char*>(workspace);
  base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
  float* sums = reinterpret_cast<float*>(base + plan.threads * room);
  const auto work = [&](int64_t item, int thread) {
    const int64_t part = item % plan.parts, n = item / plan.parts % plan.column_blocks;
    const int64_t m = item / plan.parts / plan.column_blocks % plan.row_blocks;
    const int64_t matrix = item / plan.parts / plan.column_blocks / plan.row_blocks;
    Block at{matrix, m * plan.rows, 0, n * plan.columns, 0, part * plan.terms, 0};
    at.rows = std::min(plan.rows, p.rows - at.row), at.columns = std::min(plan.columns, p.columns - at.column);
    at.terms = std::min(plan.terms, p.terms - at.term);
    const Target to{(plan.parts > 1 ? sums + part * p.stack * volume : out) + matrix * volume, p.columns};
    if (plan.dots)
      dot_block(a, b, at, to, end, plan.parts == 1);
    else
      sum_block(plan, a, b, at, to, reinterpret_cast<float*>(base + thread * room), end, plan.parts == 1);
  };
  if (plan.threads == 1) {
    for (int64_t item = 0; item < items; ++item) work(item, 0);
    return 0;
  }
#pragma omp parallel num_threads(plan.threads)
  {
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < items; ++item) work(item, omp_get_thread_num());
    if (plan.parts > 1) {
#pragma omp for schedule(static)
      for (int64_t line = 0; line < p.stack * p.rows; ++line) {
        float* to = sums + line * p.columns;
        for (int64_t part = 1; part < plan.parts; ++part) {
          const float* from = to + part * p.stack * volume;
#pragma omp simd
          for (int64_t j = 0; j < p.columns; ++j) to[j] += from[j];
        }
#pragma omp simd
        for (int64_t j = 0; j < p.columns; ++j)
          out[line * p.columns + j] = end(to[j], line / p.rows, line % p.rows, j);
      }
    }
  }
  return 0;
}

}  // namespace warpsmith::products
