// What attention_heads.cuh needs beside emulator.h and convolution_device.h: barriers and bulk copies by addresses in shared
// memory, and products of warpgroups whose first factor is in registers.
inline float __int_as_float(int bits) { float v; std::memcpy(&v, &bits, 4); return v; }
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof(T));
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me / 32 * 32 + from], sizeof(T));
  emulated::wait_for(emulated::WARP);
  return value;
}
inline unsigned __ballot_sync(unsigned m, bool v) { return __reduce_or_sync(m, v ? 1u << emulated::current % 32 : 0u); }
constexpr cudaError_t cudaErrorInvalidValue = cudaError_t(1);

namespace emulated {
struct FirstFactor { uint32_t a[4]; };
inline FirstFactor first_factors[2][1024];  // in turn, so that one wait for each instruction is enough
inline unsigned char factor_turns[1024];
inline float half_of(uint32_t pair, int which) {
  const uint16_t bits = uint16_t(pair >> (16 * which));
  __half v;
  std::memcpy(&v, &bits, 2);
  return float(v);
}
}  // namespace emulated

namespace warpsmith {
template <int N>
using Wgmma = WgmmaF16<N>;

namespace split {
inline uint32_t shared_address(const void* p) { return warpsmith::shared_address(p); }
inline uint64_t* at(uint32_t barrier) {
  if (barrier % 8) std::abort();
  return reinterpret_cast<uint64_t*>(emulated::dynamic_bytes + barrier);
}
inline void barrier_init(uint32_t barrier, int count) { warpsmith::barrier_init(at(barrier), count); }
inline void barrier_expect(uint32_t barrier, int bytes) { warpsmith::barrier_expect(at(barrier), bytes); }
inline void barrier_arrive(uint32_t barrier) { warpsmith::barrier_arrive(at(barrier)); }
template <bool CLUSTER>
void barrier_wait(uint32_t barrier, int phase) { warpsmith::barrier_wait(at(barrier), phase); }
inline void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  warpsmith::bulk_copy(emulated::dynamic_bytes + to, from, bytes, at(barrier));
}
inline void wgmma_begin() {}
inline void wgmma_commit() { emulated::products[emulated::current].commit(); }
template <int PENDING>
void wgmma_wait() { emulated::products[emulated::current].wait(PENDING); }
template <int N>
void touch(float (&)[N]) {}
template <int ROWS>
uint64_t describe(uint32_t address) {
  if (address % 16) std::abort();
  return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(ROWS) << 16) | (uint64_t(128 >> 4) << 32);
}
inline int multiprocessors() { return 2; }
}  // namespace split

namespace flash {
inline float exp2_approximate(float x) { return exp2f(x); }
inline float2 load_pair(uint32_t address) {
  if (address % 8) std::abort();
  float2 v;
  std::memcpy(&v, emulated::dynamic_bytes + address, 8);
  return v;
}
// The same sums as those of WgmmaF16.
inline void multiply_registers(float (&d)[32], const uint32_t* a, uint64_t b, int keep) {
  const int me = emulated::current, lane = me % 32;
  emulated::FirstFactor* const all = emulated::first_factors[emulated::factor_turns[me] ^= 1];
  std::memcpy(all[me].a, a, 16);
  emulated::wait_for(emulated::WARP);
  std::array<float, 32> rows;
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < 16; ++k)
      rows[16 * h + k] = emulated::half_of(all[me / 4 * 4 + k % 8 / 2].a[h + k / 8 * 2], k % 2);
  float* const to = d;
  emulated::products[me].add([=] {
    for (int j = 0; j < 8; ++j)
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * j + 2 * (lane % 4) + e;
        float column[16];
        for (int k = 0; k < 16; ++k) {
          const uint64_t unit = (b & 0x3fff) + (b >> 16 & 0x3fff) * (k / 8) + (b >> 32 & 0x3fff) * (row / 8) + row % 8;
          if (unit * 16 >= (227 << 10)) std::abort();
          column[k] = float(reinterpret_cast<const __half*>(emulated::dynamic_bytes)[unit * 8 + k % 8]);
        }
        for (int h = 0; h < 2; ++h) {
          double sum = keep ? to[4 * j + 2 * h + e] : 0.0f;
          for (int k = 0; k < 16; ++k) sum += double(rows[16 * h + k]) * column[k];
          const float near = float(sum);  // sums are cut off, not rounded
          to[4 * j + 2 * h + e] = std::fabs(near) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
        }
      }
  });
}
}  // namespace flash
}  // namespace warpsmith
