# dpbench in jobs of a real Slurm, as `hosts with 2 slurm with bats FILE` or `slurm with bats FILE`.
load ../hosts/helper

need_slurm() {
    [ -z "${SLURM_MISSING:-}" ] || skip "$SLURM_MISSING"
    [ -n "${SLURM_CONF:-}" ] || skip "not started by tests/slurm/slurm"
    nodes=${HOSTS_COUNT:-1}
}

# need_plugin NAME MPI: srun can start ranks of an MPI
need_plugin() {
    need_mpirun "$2"
    srun --mpi=list 2>&1 | grep -qw "$1" || skip "this Slurm has no plugin $1"
}

# example N: the N-th batch script of the documentation, into job.sh
example() {
    awk -v wanted="$1" '/^```bash/ { here = ++n == wanted; next } /^```/ { here = 0 } here' \
        "$BATS_TEST_DIRNAME/../../docs/clusters/slurm.md" >job.sh
    [ -s job.sh ]
    PATH=$(dirname "$DPBENCH"):$PATH
}

# batch OPTIONS...: submit job.sh on all nodes with these options of its own; its output in $output
batch() {
    status=0
    sbatch --wait --nodes="$nodes" --ntasks-per-node=$((4 / nodes)) --output=job.out job.sh "$@" || status=$?
    output=$(cat job.out)
}

# Ranks of this Slurm's jobs: nobody else's on this machine.
find_ranks() {
    local pid
    ranks=()
    for pid in $(pgrep -f 'dpbench worker$'); do
        ! grep -qsz "^SLURM_CONF=$SLURM_CONF\$" "/proc/$pid/environ" || ranks+=("$pid")
    done
}

# How many of them have computed more than it takes to reach the driver: it knows them.
count_started() {
    local pid ticks count=0
    for pid in "${ranks[@]}"; do
        ticks=$(cpu_ticks "$pid") || true
        [ "${ticks:-0}" -lt 50 ] || count=$((count + 1))
    done
    echo "$count"
}

assert_no_ranks() {
    for _ in $(seq 300); do
        find_ranks
        [ "${#ranks[@]}" -gt 0 ] || return 0
        sleep 0.2
    done
    echo "still there: ${ranks[*]}" >&2
    return 1
}

@test "slurm: srun starts every rank of one node, which meet without a secret" {
    need_slurm
    need_plugin pmix openmpi
    run srun --mpi=pmix --nodes=1 --ntasks=4 "$DPBENCH" run "${quick[@]}" --launcher none --comm mpi --ranks 4 -o out
    assert_exit 0
    assert_json "$(records_file)" '[(r["ranks"], r["status"]) for r in d]' '[[4, "ok"]]'
}

@test "slurm: the documentation's batch script with the driver in it, over numbers of ranks" {
    need_slurm
    need_plugin pmix openmpi
    example 1
    batch "${short[@]}"
    assert_exit 0
    assert_json "$(records_file)" 'sorted((r["ranks"], r["status"]) for r in d)' \
        '[[1, "ok"], [2, "ok"], [4, "ok"]]'
}

@test "slurm: the documentation's batch script with a task for every rank" {
    need_slurm
    need_plugin pmix openmpi
    example 2
    batch "${quick[@]}"
    assert_exit 0
    assert_json "$(records_file)" '[(r["ranks"], r["status"]) for r in d]' '[[4, "ok"]]'
    refute_output "$(printf '[0-9a-f]%.0s' $(seq 64))"
}

@test "slurm: job steps of MPICH" {
    need_slurm
    need_plugin pmi2 mpich
    run salloc --quiet --nodes="$nodes" --ntasks=2 "$DPBENCH" run "${quick[@]}" --launcher srun \
        --launcher-args --mpi=pmi2 --comm mpi --ranks 2 -o out
    assert_exit 0
    assert_json "$(records_file)" '[(r["ranks"], r["status"]) for r in d]' '[[2, "ok"]]'
}

@test "slurm: ranks without a plugin are as many programs for MPI: refused, exit 3" {
    need_slurm
    need_mpirun mpich
    export DPBENCH_TOKEN=0123456789abcdef0123456789abcdef
    run srun --mpi=none --ntasks=2 "$DPBENCH" run "${quick[@]}" --launcher none --comm mpi --ranks 2 -o out
    assert_exit 3
    assert_output '--mpi=pmix .Open MPI. or --mpi=pmi2 .MPICH.'
    assert_no_ranks
}

@test "slurm: tasks that nobody told of each other, or that have no secret, are refused: exit 3" {
    need_slurm
    run srun --nodes=1 --ntasks=2 "$DPBENCH" run "${quick[@]}" --ranks 2 -o out
    assert_exit 3
    assert_output 'launched as 2 processes \(SLURM'
    assert_nothing_written
    [ "$nodes" -gt 1 ] || skip "one node: there is nobody to have no secret with"
    run srun --nodes=2 --ntasks=2 "$DPBENCH" run "${quick[@]}" --launcher none --ranks 2 -o out
    assert_exit 3
    assert_output 'DPBENCH_TOKEN is not set'
    assert_nothing_written
}

@test "slurm: a rank of a job step is killed: exit 4, no rank is left" {
    need_slurm
    need_plugin pmix openmpi
    salloc --quiet --nodes="$nodes" --ntasks=4 "$DPBENCH" run "${endless[@]}" --launcher srun \
        --launcher-args --mpi=pmix --comm mpi --ranks 4 -o out >"$folder/log" 2>&1 3>&- &
    background=$!
    for _ in $(seq 600); do
        find_ranks
        [ "$(count_started)" -lt 4 ] || break
        sleep 0.2
    done
    kill -KILL "${ranks[3]}"
    finish_dpbench 120
    assert_exit 4
    assert_output 'rank [0-3]'
    assert_no_ranks
    assert_json "$(records_file)" 'd[0]["status"]' failed
}

@test "slurm: a job that is cancelled leaves no rank, and its complete records" {
    need_slurm
    need_plugin pmix openmpi
    example 1
    job=$(sbatch --parsable --nodes="$nodes" --ntasks-per-node=$((4 / nodes)) --output=job.out job.sh \
        "${quick[@]}" --overlap on --bucket 4MiB --repeats 1000)
    for _ in $(seq 1200); do
        [ ! -s "results-$job/records.jsonl" ] || break
        sleep 0.1
    done
    scancel --signal=INT --full "$job"
    for _ in $(seq 1200); do
        squeue -h -j "$job" 2>/dev/null | grep -q . || break
        sleep 0.1
    done
    assert_no_ranks
    assert_json "results-$job/records.jsonl" 'd[0]["status"]' ok
}
