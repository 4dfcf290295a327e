# helper.bash: what every test on several hosts loads, run as `hosts with 3 bats FILE`.
# shellcheck disable=SC2034,SC2154 # variables are for the files that load this, or are of those that it loads

load ../../harness/tests/helper

bed=$(cd "$BATS_TEST_DIRNAME/../hosts" && pwd)
hosts=$bed/hosts
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # the agent passes no user on

need_hosts() {
    [ -z "${HOSTS_MISSING:-}" ] || skip "$HOSTS_MISSING"
    [ -n "${HOSTS:-}" ] || skip "not started by tests/hosts/hosts"
}

# need_mpirun NAME: openmpi or mpich; its program into $mpirun, the options that start ranks through
# the agent into $through_agent
need_mpirun() {
    mpirun=$(command -v "mpirun.$1") || skip "mpirun.$1 is not installed"
    case $1 in
    openmpi) through_agent=(--mca plm_rsh_agent "$bed/agent" --mca plm_rsh_no_tree_spawn 1) ;;
    mpich) through_agent=(-launcher rsh -launcher-exec "$bed/agent") ;;
    esac
}

# across MPI: the options that start ranks with mpirun of openmpi or mpich on hosts, into $across. Ranks are
# many and cores few: who waits gives its core away.
across() {
    need_mpirun "$1"
    mkdir -p "$folder/bin"
    # No link: Open MPI looks for the rest of it beside the name by which it was called.
    printf '#!/bin/sh\nexec %s "$@"\n' "$mpirun" >"$folder/bin/mpirun"
    chmod +x "$folder/bin/mpirun"
    PATH=$folder/bin:$PATH
    export OMPI_MCA_mpi_yield_when_idle=1
    across=(--launcher mpirun --launcher-args "${through_agent[*]}" --comm mpi --bind off)
}

# Two ranks to a node.
all_hosts=(--hosts "node1:2,node2:2,node3:2" --ranks-per-node 2)

# A run that ends only because something happens to it.
endless=(--data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 2000000 --warmup 2
    --trace-steps 0 --probe-retries 0)

# A sweep of few and short launches: one axis, which the test names.
short=("${quick[@]}" --overlap on --bucket 4MiB --repeats 1)

# need_rate rate|exchange: the wire between node1 and node2 carries nine tenths of what it is set to. It is
# what a comparison with that rate needs, and what a machine with other work may not give.
need_rate() {
    local most=0 rate _
    for _ in 1 2 3 4 5 6; do
        rate=$("$hosts" "$1" node1 node2)
        [ "$rate" -le "$most" ] || most=$rate
        [ "$most" -lt $((HOSTS_MBIT * 112500)) ] || return 0
    done
    skip "this machine is busy: a wire of $((HOSTS_MBIT * 125000)) B/s carried $most B/s at best"
}

# Nobody runs on a host but its first process, within SECONDS.
assert_idle_within() {
    local tries=$(($1 * 5)) node left
    while :; do
        left=
        for ((node = 1; node <= HOSTS_COUNT; node++)); do
            left+=$("$hosts" processes "node$node")
        done
        [ -n "$left" ] || return 0
        [ $((tries -= 1)) -gt 0 ] || break
        sleep 0.2
    done
    printf 'still there: %s\n' "$left" >&2
    return 1
}

# Where every node sends more than this the ranks are in their steps: MPI's and the first weights are less.
in_steps_bytes=20000000

# wait_for_steps NODE COUNT: until its ranks have trained for a while: $ranks, as seen from here. That they
# have computed would not tell: who waits for others in MPI_Init computes, too.
wait_for_steps() {
    local tries=0 before sent
    before=$("$hosts" bytes "$1")
    while [ "$tries" -lt 1200 ] && kill -0 "$background" 2>/dev/null; do
        sent=$("$hosts" bytes "$1")
        mapfile -t ranks < <("$hosts" processes "$1" | awk '$NF == "worker" { print $1 }')
        [ "${#ranks[@]}" -ne "$2" ] || [ $((${sent% *} - ${before% *})) -lt "$in_steps_bytes" ] || return 0
        sleep 0.2
        tries=$((tries + 1))
    done
    printf 'no %s ranks in their steps on %s; output:\n' "$2" "$1" >&2
    cat "$folder/log" >&2
    return 1
}
