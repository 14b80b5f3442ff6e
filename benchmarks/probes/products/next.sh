#!/bin/sh
# Times the candidates of this folder beside the kernels of the collection. Run from the root of the repository.
# swiglu_few.cu: 64 rows, 0.392 ms now, of which two thirds write and read the split weights once more; expected 0.14 ms.
HERE=benchmarks/probes/products
exec python3 -m benchmarks.kernel_variants "$@" \
  swiglu \
  "swiglu:$HERE/swiglu_few.cu TUNE_AHEAD=2,3,4 TUNE_FLUSH=1,2"
