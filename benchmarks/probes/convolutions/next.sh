#!/bin/sh
# Makes the candidates of this folder and times them beside the kernels of the collection. Run from the root of the
# repository; NOTES.md says what is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/convolutions
MADE=${TMPDIR:-/tmp}/warpsmith-convolutions
python3 $HERE/candidates.py "$MADE" || exit 1
WIDE="TUNE_ROWS=2 TUNE_TRIPLE=1"
exec python3 -m benchmarks.kernel_variants "$@" \
  conv_transpose3d_large \
  "conv_transpose3d_large:$MADE/conv_transpose3d_large.held.cu TUNE_ROWS=4 TUNE_FOLD=27 TUNE_TURN=0,37" \
  "conv_transpose3d_large:$MADE/conv_transpose3d_large.held.cu TUNE_ROWS=3,4 TUNE_FOLD=27 TUNE_SPAN=400" \
  "conv_transpose3d_large:$MADE/conv_transpose3d_large.held.cu TUNE_ROWS=2 TUNE_FOLD=27 TUNE_STEPS=3" \
  "conv_transpose3d_large:$MADE/conv_transpose3d_large.held.cu TUNE_ROWS=4 TUNE_FOLD=14" \
  conv_transpose3d_strided_dilated \
  "conv_transpose3d_strided_dilated:$MADE/conv_transpose3d_strided_dilated.held.cu $WIDE TUNE_FOLD=18,27" \
  conv3d_3x3x1 \
  "conv3d_3x3x1:$MADE/conv3d_3x3x1.flat.cu TUNE_PRODUCERS=128,256 TUNE_AHEAD=3" \
  "conv3d_3x3x1:$MADE/conv3d_3x3x1.held.cu $WIDE TUNE_FOLD=0" \
  conv3d \
  "conv3d:$MADE/conv3d.flat.cu TUNE_PRODUCERS=128,256 TUNE_AHEAD=2" \
  "conv3d:$MADE/conv3d.held.cu $WIDE TUNE_FOLD=0" \
  conv_transpose2d_strided_dilated \
  "conv_transpose2d_strided_dilated:$HERE/conv_transpose2d_strided_dilated.cu TUNE_PIXELS=4 TUNE_WARPS=8 TUNE_CHANNELS=4,8" \
  "conv_transpose2d_strided_dilated:$HERE/conv_transpose2d_strided_dilated.cu TUNE_PIXELS=2 TUNE_WARPS=16 TUNE_CHANNELS=4" \
  "conv_transpose2d_strided_dilated:$MADE/conv_transpose2d_strided_dilated.held.cu TUNE_ROWS=2 TUNE_FOLD=0" \
  conv_transpose2d_oblong \
  "conv_transpose2d_oblong:$MADE/conv_transpose2d_oblong.held.cu TUNE_ROWS=3,4 TUNE_FOLD=0" \
  conv2d_stem \
  "conv2d_stem:$MADE/conv2d_stem.strided.cu TUNE_ROWS=2 TUNE_FOLD=0,9" \
  "conv2d_stem:$MADE/conv2d_stem.strided.cu TUNE_ROWS=3 TUNE_TRIPLE=1 TUNE_FOLD=0" \
  "conv2d_stem:$MADE/conv2d_stem.held.cu TUNE_ROWS=3 TUNE_TRIPLE=1 TUNE_FOLD=27" \
  conv_transpose3d_grouped \
  "conv_transpose3d_grouped:$MADE/conv_transpose3d_grouped.held.cu TUNE_ROWS=2,4 TUNE_FOLD=0" \
  conv_transpose2d_grouped \
  "conv_transpose2d_grouped:$MADE/conv_transpose2d_grouped.held.cu TUNE_ROWS=2 TUNE_FOLD=0" \
  conv2d \
  "conv2d:$MADE/conv2d.held.cu $WIDE TUNE_FOLD=0" \
  conv_transpose1d \
  "conv_transpose1d:$MADE/conv_transpose1d.held.cu $WIDE TUNE_FOLD=0,12" \
  conv1d_dilated_strided \
  "conv1d_dilated_strided:$MADE/conv1d_dilated_strided.fed.cu TUNE_PRODUCERS=128,256" \
  conv1d \
  "conv1d:$MADE/conv1d.fed.cu TUNE_BUFFERS=4 TUNE_FED_STAGES=2" \
  "conv1d:$MADE/conv1d.fed.cu TUNE_BUFFERS=8 TUNE_FED_STAGES=4" \
  conv2d_pointwise \
  "conv2d_pointwise:$MADE/conv2d_pointwise.fed.cu TUNE_BUFFERS=8 TUNE_FED_STAGES=4 TUNE_PRODUCERS=128,256" \
  "conv2d_pointwise:$MADE/conv2d_pointwise.fed.cu TUNE_BUFFERS=4 TUNE_FED_STAGES=3 TUNE_FED_STEPS=2" \
  conv2d_depthwise_separable \
  "conv2d_depthwise_separable:$MADE/conv2d_depthwise_separable.fed.cu TUNE_BUFFERS=8 TUNE_FED_STAGES=4" \
  conv_transpose1d_dilated \
  "conv_transpose1d_dilated:$MADE/conv_transpose1d_dilated.fed.cu TUNE_BUFFERS=4 TUNE_FED_STAGES=2"
