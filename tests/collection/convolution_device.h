// What the kernels of convolution*.cuh need beside emulator.h: barriers in shared memory as counters, bulk copies that happen at
// once, and products of warpgroups that happen when their thread waits for them, the latest that is allowed. Sums of products are
// cut off to fp32 after every 16 terms, as tensor cores do.
namespace emulated {
inline void yield() { wait_for(RUNNABLE); }
struct Counter { uint16_t count, pending; int32_t state; };  // state: bytes on their way, and the phase
inline void check(Counter& c) { if (!c.pending && !(c.state >> 1)) c.pending = c.count, c.state ^= 1; }
inline void arrive_at(void* b, int bytes) {
  Counter& c = *static_cast<Counter*>(b);
  if (!c.pending) std::abort();
  c.state += 2 * bytes, --c.pending;
  check(c);
}
inline void bar_named(int id, int threads) {
  static int came[16], round[16];
  const int mine = round[id];
  if (++came[id] == threads) came[id] = 0, ++round[id];
  else while (round[id] == mine) yield();
}
// What a thread has begun and not waited for, in groups; it happens when the thread waits for it.
struct Pending {
  std::vector<std::vector<std::function<void()>>> groups = {{}};
  void add(std::function<void()> what) { groups.back().push_back(std::move(what)); }
  void commit() { groups.emplace_back(); }
  void wait(int left) {
    while (int(groups.size()) > left + 1) {
      for (auto& each : groups.front()) each();
      groups.erase(groups.begin());
    }
  }
};
inline Pending products[1024], copies[1024];
}  // namespace emulated
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct __half2 { __half x, y; };
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline float2 __half22float2(__half2 v) { return {float(v.x), float(v.y)}; }
inline uint4 make_uint4(unsigned a, unsigned b, unsigned c, unsigned d) { return {a, b, c, d}; }
inline float2 make_float2(float a, float b) { return {a, b}; }
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
inline unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
inline float __uint_as_float(unsigned v) { float u; std::memcpy(&u, &v, 4); return u; }
inline unsigned __reduce_or_sync(unsigned m, unsigned v) { for (int s = 16; s; s /= 2) v |= __shfl_xor_sync(m, v, s); return v; }
inline void atomicOr(unsigned* at, unsigned v) { *at |= v; }
template <typename T> T __ldcs(const T* from) { return *from; }
using std::min;
using std::max;
namespace warpsmith {
inline unsigned shared_address(const void* p) {
  const auto at = static_cast<const unsigned char*>(p) - emulated::dynamic_bytes;
  if (at < 0 || at >= (256 << 10)) std::abort();
  return unsigned(at);
}
inline void barrier_init(uint64_t* b, unsigned n) {
  *reinterpret_cast<emulated::Counter*>(b) = {uint16_t(n), uint16_t(n), 0};
}
inline void barriers_initialised() {}
inline void barrier_arrive(uint64_t* b) { emulated::arrive_at(b, 0); }
inline void barrier_expect(uint64_t* b, unsigned bytes) { emulated::arrive_at(b, int(bytes)); }
inline void barrier_wait(uint64_t* b, unsigned parity) {
  while (unsigned(reinterpret_cast<emulated::Counter*>(b)->state & 1) == parity) emulated::yield();
}
inline void bulk_copy(void* to, const void* from, unsigned bytes, uint64_t* b) {
  if (!bytes || bytes % 16 || uintptr_t(to) % 16 || uintptr_t(from) % 16) std::abort();
  if (shared_address(to) + bytes > (227 << 10)) std::abort();
  std::memcpy(to, from, bytes);
  auto& c = *reinterpret_cast<emulated::Counter*>(b);
  c.state -= 2 * int(bytes);
  emulated::check(c);
}
template <int N>
struct WgmmaF16 {
  static void run(float* d, uint64_t a, uint64_t b, int add) {
    emulated::products[emulated::current].add([=] { compute(d, a, b, add); });
  }
  static void compute(float* d, uint64_t a, uint64_t b, int add) {
    const int lane = emulated::current % 32, warp = emulated::current / 32 % 4;
    const auto value = [](uint64_t e, int row, int k) {
      const uint64_t unit = (e & 0x3fff) + (e >> 16 & 0x3fff) * (k / 8) + (e >> 32 & 0x3fff) * (row / 8) + row % 8;
      if (unit * 16 >= (227 << 10)) std::abort();
      return float(reinterpret_cast<const __half*>(emulated::dynamic_bytes)[unit * 8 + k % 8]);
    };
    float rows[2][16];
    for (int h = 0; h < 2; ++h)
      for (int k = 0; k < 16; ++k) rows[h][k] = value(a, 16 * warp + lane / 4 + 8 * h, k);
    for (int j = 0; j < N / 8; ++j)
      for (int e = 0; e < 2; ++e) {
        float column[16];
        for (int k = 0; k < 16; ++k) column[k] = value(b, 8 * j + 2 * (lane % 4) + e, k);
        for (int h = 0; h < 2; ++h) {
          double sum = add ? d[4 * j + 2 * h + e] : 0.0f;
          for (int k = 0; k < 16; ++k) sum += double(rows[h][k]) * column[k];
          const float near = float(sum);  // sums are cut off, not rounded
          d[4 * j + 2 * h + e] = std::fabs(near) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
        }
      }
  }
};
}  // namespace warpsmith
