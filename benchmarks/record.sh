#!/usr/bin/env bash
# Makes records on a GPU machine, several in one go, within a limit of time.
#
#   bash benchmarks/record.sh FOLDER SECONDS STEP...
#   bash benchmarks/record.sh runs/records 540 verify sweep
#
# Each step writes FOLDER/STEP.log, and its record into FOLDER. Where packages are missing and cannot be fetched, put their
# wheels into .carry/wheels: they are installed apart, for this call only. A step that fails does not stop the next ones.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "$1") limit=$2
shift 2
mkdir -p "$out"
export PYTHONUNBUFFERED=1 WARPSMITH_CACHE=${WARPSMITH_CACHE:-/tmp/warpsmith-records}
if compgen -G '.carry/wheels/*.whl' >/dev/null; then
  python3 -m pip install -q --no-index --no-deps --target /tmp/warpsmith-wheels .carry/wheels/*.whl
  export PYTHONPATH=/tmp/warpsmith-wheels
fi
export PYTHONPATH=$PWD/src:$PWD:${PYTHONPATH:-}

facts=src/warpsmith/kernels/facts/h200.json
left() { echo $((limit - SECONDS)); }
step() {
  case $1 in
    judge) python3 -m benchmarks.collection_record --limit-s "$(left)" ;;
    verify) python3 -m benchmarks.collection_record --verify --at-once 8 --limit-s "$(left)" ;;
    verify:*) python3 -m benchmarks.collection_record --verify --at-once 8 --limit-s "$(left)" --only "${1#*:}" ;;
    first:*) python3 -m benchmarks.collection_record --verify --at-once 8 --limit-s "$(left)" --first "${1#*:}" ;;
    tf32)
      python3 -m benchmarks.collection_record --precision tf32 --json benchmarks/h200/collection_tf32.json --limit-s "$(left)"
      cp benchmarks/h200/collection_tf32.json "$out" ;;
    sweep)
      python3 -m benchmarks.shape_sweep --limit-s "$(left)"
      cp benchmarks/h200/shape_sweep.json "$out" ;;
    lineage)
      python3 -m benchmarks.lineage_record --out "$out/lineage" --limit-s "$(left)" ;;
    tests) timeout "$(left)" python3 -m pytest -q -m gpu tests/gpu -p no:cacheprovider ;;
    attacks) timeout "$(left)" python3 benchmarks/attack_record.py --device cuda --json "$out/attacks.json" ;;
    demo) timeout "$(left)" python3 -m warpsmith demo ;;
    throughput)
      timeout "$(left)" python3 benchmarks/evaluator_throughput.py --device cuda --count 24 --guard-cost 12 \
        --json "$out/evaluator_throughput.json" ;;
    engines) timeout "$(left)" python3 benchmarks/engine_throughput.py --device cuda --json "$out/engine_throughput.json" ;;
    sharing) timeout "$(left)" python3 -m pytest -q -m gpu tests/gpu/test_sharing_cuda.py -p no:cacheprovider ;;
    rejects)
      timeout "$(left)" python3 benchmarks/false_rejects.py --device cuda --quick --repeats 10 --json "$out/false_rejects.json" ;;
    clock:*)
      timeout "$(left)" python3 -m benchmarks.clock_cost --before "${1#*:}" --device cuda --json "$out/clock_cost.json" ;;
    calibration)
      python3 -m benchmarks.suite_calibration --json benchmarks/h200/suite_calibration.json --limit-s "$(left)"
      cp benchmarks/h200/suite_calibration.json "$out" ;;
    suite)
      python3 -m benchmarks.suite_record --json benchmarks/h200/suite.json --again --limit-s "$(left)"
      cp benchmarks/h200/suite.json "$out" ;;
    *) echo "no step '$1'; see the list in benchmarks/record.sh"; return 2 ;;
  esac
}

for name in "$@"; do
  [ "$(left)" -gt 5 ] || { echo "== $name: no time left"; continue; }
  echo "== $name, after $SECONDS s"
  step "$name" >"$out/${name%%:*}.log" 2>&1
  echo "== $name: status $?, after $SECONDS s"
  tail -n "${TAIL:-12}" "$out/${name%%:*}.log"
  cp "$facts" "$out"
done
