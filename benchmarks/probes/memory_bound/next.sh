#!/bin/sh
# Times the kernels of this folder beside those of the collection. Run from the root of the repository; NOTES.md says what
# is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/memory_bound
exec python3 -m benchmarks.kernel_variants "$@" \
  layer_norm \
  "layer_norm:$HERE/layer_norm.cu TUNE_EARLY=0,4" \
  "layer_norm:$HERE/layer_norm.cu TUNE_WARPS=8 TUNE_PACKS=32 TUNE_SLOTS=28 TUNE_AHEAD=12 TUNE_EARLY=6" \
  batch_norm \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=512 TUNE_HELD=16 TUNE_KEPT=224" \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=384 TUNE_HELD=24 TUNE_KEPT=224 TUNE_PREFETCH=0,8" \
  "batch_norm:$HERE/batch_norm.cu TUNE_THREADS=256 TUNE_HELD=44 TUNE_KEPT=224 TUNE_PREFETCH=0,12" \
  group_norm \
  "group_norm:$HERE/group_norm.cu TUNE_STEP=2,4 TUNE_BEHIND=1,2" \
  instance_norm \
  "instance_norm:$HERE/instance_norm.cu TUNE_STEP=2 TUNE_EARLY=0,4" \
  "instance_norm:$HERE/instance_norm.cu TUNE_STEP=4 TUNE_EARLY=2" \
  l2_norm \
  "l2_norm:$HERE/l2_norm.cu TUNE_BLOCKS=2,4" \
  l1_norm \
  "l1_norm:$HERE/l1_norm.cu TUNE_BLOCKS=2,4"
