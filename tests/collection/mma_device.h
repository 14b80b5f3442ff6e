// The instructions of mma_tf32.cuh on the emulated device (emulator.h comes before). A test puts them into the header's text:
//   asm("cvt.rna...);   becomes   bits = emulated::tf32(x);
//   asm("mma.sync...);  becomes   emulated::multiply(d, a, b);
// Sums of products are cut off to fp32 after every instruction, as tensor cores do, and factors to 19 bits before it.
namespace emulated {
inline float of_bits(uint32_t bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline uint32_t tf32(float x) {  // to the nearest, halves away from zero
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return std::isfinite(x) ? (bits + 0x1000u) & 0xffffe000u : bits;
}
struct Fragments { uint32_t a[4], b[2]; };
inline thread_local Fragments fragments[2][1024];  // in turn, so that one wait for each instruction is enough
inline thread_local unsigned char turns[1024];
inline void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  const int me = current, warp = me / 32 * 32, g = me % 32 / 4, t = me % 4;
  Fragments* const all = fragments[turns[me] ^= 1];
  for (int i = 0; i < 4; ++i) all[me].a[i] = a[i] & 0xffffe000u;
  for (int i = 0; i < 2; ++i) all[me].b[i] = b[i] & 0xffffe000u;
  wait_for(WARP);
  for (int e = 0; e < 4; ++e) {
    double sum = d[e];
    for (int k = 0; k < 8; ++k)
      sum += double(of_bits(all[warp + g * 4 + k % 4].a[e / 2 + k / 4 * 2])) *
             of_bits(all[warp + (2 * t + e % 2) * 4 + k % 4].b[k / 4]);
    const float near = float(sum);
    d[e] = std::isfinite(sum) && std::isfinite(near) && std::fabs(near) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
  }
}
}  // namespace emulated
