# Hosts whose clocks differ: node2's is 1000 s ahead.
load helper

@test "hosts: a clock that is 1000 s off: the offset is found, no duration contains it" {
    need_hosts
    across openmpi
    dpbench run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 6 --warmup 2 --trace-steps 3 \
        --probe-retries 0 "${across[@]}" --hosts node1,node2 --ranks 2 -o out
    assert_exit 0
    records=out/records.jsonl
    assert_json $records 'd[0]["clocks"]["domains"]' 2
    assert_json $records '[abs(r["shift_ns"] + 10**12) <= r["error_ns"] < 10**9 for r in d[0]["clocks"]["ranks"] if r["host"] == "node2"]' '[true]'
    assert_json $records 'max(d[0]["samples_step_ns"]) < 10**11' true
    assert_json $records '0 <= d[0]["overlap"]["exposed_ns"] < 10**11' true
    # The trace of both is on one axis.
    times='[e["ts"] for e in d["traceEvents"] if e["ph"] == "X"]'
    assert_json out/traces/cell000-repeat0.json "max($times) - min($times) < 100e6" true
    assert_json out/traces/cell000-repeat0.json '{e["pid"] for e in d["traceEvents"]} >= {0, 1}' true
}
