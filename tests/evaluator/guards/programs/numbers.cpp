// Arithmetic of every width: math functions, complex numbers, half precision, 128-bit integers, random numbers.
#include <cfenv>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

extern "C" void numbers(float* x, double* y, long double* z, int n) {
  for (int i = 0; i < n; ++i) {
    float sine, cosine;
    sincosf(x[i], &sine, &cosine);
    x[i] = expf(x[i]) + logf(x[i]) + tanhf(x[i]) + erff(x[i]) + powf(x[i], 2.5f) + log1pf(x[i]) + expm1f(x[i]) + sine +
           fmodf(x[i], 3.f) + roundf(x[i]) + rintf(x[i]) + cbrtf(x[i]) + hypotf(x[i], 1) + atan2f(x[i], 2) + cosine +
           lgammaf(x[i]) + exp2f(x[i]) + log2f(x[i]) + ldexpf(x[i], i) + fmaf(x[i], x[i], 1.f) + nextafterf(x[i], 9);
    y[i] = exp(y[i]) + erfc(y[i]) + exp10(y[i]) + j0(y[i]) + std::cyl_bessel_j(1, y[i]) + std::fpclassify(y[i]) +
           static_cast<double>(llrint(y[i]));
    z[i] = expl(z[i]) + powl(z[i], 3);
  }
  std::complex<float> a(x[0], x[1]), b(x[2], x[3]);
  a = a * b / a + std::exp(b) + std::pow(a, b) + std::sqrt(a) + std::polar(1.f, 2.f) + std::tanh(a);
  x[0] = std::abs(a) + std::arg(b);
  std::fesetround(FE_TONEAREST);
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::srand(1);
  x[1] = normal(generator) + static_cast<float>(std::rand());
}

extern "C" uint64_t wide(unsigned __int128 a, unsigned __int128 b, __int128 c, double d) {
  const unsigned __int128 r = a / b + a % b + static_cast<unsigned __int128>(d) + static_cast<unsigned __int128>(c / 3);
  return static_cast<uint64_t>(r) + static_cast<uint64_t>(static_cast<double>(r) + static_cast<float>(c));
}

#if defined(__ARM_FP16_FORMAT_IEEE) && !defined(__clang__) && __GNUC__ < 13
typedef __fp16 _Float16;
#endif
#if defined(__FLT16_MANT_DIG__)
extern "C" void halves(_Float16* x, float* y, double* z, int n) {
  for (int i = 0; i < n; ++i) {
    x[i] = x[i] * static_cast<_Float16>(y[i]) + static_cast<_Float16>(z[i]);
    y[i] = static_cast<float>(x[i]) + static_cast<float>(static_cast<__int128>(x[i]));
  }
}
#endif

extern "C" int memory(const float* x, int n) {
  auto* aligned = static_cast<float*>(std::aligned_alloc(64, n * sizeof(float)));
  void* other = nullptr;
  if (posix_memalign(&other, 64, 64) != 0) return 1;
  std::memcpy(aligned, x, n * sizeof(float));
  std::memmove(other, aligned, 8);
  auto* typed = new (std::align_val_t(64)) float[n];
  typed[0] = aligned[0];
  const int result = std::memcmp(aligned, other, 4) + static_cast<int>(typed[0]);
  ::operator delete[](typed, std::align_val_t(64));
  std::free(other);
  std::free(aligned);
  return result;
}
