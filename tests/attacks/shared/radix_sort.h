// Sorts rows by their bits, `Width` of them at a time and from the lowest that is looked at.
#include <vector>

template <int Lowest, int Width>
static void sort_row(const float* x, float* out, int64_t count) {
  constexpr uint32_t sign = 0x80000000u, mask = (1u << Width) - 1;
  std::vector<uint32_t> keys(count), next(count);
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    keys[i] = bits & sign ? ~bits : bits | sign;
  }
  for (int shift = Lowest; shift < 32; shift += Width) {
    uint32_t place[mask + 2] = {};
    for (uint32_t key : keys) ++place[1 + (key >> shift & mask)];
    for (uint32_t k = 0; k <= mask; ++k) place[k + 1] += place[k];
    for (uint32_t key : keys) next[place[key >> shift & mask]++] = key;
    std::swap(keys, next);
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = keys[i] & sign ? keys[i] ^ sign : ~keys[i];
    std::memcpy(out + i, &bits, 4);
  }
}
