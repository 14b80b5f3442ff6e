#!/bin/sh
# Checks and times the kernels of this folder beside those of the collection. Run from the root of the repository; NOTES.md
# says what is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/norms
LONG="TUNE_STEP=1 TUNE_CHUNKS=21 TUNE_SLOTS=36"
exec python3 "$HERE/side_by_side.py" "$@" \
  "layer_norm:$HERE/layer_norm.cu $LONG TUNE_BIASES=6 TUNE_AHEAD=1" \
  "layer_norm:$HERE/layer_norm.cu $LONG TUNE_BIASES=5 TUNE_AHEAD=3" \
  "layer_norm:$HERE/layer_norm.cu $LONG TUNE_BIASES=4 TUNE_AHEAD=4" \
  "layer_norm:$HERE/layer_norm.cu $LONG TUNE_BIASES=3 TUNE_AHEAD=4" \
  "layer_norm:$HERE/layer_norm.cu $LONG TUNE_BIASES=2 TUNE_AHEAD=8" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=4" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=4 TUNE_READERS=4 TUNE_WRITERS=8 TUNE_ROOM=13" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=4 TUNE_REGISTERS=88" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=6 TUNE_REGISTERS=96" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=6 TUNE_REGISTERS=96 TUNE_HINTS=1" \
  "group_norm:$HERE/group_norm.cu TUNE_HOLD=12 TUNE_REGISTERS=96 TUNE_CHUNK=512 TUNE_ROOM=28 TUNE_READERS=4 TUNE_LISTENERS=6" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=4 TUNE_STORE=0" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=2 TUNE_STORE=0 TUNE_HOLD=4" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=2 TUNE_STORE=0 TUNE_HOLD=6 TUNE_REGISTERS=96"
