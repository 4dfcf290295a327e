# The bed itself: hosts that are no hosts would let every test on them pass.
load helper

@test "hosts: each has its name, address, processes and scratch folder" {
    need_hosts
    for node in node1 node2 node3; do
        run "$hosts" run "$node" sh -c 'hostname; touch "$TMPDIR/mine"; ls "$TMPDIR"; ls -d /proc/[0-9]* | wc -l'
        assert_exit 0
        [ "${lines[0]}" = "$node" ]
        [ "${lines[1]}" = mine ]
        [ "${lines[2]}" -lt 10 ]
    done
    [ ! -e "$HOSTS/scratch/mine" ]
    run "$hosts" run node2 sh -c 'getent hosts node2; cat /proc/net/fib_trie | grep -c "10.77.0.2$"'
    assert_output '^10\.77\.0\.2 '
}

@test "hosts: mpirun of Open MPI and of MPICH starts ranks where it is told to" {
    need_hosts
    for mpi in openmpi mpich; do
        need_mpirun $mpi
        run timeout 120 "$mpirun" "${through_agent[@]}" --host node1,node2,node3 -n 3 \
            sh -c 'echo "${OMPI_COMM_WORLD_RANK-$PMI_RANK} on $(hostname)"'
        assert_exit 0
        for rank in 0 1 2; do
            assert_output "^$rank on node$((rank + 1))\$"
        done
    done
}

# Hundredths of a second, of a clock that nobody sets.
uptime_cs() {
    local up
    read -r up _ </proc/uptime
    echo "${up/./}"
}

@test "hosts: what is sent crosses the sender's wire, never faster than its rate; a cut one carries nothing" {
    need_hosts
    payload=$(((HOSTS_MBIT * 62500 >> 20) << 20))
    before=$("$hosts" bytes node3)
    other=$("$hosts" bytes node1)
    began=$(uptime_cs)
    run "$hosts" rate node3 node2
    took=$(($(uptime_cs) - began + 1))
    assert_exit 0
    after=$("$hosts" bytes node3)
    sent=$((${after% *} - ${before% *}))
    other_after=$("$hosts" bytes node1)
    echo "$sent bytes for $payload in $took cs"
    # Headers, and what TCP sends again on a busy machine, come to it.
    [ "$sent" -ge "$payload" ]
    [ "$sent" -lt $((payload * 2)) ]
    [ $((${other_after% *} - ${other% *})) -lt 1000000 ]
    # The time has all that runs beside it, too, and only 256 KiB may go at once.
    [ $((took * HOSTS_MBIT * 1250)) -gt $((payload - (1 << 18))) ]
    "$hosts" cut node2
    # shellcheck disable=SC2016 # for the host's bash
    run "$hosts" run node1 timeout 2 bash -c ': >/dev/tcp/node2/5001'
    [ "$status" -eq 124 ] || assert_output 'No route to host'
    "$hosts" mend node2
    run "$hosts" rate node1 node2
    assert_exit 0
}

@test "hosts: processes of a host are seen; killing it ends them" {
    need_hosts
    "$hosts" run node3 sleep 1000 3>&- &
    for _ in $(seq 300); do
        output=$("$hosts" processes node3)
        ! grep -Eq '^[0-9]+ sleep 1000 $' <<<"$output" || break # before, they are those that start it
        sleep 0.2
    done
    assert_output '^[0-9]+ sleep 1000 $'
    "$hosts" kill node3
    wait $! || true
    output=$("$hosts" processes node1)
    refute_output sleep
    run pgrep -f '^sleep 1000$'
    [ -z "$output" ]
}

# Processes of the hosts that were made with this mark.
count_ours() {
    grep -lzs "^MARK=$folder\$" /proc/[0-9]*/environ | wc -l
}

@test "hosts: nothing is left of them when their maker is killed" {
    need_hosts
    clock=()
    ! unshare --time --monotonic 1 --fork true 2>/dev/null || clock=(--clock node2:+1000)
    MARK=$folder "$hosts" with 2 "${clock[@]}" sleep 1001 3>&- &
    maker=$!
    for _ in $(seq 600); do
        ! pgrep -f '^sleep 1001$' || break
        sleep 0.2
    done
    [ "$(count_ours)" -ge 5 ] # the maker, login, two hosts, the command
    place=$(tr '\0' '\n' <"/proc/$(pgrep -f '^sleep 1001$')/environ" | sed -n 's/^HOSTS=//p')
    kill -KILL "$maker"
    wait "$maker" || true
    for _ in $(seq 600); do
        [ "$(count_ours)" -gt 0 ] || break
        sleep 0.2
    done
    [ "$(count_ours)" -eq 0 ]
    rmdir "$place" # empty
}
