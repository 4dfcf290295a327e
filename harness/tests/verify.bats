# Replicas stay identical, N ranks follow one rank with the whole batch, divergence is caught.

load helper

@test "verify passes for every strategy, with 2 and 3 ranks" {
    for strategy in none naive ddp; do
        for ranks in 2 3; do
            dpbench verify --data synthetic --workload mnist-mlp --strategy "$strategy" \
                --ranks "$ranks" --global-batch 24
            assert_exit 0
        done
    done
}

@test "verify says what it compared and within which bound" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16
    assert_exit 0
    assert_output '[Rr]eplicas'
    assert_output '(bitwise|bit by bit|identical)'
    assert_output 'bound|<='
}

@test "verify works with ring and tiny buckets" {
    dpbench verify --data synthetic --workload mnist-cnn --ranks 2 --global-batch 16 \
        --algorithm ring --bucket 4KiB
    assert_exit 0
}

@test "a planted divergence is caught: exit 1" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16 \
        --plant-divergence
    assert_exit 1
    assert_output '(differ|diverge)'
    assert_output 'rank 1'
}

@test "verify --json is JSON" {
    dpbench_stdout verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16 --json
    assert_exit 0
    printf '%s' "$output" >verify.json
    python3 -m json.tool verify.json >/dev/null
}

@test "verify refuses what cannot be verified" {
    dpbench verify --data synthetic --ranks abc
    assert_usage_error
    dpbench verify --data synthetic --ranks 2 --global-batch 15
    assert_exit 2
}
