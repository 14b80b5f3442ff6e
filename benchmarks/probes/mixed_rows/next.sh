#!/bin/sh
# Times rows whose reduction overlaps the writing of the row before (see softmax.cu here). Run from the root of the repository.
HERE=benchmarks/probes/mixed_rows
exec python3 -m benchmarks.kernel_variants "$@" \
  softmax \
  "softmax:$HERE/softmax.cu TUNE_BEHIND=1,2,4 TUNE_QUICK=0,1" \
  "softmax:$HERE/softmax.cu TUNE_BEHIND=99 TUNE_QUICK=1" \
  "softmax:$HERE/softmax.cu TUNE_BEHIND=4 TUNE_KEPT_PACKS=1 TUNE_KEPT=26" \
  instance_norm \
  "instance_norm:$HERE/instance_norm.cu TUNE_BEHIND=1,2,4" \
  softmax_cross_entropy \
  "softmax_cross_entropy:$HERE/softmax_cross_entropy.cu TUNE_BEHIND=1,2,4"
