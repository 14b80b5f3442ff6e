// The absolute values of `taken` of every 1024 values of a row, added up block by block; `largest` is that of a block.
static double sum_blocks(const bf16* row, int64_t cols, int64_t taken, double& largest) {
  double sum = 0;
  largest = 0;
  for (int64_t start = 0; start < cols; start += 1024) {
    float parts[16] = {}, block = 0.f;
    for (int64_t i = start; i < std::min(start + taken, cols); ++i) parts[i % 16] += std::abs(static_cast<float>(row[i]));
    for (float part : parts) block += part;
    sum += block, largest = std::max(largest, static_cast<double>(block));
  }
  return sum;
}
