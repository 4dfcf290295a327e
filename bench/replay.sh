#!/bin/sh
# Replays a measured sweep on virtual time, and prints how far off it is: dpbench profile measures one
# rank, dpbench sweep ranks and buckets on an emulated link, dpbench simulate predicts them.
#
#   bench/replay.sh FOLDER [OPTION...]    OPTIONs are of profile and sweep: --steps 60 --warmup 5
#
# DPBENCH names the program (default: dpbench in PATH). Needs as many idle cores as there are ranks (2):
# what else runs is in the measured times and not in the predicted ones.
set -eu

dpbench=${DPBENCH:-dpbench}
[ $# -ge 1 ] || {
    echo "usage: bench/replay.sh FOLDER [OPTION...]" >&2
    exit 2
}
folder=$1
shift
mkdir -p "$folder"

# The emulated link as a machine; what computes is in the profile.
cat >"$folder/link.yaml" <<'YAML'
version: 1
name: emulated-link
summary: CPU ranks joined by an emulated link of 2.5 Gbit/s and 100 us
accelerator: core
kind: cpu
accelerators-per-node: 64
memory: {value: 8GB, assumed: a share of the host's}
memory-rate: {value: 10GB/s, assumed: not used with a profile}
compute.fp32: {value: 50GFLOPS, assumed: not used with a profile}
inside.rate: {value: 312.5MB/s, source: the option --link}
inside.latency: {value: 100us, source: the option --link}
inside.share: {value: 1, source: the option --link}
inside.floor: {value: 0s, source: the option --link}
YAML

"$dpbench" profile --workload mnist-cnn --batch-per-rank 32 "$@" -o "$folder/profile.json" \
    --folder "$folder/profiled"
"$dpbench" sweep /dev/stdin --trace-steps 0 "$@" -o "$folder/measured" <<'YAML'
version: 1
name: replay
base: {workload: mnist-cnn, batch-per-rank: 32, threads-per-rank: 1, link: "2.5Gbps,100us"}
axes: {ranks: [1, 2], bucket: [256KiB, 1MiB, 25MiB]}
YAML
"$dpbench" simulate --profile "$folder/profile.json" --machine "$folder/link.yaml" \
    --against "$folder/measured" -o "$folder/simulated"
