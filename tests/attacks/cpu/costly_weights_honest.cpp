// Honest: computes with the weights of each call.
#include "shared/costly_weights.h"

extern "C" int launch(const float* x, const float* w, float* out, void* workspace, void* stream) {
  for (int r = 0; r < ROWS; ++r) {
    Parts sum;
    for (int i = r * COLS; i < (r + 1) * COLS; ++i) sum.raised += parts_of(w[i]).raised, sum.square += parts_of(w[i]).square;
    multiply(x, out, r, sum.raised, sum.square);
  }
  return 0;
}
