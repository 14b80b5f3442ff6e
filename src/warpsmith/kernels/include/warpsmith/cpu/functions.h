// Functions of a float without a branch and without a library call, so that loops vectorise.
//
// Errors are below three units in the last place; NaN stays NaN, infinities are handled as usual, and what would be
// denormal may become zero. Arguments are limited at the end: a limit at the beginning becomes several branches, of which
// compilers make more instructions. The polynomials were fitted for this file (weighted least squares, near minimax).
// Templates copy single functions from here into the files that they write: see `lowering/math_functions.py`.
#pragma once
#include <cmath>
#include <cstdint>

namespace warpsmith {

// 2^(n - 1) and e^r - 1 with x = n ln 2 + r, |r| <= ln(2) / 2, for x of -87.3 to 88.8: half of 2^n does not overflow.
// A sum with 1.5 * 2^23 has the whole number n in its last bits; other arguments give any number, NaN gives NaN.
inline float exp_parts(float x, float* half) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x * 1.44269504f + 12582912.0f);
  const float n = static_cast<float>(static_cast<int32_t>(bits - 0x4b400000u));
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.395067899e-3f;
  p = p * r + 8.369021118e-3f;
  p = p * r + 4.166620225e-2f;
  p = p * r + 1.666651815e-1f;
  p = p * r + 0.5f;
  *half = __builtin_bit_cast(float, (bits + 126u) << 23);
  return p * r * r + r;
}

// For x that is never above 88.8.
inline float vector_exp_below(float x) {
  float half;
  const float p = exp_parts(x, &half);
  return x < -87.3f ? 0.0f : 2.0f * (p * half + half);
}

inline float vector_exp(float x) {
  const float found = vector_exp_below(x);
  return x > 88.8f ? INFINITY : found;
}

// e^x - 1 for x that is never above 88.8.
inline float vector_expm1_below(float x) {
  float half;
  const float p = exp_parts(x, &half);
  return x < -87.3f ? -1.0f : 2.0f * (p * half + (half - 0.5f));
}

inline float vector_expm1(float x) {
  const float found = vector_expm1_below(x);
  return x > 88.8f ? INFINITY : found;
}

inline float vector_tanh(float x) {
  float half;
  const float p = exp_parts(2.0f * x, &half);
  const float e = p * half + (half - 0.5f);  // (e^2x - 1) / 2
  const float found = e / (e + 1.0f);
  return __builtin_fabsf(x) > 10.0f ? __builtin_copysignf(1.0f, x) : found;
}

inline float vector_erf(float x) {
  const float a = __builtin_fabsf(x);
  const float s = x * x;
  float p = -5.990378559e-4f;
  p = p * s + 4.993588198e-3f;
  p = p * s - 2.676730976e-2f;
  p = p * s + 1.128184944e-1f;
  p = p * s - 3.761249781e-1f;
  p = p * s + 1.128379107f;
  float q = 1.949467260e-4f;
  q = q * a - 3.033692250e-3f;
  q = q * a + 2.218977548e-2f;
  q = q * a - 1.038563699e-1f;
  q = q * a - 6.372657418e-1f;
  q = q * a - 1.127627373f;
  q = q * a - 2.070087794e-4f;
  float half;
  const float r = exp_parts(q, &half);
  const float far = a > 3.92f ? 1.0f : 1.0f - 2.0f * (r * half + half);  // 1 - e^q
  return a < 0.925f ? p * x : __builtin_copysignf(far, x);
}

// log(1 + f) + n ln 2 for 1 + f of sqrt(1/2) to sqrt(2).
inline float log_sum(float f, float n) {
  float p = 6.917984039e-2f;
  p = p * f - 1.177966669e-1f;
  p = p * f + 1.186603531e-1f;
  p = p * f - 1.238579825e-1f;
  p = p * f + 1.421991885e-1f;
  p = p * f - 1.666919738e-1f;
  p = p * f + 2.000215203e-1f;
  p = p * f - 2.499998659e-1f;
  p = p * f + 3.333331048e-1f;
  const float s = f * f;
  const float small = (p * f * s - 0.5f * s) + n * -2.12194440e-4f;
  return n * 0.693359375f + (f + small);
}

inline float vector_log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t bits = __builtin_bit_cast(uint32_t, tiny ? x * 8388608.0f : x);
  const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = __builtin_bit_cast(float, bits - (static_cast<uint32_t>(e) << 23));
  const float found = log_sum(m - 1.0f, static_cast<float>(tiny ? e - 23 : e));
  const float above = x < INFINITY ? found : x;
  return x > 0.0f ? above : x == 0.0f ? -INFINITY : NAN;
}

inline float vector_log1p(float x) {
  const float u = 1.0f + x;
  const int32_t e = static_cast<int32_t>(__builtin_bit_cast(uint32_t, u) - 0x3f3504f3u) >> 23;
  const float quarter = __builtin_bit_cast(float, static_cast<uint32_t>(129 - e) << 23);  // of it: 2^-e, which may be tiny
  const float f = (0.25f * x) * quarter + (0.25f * quarter - 1.0f);  // (1 + x) / 2^e - 1
  const float found = log_sum(f, static_cast<float>(e));
  const float above = u < INFINITY ? found : u;
  return u > 0.0f ? above : u == 0.0f ? -INFINITY : NAN;
}

}  // namespace warpsmith
