# Strategies horovod and horovod-legacy as a user meets them.

load helper

@test "verify holds with both presets, fused and not" {
    for strategy in horovod horovod-legacy; do
        dpbench verify --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 4 \
            --ranks 3 --strategy "$strategy" --fusion-threshold 0,64MiB
        assert_exit 0
        assert_output '^ok +integer parameters equal one big batch, bit by bit'
        refute_output '^skip'
    done
}

@test "compression is no one big batch, and verify says so" {
    dpbench verify --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 4 --ranks 2 \
        --strategy horovod --compression fp16
    assert_exit 0
    assert_output '^ok +replicas identical after every step'
    assert_output '^skip +parameters follow one big batch'
}

@test "the trace has Horovod's words" {
    dpbench run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 6 --warmup 2 \
        --trace-steps 3 --probe-retries 0 --ranks 2 --strategy horovod -o out
    assert_exit 0
    trace=$(find out/traces -name '*.json' | head -n 1)
    for word in NEGOTIATE_ALLREDUCE QUEUE ALLREDUCE CYCLE_START; do
        grep -q "\"$word\"" "$trace"
    done
    python3 "$BATS_TEST_DIRNAME/../../profiles/tests/check_trace.py" "$trace"
    file=$(records_file)
    assert_json "$file" 'd[0]["plan"]["cycle_time_ns"]' 1000000
    assert_json "$file" 'd[0]["plan"]["reductions_per_step"] >= 1' true
}

# Ten steps instead of six.
@test "autotuning leaves its scores in the record and the report" {
    dpbench run "${quick[@]/%6/10}" --ranks 2 --strategy horovod --autotune on \
        --autotune-steps-per-sample 1 --autotune-warmup-samples 1 --autotune-samples 3 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'len(d[0]["plan"]["autotune"]["trials"])' 3
    assert_json "$file" 'd[0]["plan"]["autotune"]["is_frozen"]' true
    grep -q 'Autotuning: 2 ranks' out/report.md
}

@test "what does not go together is refused, with a reason" {
    dpbench run "${quick[@]}" --ranks 2 --strategy horovod --hierarchical on --torus on -o out
    [ "$status" -ne 0 ]
    assert_output 'two ways of one reduction'
    dpbench run --data synthetic --workload cifar-resnet20 --batch-per-rank 2 --steps 4 \
        --warmup 2 --probe-retries 0 --ranks 2 --strategy horovod --sync-bn on -o out2
    [ "$status" -ne 0 ]
    assert_output 'exchanges itself'
    dpbench run "${quick[@]}" --ranks 2 --strategy horovod --cycle-time soon -o out3
    assert_exit 2
    assert_output 'is not a duration'
}

@test "verify leaves batch normalisation to its ranks under a coordinator" {
    dpbench verify --data synthetic --workload cifar-resnet20 --ranks 2 --global-batch 8 --steps 3 \
        --strategy horovod
    assert_exit 0
    assert_output 'skipped: with --sync-bn off'
    assert_output '^ok +integer parameters equal one big batch, bit by bit'
}
