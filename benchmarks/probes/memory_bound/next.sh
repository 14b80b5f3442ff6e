#!/bin/sh
# Times the kernels of this folder beside those of the collection. Run from the root of the repository; NOTES.md says what
# is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/memory_bound
exec python3 -m benchmarks.kernel_variants "$@" \
  cross_entropy \
  "cross_entropy:$HERE/cross_entropy.cu TUNE_PACKS=4 TUNE_RESIDENT=8 TUNE_STAY=0,1" \
  "cross_entropy:$HERE/cross_entropy.cu TUNE_PACKS=8 TUNE_RESIDENT=4,5" \
  "cross_entropy:$HERE/cross_entropy.cu TUNE_WAY=1 TUNE_WARPS=16 TUNE_PACKS=8 TUNE_SLOTS=3 TUNE_RESIDENT=1" \
  "cross_entropy:$HERE/cross_entropy.cu TUNE_WAY=1 TUNE_WARPS=8 TUNE_PACKS=4 TUNE_SLOTS=4,6 TUNE_RESIDENT=2" \
  batch_norm \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=1024 TUNE_HELD=0 TUNE_TOGETHER=1 TUNE_HINTS=0,1,2" \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=512 TUNE_HELD=16 TUNE_TOGETHER=1 TUNE_HINTS=0,1,2" \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=512 TUNE_HELD=12 TUNE_TOGETHER=2 TUNE_HINTS=1" \
  group_norm_silu \
  "group_norm_silu:$HERE/group_norm_silu.cu TUNE_DEEP=1,2 TUNE_SHORT=8192,16384" \
  "group_norm_silu:$HERE/group_norm_silu.cu TUNE_KEPT_THREADS=768 TUNE_KEPT_PACKS=1 TUNE_KEPT=17 TUNE_DEEP=1,2" \
  group_norm \
  "group_norm TUNE_KEPT_PACKS=4 TUNE_SPREAD=7 TUNE_KEPT=6" \
  "group_norm:$HERE/group_norm.cu TUNE_KEPT_PACKS=2 TUNE_SPREAD=14" \
  "group_norm:$HERE/group_norm.cu TUNE_KEPT_PACKS=4 TUNE_SPREAD=7 TUNE_KEPT=6" \
  "group_norm:$HERE/group_norm.cu TUNE_KEPT_THREADS=672 TUNE_SPREAD=10 TUNE_KEPT=9" \
  "instance_norm TUNE_KEPT_THREADS=512 TUNE_KEPT=13" \
  "instance_norm TUNE_KEPT_THREADS=768 TUNE_KEPT=9 TUNE_SPREAD=9" \
  "softmax TUNE_KEPT_THREADS=512 TUNE_KEPT=13" \
  "softmax TUNE_KEPT_THREADS=768 TUNE_KEPT=9 TUNE_SPREAD=9" \
  top_k_softmax \
  "top_k_softmax:$HERE/top_k_softmax.cu TUNE_ROW_LANES=0,1,2 TUNE_ROW_THREADS=64,128" \
  softmax_cross_entropy \
  "softmax_cross_entropy:$HERE/softmax_cross_entropy.cu TUNE_DEEP=1,2 TUNE_WARPS=4 TUNE_RESIDENT=6,8" \
  "softmax_cross_entropy:$HERE/softmax_cross_entropy.cu TUNE_DEEP=1 TUNE_WARPS=0" \
  quantize_dequantize \
  "quantize_dequantize:$HERE/quantize_dequantize.cu TUNE_DEEP=1 TUNE_REST=0,1,2,3" \
  "quantize_dequantize:$HERE/quantize_dequantize.cu TUNE_DEEP=2 TUNE_REST=0" \
  max_pool2d \
  "max_pool2d:$HERE/max_pool2d.cu TUNE_STRIP=64,128 TUNE_RESIDENT=4,5" \
  "max_pool2d:$HERE/max_pool2d.cu TUNE_STRIP=64 TUNE_RESIDENT=5 TUNE_EDGES=0" \
  "max_pool1d TUNE_THREADS=128,256 TUNE_UNROLL=1,2" \
  "conv2d_depthwise_3x7 TUNE_ROWS=4,6,8"
