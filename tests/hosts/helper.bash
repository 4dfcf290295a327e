# helper.bash: what every test on several hosts loads, run as `hosts with 3 bats FILE`.

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

# need_rate BYTES_PER_SECOND: the wire from node1 to node2 carries nine tenths of what it is set to. It
# is what a comparison with the wire's rate needs, and what a machine with other work may not give.
need_rate() {
    local most=0 rate _
    for _ in 1 2 3 4 5 6; do
        rate=$("$hosts" rate node1 node2)
        [ "$rate" -le "$most" ] || most=$rate
        [ $((most * 10)) -lt $(($1 * 9)) ] || return 0
    done
    skip "this machine is busy: the wire of $1 B/s carried $most B/s at best"
}
