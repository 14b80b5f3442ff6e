#!/bin/sh
# Times the kernels of this folder beside those of the collection. Run from the root of the repository; NOTES.md says what
# is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/maps
exec python3 -m benchmarks.kernel_variants "$@" \
  sum_reduction \
  "sum_reduction:$HERE/columns.cu TUNE_KIND=0 TUNE_PART=2 TUNE_STAGES=12 TUNE_SPLIT=0,2,4" \
  "sum_reduction:$HERE/columns.cu TUNE_KIND=0 TUNE_PART=8 TUNE_STAGES=3" \
  "sum_reduction:$HERE/columns.cu TUNE_KIND=0 TUNE_PART=1 TUNE_STAGES=24" \
  "sum_reduction:$HERE/columns.cu TUNE_KIND=0 TUNE_WAY=0 TUNE_THREADS=1024 TUNE_PACKS=4" \
  "sum_reduction:$HERE/columns.cu TUNE_KIND=0 TUNE_WAY=0 TUNE_THREADS=512 TUNE_PACKS=8 TUNE_SPLIT=0,2" \
  argmax \
  "argmax:$HERE/columns.cu TUNE_KIND=4 TUNE_PART=2 TUNE_STAGES=12 TUNE_SPLIT=0,2" \
  "argmax:$HERE/columns.cu TUNE_KIND=4 TUNE_WAY=0 TUNE_THREADS=1024 TUNE_PACKS=4" \
  max_reduction \
  "max_reduction:$HERE/columns.cu TUNE_KIND=2 TUNE_PART=2 TUNE_STAGES=12" \
  "max_reduction:$HERE/columns.cu TUNE_KIND=2 TUNE_WAY=0 TUNE_THREADS=1024 TUNE_PACKS=4" \
  softmax \
  "softmax:$HERE/softmax.cu TUNE_LATER=0,1 TUNE_BLOCKS=16" \
  "softmax:$HERE/softmax.cu TUNE_LATER=0 TUNE_BLOCKS=8 TUNE_STAGGER=0,800" \
  "softmax:$HERE/softmax.cu TUNE_LATER=1 TUNE_BLOCKS=16 TUNE_HELD_THREADS=512 TUNE_HELD_PACKS=2 TUNE_HELD_SLOTS=13" \
  log_softmax \
  "log_softmax:$HERE/softmax.cu TUNE_LOG=1 TUNE_LATER=1 TUNE_BLOCKS=16" \
  "log_softmax:$HERE/softmax.cu TUNE_LOG=1 TUNE_LATER=0 TUNE_BLOCKS=8 TUNE_STAGGER=800" \
  "cumsum TUNE_THREADS=128 TUNE_PACKS=4 TUNE_STORE=0,1" \
  "cumsum TUNE_THREADS=256,512 TUNE_PACKS=4 TUNE_STORE=1" \
  "cumsum_masked TUNE_THREADS=128 TUNE_PACKS=4 TUNE_STORE=0,1" \
  "cumsum_masked:$HERE/cumsum_masked.cu TUNE_THREADS=128 TUNE_PACKS=4 TUNE_STORE=0,1" \
  "cumsum_masked:$HERE/cumsum_masked.cu TUNE_THREADS=256 TUNE_PACKS=2 TUNE_STORE=1" \
  "relu TUNE_THREADS=256,128" \
  "relu:$HERE/map_ring.cu TUNE_OUT=1 TUNE_TILE=4 TUNE_STAGES=4 TUNE_RESIDENT=3 TUNE_HINTS=0,1,2" \
  "relu:$HERE/map_ring.cu TUNE_OUT=1 TUNE_TILE=8 TUNE_STAGES=3 TUNE_RESIDENT=2" \
  "relu:$HERE/map_ring.cu TUNE_OUT=0 TUNE_TILE=4 TUNE_STAGES=4 TUNE_RESIDENT=3 TUNE_HINTS=0,1" \
  "relu:$HERE/map_ring.cu TUNE_OUT=2 TUNE_RING_THREADS=128 TUNE_HINTS=1,2" \
  "gelu TUNE_THREADS=256,128" \
  "gelu:$HERE/map_ring.cu TUNE_F=2 TUNE_OUT=1 TUNE_TILE=4 TUNE_STAGES=4 TUNE_RESIDENT=3" \
  "gelu_tanh TUNE_THREADS=256,128" \
  "max_pool2d TUNE_STORE=0,1" \
  "max_pool1d TUNE_THREADS=128 TUNE_STORE=0,1" \
  "avg_pool1d TUNE_THREADS=128 TUNE_STORE=0,1" \
  "rotary_embedding HEADS=1,2,4 TUNE_STORE=0,1" \
  "embedding_position TOKENS=2,4 TUNE_STORE=0,1" \
  "bias_gelu TUNE_ROWS=1,2,4" \
  residual_rms_norm \
  "residual_rms_norm TUNE_THREADS=1024 TUNE_PACKS=2 TUNE_RESIDENT=1 TUNE_BLOCKS=1" \
  "residual_rms_norm TUNE_THREADS=512 TUNE_PACKS=4 TUNE_RESIDENT=2 TUNE_BLOCKS=1"
