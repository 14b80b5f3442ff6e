// Computes convolutions on the host exactly as a plan of convolution.cuh says, and compares them with the plain sum. Prints
// one line for each thing that is wrong.
#include <warpsmith/convolution.cuh>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace warpsmith::conv;

// Multiples of 1/512 between -1 and 1: all sums here are exact in double precision, and in float as well.
static std::vector<float> drawn(size_t count) {
  static unsigned state = 1;
  std::vector<float> values(count);
  for (float& v : values) state = state * 1103515245u + 12345u, v = float(int(state >> 16 & 1023u) - 512) / 512.0f;
  return values;
}

struct Check {
  const Form& f;
  const Plan& p;
  const char* name;
  int wrong = 0;

  template <class... Args>
  void report(const char* format, Args... args) {
    ++wrong;
    std::printf("%s: ", name);
    std::printf(format, args...);
    std::printf("\n");
  }

  void output() {
    const InputArgs& in = p.input;
    const ProductArgs& a = p.product;
    const FilterArgs& fl = p.filter;
    const int slices = f.images * f.groups, terms = in.k8 * 8, columns = p.columns, chunks = a.k8 / (2 * a.steps);
    const size_t blocks = size_t(fl.all_taps) * (in.k8 / 2);
    const auto x = drawn(size_t(slices) * f.ci * f.in_volume()), w = drawn(size_t(f.groups) * f.ci * f.co * f.taps());
    std::vector<float> planes(size_t(slices) * terms * in.total);
    for (int s = 0; s < slices; ++s)
      for (int pixel = 0; pixel < in.total; ++pixel) {
        int at[3];
        locate(in, pixel, at);
        for (int t = 0; t < terms; ++t)
          planes[(size_t(s) * terms + t) * in.total + pixel] = term_of(in, x.data() + size_t(s) * f.ci * f.in_volume(), at, t);
      }
    std::vector<float> filters(size_t(f.groups) * fl.column_tiles * blocks * 16 * columns);
    for (int g = 0; g < f.groups; ++g)
      for (int tile = 0; tile < fl.column_tiles; ++tile)
        for (int tap = 0; tap < fl.all_taps; ++tap)
          for (int b = 0; b < in.k8 / 2; ++b) {
            const size_t to = ((size_t(g) * fl.column_tiles + tile) * blocks + filter_block(fl, tap, b)) * 16 * columns;
            for (int t = 0; t < 16; ++t)
              for (int c = 0; c < columns; ++c)
                filters[to + t * columns + c] = weight_of(fl, w.data(), g, tile, tap, 16 * b + t, c);
          }

    std::vector<float> out(size_t(slices) * f.co * f.out_volume(), NAN);
    std::vector<double> sums(columns);
    for (int index = 0; index < a.all_tiles; ++index) {
      const Tile t = tile_of(a, index);
      const Problem& q = a.problem[t.problem];
      const float* from = planes.data() + size_t(t.image * f.groups + t.group) * terms * in.total;
      const float* weights = filters.data() + (size_t(t.group) * fl.column_tiles + t.column_tile) * blocks * 16 * columns;
      for (int i = 0; i < a.pixels; ++i) {
        int left;
        const int place = place_of(a, q, t.first + i, left);
        if (place < 0) continue;
        sums.assign(columns, 0.0);
        for (int r = 0; r < q.runs; ++r) {
          const Run run = a.run[q.run + r];
          for (int chunk = 0; chunk < chunks; ++chunk)
            for (int tap = 0; tap < run.taps; ++tap)
              for (int s = 0; s < a.steps; ++s) {
                const int shift = a.shift[run.tap + tap];
                if (i + shift >= a.range) report("pixel %d is outside of the range of its stage", i);
                const int pixel = t.first + i + run.offset + shift;
                const size_t block = size_t(run.tap) * (a.k8 / 2) + (chunk * run.taps + tap) * a.steps + s;
                for (int k = 0; k < 16; ++k) {
                  const double v = pixel < in.total ? from[size_t((chunk * a.steps + s) * 16 + k) * in.total + pixel] : 0.0;
                  for (int c = 0; c < columns; ++c) sums[c] += v * weights[(block * 16 + k) * columns + c];
                }
              }
        }
        for (int phase = 0; phase < std::min(a.ostep[2], left); ++phase)
          for (int c = 0; c < a.couts && t.column_tile * a.couts + c < f.co; ++c)
            out[(size_t(t.image * f.groups + t.group) * f.co + t.column_tile * a.couts + c) * f.out_volume() + place + phase] =
                a.phase[phase] >= 0 ? float(sums[a.phase[phase] * a.couts + c]) : 0.0f;
      }
    }
    size_t at = 0;
    int differ = 0;
    for (int image = 0; image < f.images; ++image)
      for (int channel = 0; channel < f.groups * f.co; ++channel)
        for (int d = 0; d < f.out[0]; ++d)
          for (int h = 0; h < f.out[1]; ++h)
            for (int c = 0; c < f.out[2]; ++c, ++at)
              differ += !(std::fabs(out[at] - direct_sum(f, x.data(), w.data(), image, channel, d, h, c)) < 1e-3f);
    if (differ) report("%d of %d results differ", differ, int(at));
  }
};

int main() {
  struct Case {
    const char* name;
    Form form;
  };
  const Case cases[] = {
      {"3 x 5 x 7", make_form(2, 1, 3, 20, {7, 9, 11}, {3, 5, 7})},
      {"3-d, stride 2", make_form(2, 1, 3, 9, {7, 9, 11}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1})},
      {"7 x 7, stride 4", make_form(2, 1, 3, 9, {1, 23, 27}, {1, 7, 7}, {1, 4, 4}, {0, 2, 2})},
      {"dilated, groups", make_form(2, 2, 5, 9, {1, 13, 17}, {1, 3, 5}, {1, 1, 1}, {0, 2, 2}, {1, 2, 3})},
      {"transposed", make_form(2, 1, 8, 9, {1, 13, 7}, {1, 3, 5}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}, true)},
      {"transposed, stride 2, groups",
       make_form(2, 2, 8, 5, {4, 5, 6}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, true, {1, 1, 1})},
      {"transposed, stride 2, dilated", make_form(2, 1, 4, 5, {4, 5, 6}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, true)},
      {"two tiles of columns", make_form(3, 1, 32, 70, {1, 6, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})},
  };
  int plans = 0;
  for (const Case& each : cases)
    for (int fold = 0; fold < (each.form.ci < 16 ? 8 : 1); ++fold)
      for (int pixels : {512, 256}) {
        const Plan p = make_plan(each.form, fold, 64, 192, 0, 227 * 1024, 12, pixels);
        if (!p.ok) continue;
        ++plans;
        Check check = {each.form, p, each.name};
        check.output();
      }
  std::printf("%d plans\n", plans);
}
