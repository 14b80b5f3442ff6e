#!/bin/sh
# Checks and times the kernels of this folder beside those of the collection. Run from the root of the repository; NOTES.md
# says what is expected. --compile-only needs no GPU.
HERE=benchmarks/probes/norms
exec python3 "$HERE/side_by_side.py" "$@" \
  "layer_norm:$HERE/layer_norm.cu" \
  "layer_norm:$HERE/layer_norm.cu TUNE_BIASES=0" \
  "layer_norm:$HERE/layer_norm.cu TUNE_HINTS=0" \
  "layer_norm:$HERE/layer_norm.cu TUNE_STEP=1 TUNE_CHUNKS=21 TUNE_SLOTS=36 TUNE_BIASES=6" \
  "group_norm:$HERE/group_norm.cu" \
  "group_norm:$HERE/group_norm.cu TUNE_CHUNK=512 TUNE_ROOM=28 TUNE_READERS=4" \
  "group_norm:$HERE/group_norm.cu TUNE_CHUNK=2048 TUNE_ROOM=7" \
  "group_norm:$HERE/group_norm.cu TUNE_HINTS=1,2" \
  "group_norm:$HERE/group_norm.cu TUNE_STORE=0" \
  "group_norm:$HERE/group_norm.cu TUNE_READERS=4 TUNE_WRITERS=8" \
  "batch_norm:$HERE/batch_norm.cu TUNE_EARLY=5,2,9" \
  "batch_norm:$HERE/batch_norm.cu TUNE_LAST=1" \
  "batch_norm:$HERE/batch_norm.cu TUNE_OWN=8 TUNE_AHEAD=1 TUNE_REGISTERS=176 TUNE_SCOUT_REGISTERS=104 TUNE_EARLY=3" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=4" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=4 TUNE_HINTS=2" \
  "instance_norm:$HERE/group_norm.cu TUNE_INSTANCE=1 TUNE_LISTENERS=4 TUNE_STORE=0"
