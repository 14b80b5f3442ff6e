#!/usr/bin/env bash
# Makes records on a GPU machine, several in one go, within a limit of time.
#
#   bash benchmarks/record.sh FOLDER SECONDS STEP...
#   bash benchmarks/record.sh runs/records 540 verify sweep
#   bash benchmarks/record.sh runs/records 540 throughput attacks+draws     # side by side: steps that record no times
#
# FOLDER gets two files, written anew every few seconds and at the end: h200.json, the facts of the collection, and
# records.tar.gz (in parts of 15 MiB if it is large) with all other records and the log of each step. What a call leaves
# is kept on the machine beside the caches, so that the same command goes on with it, also from a fresh copy of the tree.
# Where packages are missing and cannot be fetched, put their wheels into .carry/wheels (those of Ray: .carry/ray_wheels,
# of `methods`, gguf and openai: .carry/methods_wheels): they are installed apart. A step that fails does not stop the next
# ones, and none runs past SECONDS. Exit status: 1 if a step failed or had no time left.
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 3 ] || { echo "usage: record.sh FOLDER SECONDS STEP..."; exit 2; }
out=$(realpath -m "$1") limit=$2
shift 2
steps="judge verify tf32 verify_tf32 recheck sweep compile_sweep ways checks lineage tests attacks demo throughput engines sharing rejects draws calibration suite"
for name in ${*//+/ }; do
  case $name in
    tests:?*) ;;
    probes:*) [ -e "benchmarks/probes/${name#*:}/next.sh" ] || { echo "no benchmarks/probes/${name#*:}/next.sh"; exit 2; } ;;
    verify:?* | first:?* | profiles:?* | variants:?* | clock:?* | methods:?* | cpu_rejects:?*-?*/?*) ;;
    *) [[ " $steps " == *" $name "* ]] || { echo "no step '$name'; there are $steps verify:NAMES first:FAMILIES" \
      "tests:WORDS cpu_rejects:FROM-TO/OF profiles:NAMES probes:FOLDER variants:KERNEL clock:CHECKOUT methods:FILE"; exit 2; } ;;
  esac
done
export PYTHONUNBUFFERED=1 WARPSMITH_CACHE=${WARPSMITH_CACHE:-/tmp/warpsmith-records}
work=$WARPSMITH_CACHE/records  # what stays between calls
mkdir -p "$out" "$work/logs" "$work/base"

wheels=/tmp/warpsmith-wheels
for folder in wheels ray_wheels methods_wheels; do
  found=$(compgen -G ".carry/$folder/*.whl" | sort) || continue
  [ "$found" != "$(cat "$wheels.$folder" 2>/dev/null)" ] || continue
  # shellcheck disable=SC2086  # one word for each file
  python3 -m pip install -q --no-index --no-deps --upgrade --target "$wheels" $found && echo "$found" >"$wheels.$folder"
done
export PYTHONPATH=$PWD/src:$PWD:$wheels:${PYTHONPATH:-}

facts=src/warpsmith/kernels/facts/h200.json
in_tree=("$facts" benchmarks/h200/{collection_tf32,collection_checks,convolution_ways,shape_sweep,form_checks,suite_calibration,suite}.json)

# A record of the tree that is as it was before the last call is replaced by what that call made of it.
for file in "${in_tree[@]}"; do
  name=$(basename "$file")
  if [ -e "$work/$name" ] && cmp -s "$file" "$work/base/$name" || { [ -e "$work/$name" ] && [ ! -e "$file" ]; }; then
    cp "$work/$name" "$file"
  elif [ -e "$file" ]; then
    cp "$file" "$work/base/$name"
  fi
done

collect() {
  local file made
  for file in "${in_tree[@]}"; do
    [ ! -e "$file" ] || cmp -s "$file" "$work/base/$(basename "$file")" || cp "$file" "$work/$(basename "$file")"
  done
  [ -n "$(find "$work" "$facts" -type f -newer "$work/.collected" -print -quit 2>/dev/null)" ] ||
    [ ! -e "$work/.collected" ] || [ ! -e "$out/h200.json" ] || return 0
  touch "$work/.collected"
  made=$(mktemp -d "$WARPSMITH_CACHE/collect.XXXX")
  tar -C "$work" --exclude=./base --exclude=./.collected -czf - . 2>/dev/null | split -d -b 15M - "$made/records.tar.gz."
  [ -e "$made/records.tar.gz.01" ] || mv "$made/records.tar.gz.00" "$made/records.tar.gz"
  [ ! -e "$facts" ] || cp "$facts" "$made/h200.json"
  for file in "$made"/*; do
    cp "$file" "$out/.new" && mv "$out/.new" "$out/$(basename "$file")"
  done
  rm -r "$made"
}

left() { echo $((limit - SECONDS)); }
begin_until() { local seconds=$(($(left) - $1)); echo $((seconds > 1 ? seconds : 1)); } # begin nothing later than that
# Every program ends before the limit: the last seconds are for collecting.
bounded() { local seconds=$(($(left) - 6)); timeout -k 3 "$((seconds > 1 ? seconds : 1))" "$@"; }
# The record of methods with the model of a GGUF file, beside which NAME.tokenizer may lie (--save-tokenizer). The server
# outlives this call, for the next one. FOLDER gets the packed bench; .carry/methods may hold that of another machine.
methods() {
  local bench=$WARPSMITH_CACHE/methods given=$WARPSMITH_CACHE/methods_given name tokenizer=()
  name=$(basename "$1" .gguf)
  [ ! -d "${1%.gguf}.tokenizer" ] || tokenizer=(--tokenizer "${1%.gguf}.tokenizer")
  if [ ! -d "$bench" ] && [ -d .carry/methods ]; then
    python3 -m benchmarks.methods_record unpack .carry/methods "$bench"
  fi
  mkdir -p "$given" # a bench names its tasks by their paths: these are the same on every machine
  cp -r benchmarks/methods_tasks.py benchmarks/methods_start "$given"
  if ! health; then
    setsid python3 -m benchmarks.model_server --model "$1" --name "$name" "${tokenizer[@]}" </dev/null \
      >"$work/logs/model_server.log" 2>&1 &
    until health; do
      { [ "$(left)" -gt 90 ] && kill -0 $! 2>/dev/null; } || { tail "$work/logs/model_server.log"; return 1; }
      sleep 1
    done
  fi
  OPENAI_API_KEY=none bounded python3 -m benchmarks.methods_record run --out "$bench" --model "openai:$name" \
    --tasks-file "$given/methods_tasks.py" --starts "$given/methods_start" --limit-s "$(begin_until 70)"
  bounded python3 -m benchmarks.methods_record pack "$bench" "$out"
}
health() {
  python3 -c 'import urllib.request as u; u.urlopen("http://127.0.0.1:8011/health", timeout=2)' 2>/dev/null
}
step() {
  local collection="python3 -m benchmarks.collection_record"
  # shellcheck disable=SC2086  # several words
  case $1 in
    judge) bounded $collection --limit-s "$(begin_until 20)" ;;
    verify) bounded $collection --verify --at-once 8 --limit-s "$(begin_until 10)" ;;
    verify:*) bounded $collection --verify --at-once 8 --limit-s "$(begin_until 10)" --only "${1#*:}" ;;
    first:*) bounded $collection --verify --at-once 8 --limit-s "$(begin_until 10)" --first "${1#*:}" ;;
    tf32)
      bounded $collection --precision tf32 --json benchmarks/h200/collection_tf32.json --limit-s "$(begin_until 20)" ;;
    verify_tf32)
      bounded $collection --verify --at-once 8 --precision tf32 --json benchmarks/h200/collection_tf32.json \
        --limit-s "$(begin_until 10)" ;;
    sweep) bounded python3 -m benchmarks.shape_sweep --limit-s "$(begin_until 15)" ;;
    compile_sweep) # beside steps that do not need all cores: 'sweep' then finds its kernels in the build cache
      cp benchmarks/h200/shape_sweep.json "$work/base/compiled_sweep.json"
      bounded python3 -m benchmarks.shape_sweep --compile-only --processes 6 --json "$work/base/compiled_sweep.json" ;;
    ways)
      bounded python3 -m benchmarks.convolution_ways --json benchmarks/h200/convolution_ways.json \
        --limit-s "$(begin_until 15)" ;;
    checks) bounded python3 -m benchmarks.form_checks --limit-s "$(begin_until 10)" ;;
    recheck)
      bounded python3 -m benchmarks.collection_checks --json benchmarks/h200/collection_checks.json --at-once 5 \
        --limit-s "$(begin_until 10)" ;;
    lineage) bounded python3 -m benchmarks.lineage_record --out "$work/lineage" --limit-s "$(begin_until 25)" ;;
    profiles:*) bounded python3 -m benchmarks.profile_record --json "$work/collection_profiles.json" --kernels "${1#*:}" ;;
    variants:*) bounded python3 -m benchmarks.kernel_variants --limit-s "$(begin_until 15)" "${1#*:}" ;;
    probes:*) bounded sh "benchmarks/probes/${1#*:}/next.sh" --limit-s "$(begin_until 15)" ;;
    tests | tests:*) # all but the attacks, which have a step of their own; or those whose names have one of the words: tests:judging,replay
      local chosen=${1#tests}
      chosen=${chosen#:}
      bounded python3 -m pytest -v -m gpu tests/gpu --ignore tests/gpu/test_attacks_cuda.py -k "${chosen//,/ or }" \
        --durations 20 -p no:cacheprovider -p no:benchmark -n 5 --dist loadfile ;;
    attacks) bounded python3 benchmarks/attack_record.py --device cuda --at-once 4 --json "$work/attacks.json" ;;
    demo) bounded python3 -m warpsmith demo ;;
    throughput)
      bounded python3 benchmarks/evaluator_throughput.py --device cuda --count 24 --guard-cost 12 \
        --json "$work/evaluator_throughput.json" ;;
    engines) bounded python3 benchmarks/engine_throughput.py --device cuda --count 24 --json "$work/engine_throughput.json" ;;
    sharing) bounded python3 -m pytest -q -m gpu tests/gpu/test_sharing_cuda.py -p no:cacheprovider ;;
    rejects)
      bounded python3 benchmarks/false_rejects.py --device cuda --quick --repeats 10 --at-once 4 \
        --json "$work/false_rejects.json" ;;
    cpu_rejects:*) # parts FROM-TO/OF, two cores each; the records are joined by `false_rejects.py --add`
      local of=${1#*/} from=${1#*:} to part jobs_=()
      from=${from%%-*} to=${1%/*} to=${to#*-}
      for part in $(seq "$from" "$to"); do
        bounded taskset -c $((2 * (part - from))),$((2 * (part - from) + 1)) python3 benchmarks/false_rejects.py \
          --device cpu --quick --repeats 20 --part "$part/$of" --json "$work/cpu_rejects_$part.json" &
        jobs_+=($!)
      done
      wait "${jobs_[@]}" ;;
    draws)
      bounded python3 -m benchmarks.honest_draws --device cuda --draws 1000 --seconds 4 --json "$work/honest_draws.json" ;;
    clock:*)
      bounded python3 -m benchmarks.clock_cost --before "${1#*:}" --device cuda --count 4 --json "$work/clock_cost.json" ;;
    calibration)
      bounded python3 -m benchmarks.suite_calibration --device cuda --json benchmarks/h200/suite_calibration.json \
        --limit-s "$(begin_until 20)" ;;
    suite) bounded python3 -m benchmarks.suite_record --json benchmarks/h200/suite.json --again --limit-s "$(begin_until 30)" ;;
    methods:*) methods "${1#*:}" ;;
  esac
}

running= collector= failed=0
own=$$
end() { # a process and all that it has started
  local child
  for child in $(pgrep -P "$1"); do end "$child"; done
  kill "$1" 2>/dev/null
}
stop() {
  kill "$collector" 2>/dev/null
  [ -z "$running" ] || { end "$running"; wait "$running"; } 2>/dev/null
  rm -f "$work/base/.step.$own"
  collect
  exit 143
}
trap stop TERM INT HUP

# Collects while steps run. If this script is killed, its step is ended too.
(
  trap '' INT
  while sleep 4; do
    collect
    kill -0 "$own" 2>/dev/null || { end "$(cat "$work/base/.step.$own")"; exit; } 2>/dev/null
  done
) &
collector=$!

for names in "$@"; do
  [ "$(left)" -gt 15 ] || { echo "== $names: no time left"; failed=1; continue; }
  echo "== $names, after $SECONDS s"
  (
    for name in ${names//+/ }; do
      date -u "+== $name, %F %T UTC" >>"$work/logs/${name%%:*}.log"
      step "$name" >>"$work/logs/${name%%:*}.log" 2>&1 &
    done
    status=0
    for job in $(jobs -p); do wait "$job" || status=$?; done
    exit $status
  ) &
  running=$!
  echo "$running" >"$work/base/.step.$own"
  wait "$running"
  status=$?
  [ $status -eq 0 ] || failed=1
  echo "== $names: status $status, after $SECONDS s"
  running=
  for name in ${names//+/ }; do
    tail -n "${TAIL:-12}" "$work/logs/${name%%:*}.log"
  done
done
kill "$collector" 2>/dev/null
wait "$collector" 2>/dev/null
rm -f "$work/base/.step.$own"
collect
echo "== end after $SECONDS s: $(ls "$out" | tr '\n' ' ')"
exit $failed
