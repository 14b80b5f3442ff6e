"""Scalar functions that generated files contain, in C++ that a compiler can vectorise.

The polynomials were fitted for this file (weighted least squares, near minimax); errors are below two units in the
last place of a float. `INLINE` is replaced by the qualifier of an inline function in C++ or CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping

_EXP_PARTS = """
// 2^n and e^r - 1 with x = n ln 2 + r, |r| <= ln(2) / 2; no branch and no library call, so that loops vectorise.
INLINE float exp_parts(float x, float* scale) {
  const float n = __builtin_rintf(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.395067899e-3f;
  p = p * r + 8.369021118e-3f;
  p = p * r + 4.166620225e-2f;
  p = p * r + 1.666651815e-1f;
  p = p * r + 0.5f;
  *scale = __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23);
  return p * r * r + r;
}
"""

_VECTOR_EXP_BELOW = """
// For x that is never above 88.
INLINE float vector_exp_below(float x) {
  float scale;
  const float p = exp_parts(x < -87.3f ? -87.3f : x, &scale);
  return p * scale + scale;
}
"""

_VECTOR_EXP = """
INLINE float vector_exp(float x) {
  return vector_exp_below(x > 88.37f ? 88.37f : x);
}
"""

_VECTOR_EXPM1_BELOW = """
// For x that is never above 88.
INLINE float vector_expm1_below(float x) {
  float scale;
  const float p = exp_parts(x < -87.3f ? -87.3f : x, &scale);
  return p * scale + (scale - 1.0f);
}
"""

_VECTOR_EXPM1 = """
INLINE float vector_expm1(float x) {
  return vector_expm1_below(x > 88.37f ? 88.37f : x);
}
"""

_VECTOR_TANH = """
INLINE float vector_tanh(float x) {
  float y = x < -10.0f ? -10.0f : x;
  y = y > 10.0f ? 10.0f : y;
  float scale;
  const float p = exp_parts(2.0f * y, &scale);
  const float e = p * scale + (scale - 1.0f);  // e^2y - 1
  return e / (e + 2.0f);
}
"""

_VECTOR_ERF = """
INLINE float vector_erf(float x) {
  float a = x < 0.0f ? -x : x;
  a = a > 3.92f ? 3.92f : a;
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
  float scale;
  const float r = exp_parts(q, &scale);
  const float far = 1.0f - (r * scale + scale);  // 1 - e^q
  const float signed_far = x < 0.0f ? -far : far;
  return a < 0.925f ? p * x : signed_far;
}
"""

_VECTOR_LOG = """
INLINE float vector_log(float x) {
  const int32_t bits = __builtin_bit_cast(int32_t, x);
  const int32_t e = (bits - 0x3f3504f3) >> 23;
  const float m = __builtin_bit_cast(float, bits - (e << 23));
  const float f = m - 1.0f;
  float p = 6.917984039e-2f;
  p = p * f - 1.177966669e-1f;
  p = p * f + 1.186603531e-1f;
  p = p * f - 1.238579825e-1f;
  p = p * f + 1.421991885e-1f;
  p = p * f - 1.666919738e-1f;
  p = p * f + 2.000215203e-1f;
  p = p * f - 2.499998659e-1f;
  p = p * f + 3.333331048e-1f;
  const float n = static_cast<float>(e);
  const float s = f * f;
  const float small = (p * f * s - 0.5f * s) + n * -2.12194440e-4f;
  const float found = n * 0.693359375f + (f + small);
  const float normal = x > 3.0e38f ? x : found;
  return x > 1.2e-38f ? normal : x < 0.0f ? NAN : -INFINITY;
}
"""

_VECTOR_LOG1P = """
INLINE float vector_log1p(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);
  return u > 0.0f && u < 3.0e38f ? vector_log(u) + lost / u : vector_log(u);
}
"""

_FAST_TANH = """
INLINE float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"""

MATH_FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "exp_parts": ((), _EXP_PARTS),
    "vector_exp_below": (("exp_parts",), _VECTOR_EXP_BELOW),
    "vector_exp": (("vector_exp_below",), _VECTOR_EXP),
    "vector_expm1_below": (("exp_parts",), _VECTOR_EXPM1_BELOW),
    "vector_expm1": (("vector_expm1_below",), _VECTOR_EXPM1),
    "vector_tanh": (("exp_parts",), _VECTOR_TANH),
    "vector_erf": (("exp_parts",), _VECTOR_ERF),
    "vector_log": ((), _VECTOR_LOG),
    "vector_log1p": (("vector_log",), _VECTOR_LOG1P),
    "fast_tanh": ((), _FAST_TANH),
}
"""Functions by name: the functions they call, and their definition."""
