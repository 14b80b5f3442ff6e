#!/bin/bash
# A Ray cluster inside a Slurm job, and a bench on it.
#   sbatch --nodes=4 --gpus-per-node=8 --time=08:00:00 examples/cluster/slurm.sh bench warpsmith-100 --out benches/slurm
# What stands behind the script is the command of Warpsmith, without --engine. The environment (a virtual environment or a
# module with warpsmith[ray]) must be on every node at the same path: activate it before sbatch, or below.
#SBATCH --job-name=warpsmith
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:TERM@120
set -euo pipefail

# source /path/to/venv/bin/activate
export RAY_USAGE_STATS_ENABLED=0
# A token for this job: without one, anybody in the network could run programs on these nodes (Ray 2.52 and later).
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="${RAY_AUTH_TOKEN:-$(python3 -c 'import secrets; print(secrets.token_hex(32))')}"
export WARPSMITH_CACHE="${WARPSMITH_CACHE:-/tmp/warpsmith-$USER}"  # local to the node: builds and locks lie there
port=6379
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head="${nodes[0]}"
cpus="${SLURM_CPUS_ON_NODE:-$(nproc)}"

srun --nodes=1 --ntasks=1 --cpus-per-task="$cpus" -w "$head" \
  ray start --head --node-ip-address="$head" --port="$port" --num-cpus="$cpus" --block &
until srun --overlap --nodes=1 --ntasks=1 -w "$head" ray status --address "$head:$port" >/dev/null 2>&1; do sleep 2; done
if ((${#nodes[@]} > 1)); then
  srun --nodes=$((${#nodes[@]} - 1)) --ntasks=$((${#nodes[@]} - 1)) --cpus-per-task="$cpus" --exclude="$head" \
    ray start --address="$head:$port" --num-cpus="$cpus" --block &
fi

# The driver runs on the head node. A job that ends early loses nothing: submit the same command again.
command="$1"
shift
srun --overlap --nodes=1 --ntasks=1 --cpus-per-task="$cpus" -w "$head" env RAY_ADDRESS="$head:$port" \
  warpsmith "$command" "$@" --engine ray &
driver=$!
trap 'kill -TERM "$driver"; wait "$driver"' TERM
wait "$driver"
