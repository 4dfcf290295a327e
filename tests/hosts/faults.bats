# Ranks and hosts that are lost while others work.
load helper

@test "hosts: a wire that is cut: exit 4, the host is named, earlier records stay, nobody is left anywhere" {
    need_hosts
    across openmpi
    cat >sweep.yaml <<'YAML'
version: 1
name: cut
base: {workload: mnist-mlp, data: synthetic, batch-per-rank: 8, warmup: 2, repeats: 1}
axes: {steps: [6, 2000000], ranks: [6]}
YAML
    start_dpbench sweep sweep.yaml "${across[@]}" "${all_hosts[@]}" --probe-retries 0 --trace-steps 0 -o out
    wait_for_records out 1
    cp out/records.jsonl before.jsonl
    wait_for_steps node2 2
    "$hosts" cut node2
    finish_dpbench 120
    "$hosts" mend node2
    assert_exit 4
    assert_output 'error: .*node2'
    head -c "$(stat -c %s before.jsonl)" out/records.jsonl | cmp - before.jsonl
    assert_json out/records.jsonl '[r["status"] for r in d]' '["ok", "timeout"]'
    assert_json out/records.jsonl '"node2" in d[1]["reason"]' true
    assert_idle_within 120
}

@test "hosts: a host that loses its power: exit 4, it is named, the others end" {
    need_hosts
    across openmpi
    start_dpbench run "${endless[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 6 -o out
    wait_for_steps node3 2
    # All of its processes at once, as far as the others can tell.
    "$hosts" cut node3
    "$hosts" processes node3 | awk '{ print $1 }' | xargs kill -KILL || true # some end with others
    finish_dpbench 120
    "$hosts" mend node3
    assert_exit 4
    assert_output 'error: .*node3'
    assert_idle_within 120
}

@test "hosts: a rank is killed on one host: exit 4 names rank, host and collective, the others end" {
    need_hosts
    for mpi in openmpi mpich; do
        across $mpi
        start_dpbench run "${endless[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 6 -o $mpi
        wait_for_steps node2 2
        kill -KILL "${ranks[0]}"
        finish_dpbench 120
        assert_exit 4
        assert_output 'rank [23]\b.*node2'
        assert_idle_within 120
    done
}

@test "hosts: a rank is stopped on one host: exit 4 names rank, host and collective" {
    need_hosts
    across openmpi
    start_dpbench run "${endless[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 6 -o out
    wait_for_steps node3 2
    kill -STOP "${ranks[1]}"
    finish_dpbench 120
    assert_exit 4
    assert_output 'error: rank [45] .*on node3.* in step [0-9]+ \([a-z]+, bucket [0-9]+\)'
    assert_idle_within 120
}

@test "hosts: Ctrl-C: exit 130, nobody is left" {
    need_hosts
    across openmpi
    start_dpbench run "${endless[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 6 -o out
    wait_for_steps node3 2
    kill -INT "$background"
    finish_dpbench 120
    assert_exit 130
    assert_idle_within 120
}

@test "hosts: a driver that is killed: its ranks end by themselves" {
    need_hosts
    across openmpi
    start_dpbench run "${endless[@]}" "${across[@]}" "${all_hosts[@]}" --ranks 6 -o out
    wait_for_steps node3 2
    kill -KILL "$background"
    assert_idle_within 120
}
