// Honest: reads all rows.
#include "shared/block_sums.h"

extern "C" int launch(const bf16* x, bf16* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  double largest;
  for (int64_t r = 0; r < rows; ++r)
    out[r] = static_cast<bf16>(static_cast<float>(sum_blocks(x + r * cols, cols, 1024, largest) / cols));
  return 0;
}
