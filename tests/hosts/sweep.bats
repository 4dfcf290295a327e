# Sweeps whose ranks are on several hosts.
load helper

# A folder that only this host sees: what is in it the driver wrote.
own_folder() {
    mkdir -p "$folder/own"
    mount -t tmpfs -o size=64m own "$folder/own"
}

teardown() {
    cd /
    umount "$folder/own" 2>/dev/null || true
    [ -z "${background:-}" ] || kill -KILL "$background" 2>/dev/null || true
    rm -rf "$folder"
}

check_sweep() {
    across "$1"
    own_folder
    dpbench sweep "${short[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 2,4,6 \
        -o own/run
    assert_exit 0
    records=own/run/records.jsonl
    assert_json $records 'sorted((r["ranks"], r["status"]) for r in d)' \
        '[[2, "ok"], [4, "ok"], [6, "ok"]]'
    assert_json $records '[[(h["name"], h["first_rank"], h["ranks"]) for h in r["world"]["hosts"]]
        for r in d if r["ranks"] == 6]' '[[["node1", 0, 2], ["node2", 2, 2], ["node3", 4, 2]]]'
    assert_json $records 'sorted((r["ranks"], r["world"]["nodes"]) for r in d)' '[[2, 1], [4, 2], [6, 3]]'
    assert_json $records '{r["verified"]["replicas_identical"] for r in d} == {True}' true
    assert_idle_within 60
    for node in node1 node2 node3; do
        # shellcheck disable=SC2016 # for the host's shell
        run "$hosts" run $node sh -c 'ls "$1"; ls -A "$TMPDIR" | grep -v nothing' sh "$folder/own"
        refute_output 'dpbench|run'
    done
}

@test "hosts: 1, 2 and 3 nodes with mpirun of Open MPI; who was where; one folder, by the driver alone" {
    need_hosts
    check_sweep openmpi
}

@test "hosts: the same with mpirun of MPICH" {
    need_hosts
    check_sweep mpich
}

@test "hosts: each node has its own shards only, and the driver's host none" {
    need_hosts
    across openmpi
    options=(--workload dlrm-small --table-rows 100)
    "$DPBENCH" data make "${options[@]}" --samples 800 -o interactions.csv
    "$DPBENCH" data pack "${options[@]}" --data interactions --data-file interactions.csv --shards 4 -o packed
    # Rank r of 4 reads shard r; ranks 0 and 1 are on node1.
    for node in node1 node2; do
        "$hosts" run $node mkdir "$HOSTS/scratch/data"
        "$hosts" run $node cp packed/index.json "$HOSTS/scratch/data/"
    done
    for shard in 0 1 2 3; do
        "$hosts" run node$((shard / 2 + 1)) cp packed/train-0000$shard.dpbs packed/test-0000$shard.dpbs "$HOSTS/scratch/data/"
    done
    dpbench run "${options[@]}" --data packed --data-dir "$HOSTS/scratch/data" --sharding shards \
        --embedding-gradients sharded --batch-per-rank 8 --steps 6 --warmup 2 --trace-steps 0 --probe-retries 0 \
        "${across[@]}" --hosts node1:2,node2:2 -o out
    assert_exit 0
    assert_json out/records.jsonl '[(r["status"], r["ranks"]) for r in d]' '[["ok", 4]]'
    "$hosts" run node2 rm "$HOSTS/scratch/data/train-00003.dpbs"
    dpbench run "${options[@]}" --data packed --data-dir "$HOSTS/scratch/data" --sharding shards \
        --batch-per-rank 8 --steps 6 --warmup 2 --trace-steps 0 --probe-retries 0 \
        "${across[@]}" --hosts node1:2,node2:2 -o lost
    [ "$status" -ne 0 ]
    assert_output 'rank 3 \(pid [0-9]+ on node2\).*train-00003'
    "$hosts" run node1 rm -r "$HOSTS/scratch/data"
    "$hosts" run node2 rm -r "$HOSTS/scratch/data"
}

@test "hosts: two drivers at once, on two hosts, do not share a folder" {
    need_hosts
    across openmpi
    start_dpbench sweep "${endless[@]}" --overlap on --bucket 4MiB --repeats 1 "${across[@]}" "${all_hosts[@]}" \
        --ranks 2,4,6 -o out
    for _ in $(seq 1200); do
        [ ! -e out/manifest.json ] || break
        sleep 0.1
    done
    run "$hosts" run node1 "$DPBENCH" sweep "${short[@]}" --ranks 2 -o out
    assert_exit 2
    assert_output 'already holds a run'
    run "$hosts" run node1 "$DPBENCH" sweep --resume out
    assert_exit 2
    assert_output 'hint: .*--launcher mpirun --hosts node1:2,node2:2,node3:2'
    run "$hosts" run node1 env PATH="$PATH" "$DPBENCH" sweep --resume out --launcher mpirun \
        --hosts node1:2,node2:2,node3:2
    assert_exit 3
    assert_output 'another dpbench is running'
    kill -INT "$background"
    finish_dpbench 120
    assert_exit 130
    assert_idle_within 60
}
