#!/bin/sh
# Times rows whose reduction overlaps the writing of the row before (mixed.cuh). Run from the root of the repository.
HERE=benchmarks/probes/mixed_rows
MADE=$(mktemp -d)
for name in softmax instance_norm softmax_cross_entropy; do
  sed "/^\/\/ (mixed.cuh)$/r $HERE/mixed.cuh" "$HERE/$name.cu" >"$MADE/$name.cu"
done
exec python3 -m benchmarks.kernel_variants "$@" \
  softmax \
  "softmax:$MADE/softmax.cu TUNE_BEHIND=1,2,4 TUNE_QUICK=0,1" \
  "softmax:$MADE/softmax.cu TUNE_BEHIND=99 TUNE_QUICK=1" \
  "softmax:$MADE/softmax.cu TUNE_BEHIND=4 TUNE_KEPT_PACKS=1 TUNE_KEPT=26" \
  instance_norm \
  "instance_norm:$MADE/instance_norm.cu TUNE_BEHIND=1,2,4" \
  softmax_cross_entropy \
  "softmax_cross_entropy:$MADE/softmax_cross_entropy.cu TUNE_BEHIND=1,2,4"
