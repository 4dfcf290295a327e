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
        run timeout 60 "$mpirun" "${through_agent[@]}" --host node1,node2,node3 -n 3 \
            sh -c 'echo "${OMPI_COMM_WORLD_RANK-$PMI_RANK} on $(hostname)"'
        assert_exit 0
        for rank in 0 1 2; do
            assert_output "^$rank on node$((rank + 1))\$"
        done
    done
}

@test "hosts: a wire carries its rate and never more; a cut one nothing" {
    need_hosts
    need_rate rate
    rate=$("$hosts" rate node3 node2)
    [ "$rate" -lt $((HOSTS_MBIT * 130000)) ]
    before=$("$hosts" bytes node3)
    "$hosts" rate node3 node2
    after=$("$hosts" bytes node3)
    sent=$((${after% *} - ${before% *}))
    [ $((sent * 100)) -gt $((HOSTS_MBIT * 62500 * 97)) ]
    [ $((sent * 100)) -lt $((HOSTS_MBIT * 62500 * 110)) ]
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
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        output=$("$hosts" processes node3)
        [ -z "$output" ] || break
        sleep 0.2
    done
    assert_output '^[0-9]+ sleep 1000 $'
    "$hosts" kill node3
    wait $! || true
    run "$hosts" processes node1
    [ -z "$output" ]
    run pgrep -f '^sleep 1000$'
    [ -z "$output" ]
}

@test "hosts: nothing is left of them when their maker is killed" {
    need_hosts
    before=$(pgrep -fc 'hosts (login|node) ')
    "$hosts" with 2 --clock node2:+1000 sleep 1001 3>&- &
    maker=$!
    for _ in $(seq 100); do
        ! pgrep -f '^sleep 1001$' || break
        sleep 0.1
    done
    [ "$(pgrep -fc 'hosts (login|node) ')" -gt "$before" ]
    kill -KILL "$maker"
    for _ in $(seq 100); do
        [ "$(pgrep -fc 'hosts (login|node) |^sleep 1001$')" -gt "$before" ] || break
        sleep 0.1
    done
    [ "$(pgrep -fc 'hosts (login|node) ')" -eq "$before" ]
    ! pgrep -f '^sleep 1001$'
}
