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

@test "verify passes for every strategy there is, with micro-batches" {
    for strategy in $("$DPBENCH" list strategies | cut -d " " -f 1); do
        dpbench verify --data synthetic --workload mnist-mlp --strategy "$strategy" --ranks 2 \
            --batch-per-rank 4 --accumulate 2 --steps 4
        assert_exit 0
    done
}

@test "verify says what it compared and within which bound" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16
    assert_exit 0
    assert_output '^ok +replicas identical after every step'
    assert_output '^ok +integer replicas identical after every step'
    assert_output 'largest difference .* beyond 5e-05'
    refute_output '^FAIL'
}

@test "verify holds optimizers that divide by the gradient to a share of elements" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16 \
        --optimizer adagrad
    assert_exit 0
    assert_output 'beyond 5e-05 .* 1 % may be, since adagrad'
}

@test "verify says why batch normalisation is not compared with one big batch" {
    dpbench verify --data synthetic --workload cifar-resnet20 --ranks 2 --global-batch 8 --steps 3 \
        --sync-bn off
    assert_exit 0
    assert_output '^ok +replicas identical after every step'
    assert_output 'skipped: with --sync-bn off batch normalisation sees the samples of its rank only'
    assert_output '^ok +integer parameters equal one big batch, bit by bit'
}

@test "verify leaves batch normalisation to its ranks under PowerSGD" {
    dpbench verify --data synthetic --workload cifar-resnet20 --ranks 2 --global-batch 8 --steps 3 \
        --hook powersgd
    assert_exit 0
    assert_output '^ok +replicas identical after every step'
    assert_output 'skipped: compressed gradients'
}

@test "verify synchronises batch normalisation, and compares its running statistics too" {
    for ranks in 2 3; do
        dpbench verify --data synthetic --workload cifar-resnet20 --ranks "$ranks" \
            --batch-per-rank 2 --steps 3
        assert_exit 0
        assert_output '^ok +losses follow one big batch'
        assert_output '^ok +parameters follow one big batch'
        assert_output 'after the first step: largest difference'
        assert_output '^ok +values beside the parameters follow one big batch'
        refute_output '^skip'
    done
}

@test "verify compares mixed precision, with bounds that it measures" {
    dpbench verify --data synthetic --workload cifar-resnet20 --ranks 2 --batch-per-rank 2 --steps 3 \
        --precision bf16
    ! grep -q 'has no operator .* in bf16' <<<"$output" || skip "this CPU has no bf16"
    assert_exit 0
    assert_output '^ok +parameters follow one big batch'
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 --precision bf16
    assert_exit 0
    assert_output '^ok +losses follow one big batch'
}

@test "verify compares tables that are spread over the ranks with those of one rank" {
    dpbench verify --data synthetic --workload dlrm-mlperf --table-rows-max 100 --ranks 3 \
        --batch-per-rank 4 --steps 3
    assert_exit 0
    assert_output '^ok +values beside the parameters follow one big batch'
    assert_output 'difference .* in emb_l'
}

@test "verify compares micro-batches with one big batch, dealt from shards, too" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 3 --batch-per-rank 4 --accumulate 2
    assert_exit 0
    assert_output '^ok +losses follow one big batch'
    assert_output '^ok +parameters follow one big batch'
    refute_output '^skip'
    dpbench data pack --workload mnist-mlp --data synthetic --shards 4 -o packed
    assert_exit 0
    dpbench verify --data packed --data-dir packed --workload mnist-mlp --ranks 2 \
        --batch-per-rank 4 --accumulate 2 --sharding shards
    assert_exit 0
    refute_output '^skip'
}

@test "verify says why micro-batches under batch normalisation are not one big batch" {
    dpbench verify --data synthetic --workload cifar-resnet20 --ranks 2 --batch-per-rank 2 \
        --accumulate 2 --steps 3
    assert_exit 0
    assert_output 'skipped: batch normalisation sees the samples of one micro-batch only'
    assert_output '^ok +integer parameters equal one big batch, bit by bit'
}

@test "verify says why compressed gradients are not compared with one big batch" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 3 --batch-per-rank 4 --hook powersgd
    assert_exit 0
    assert_output '^ok +replicas identical after every step'
    assert_output 'skipped: compressed gradients are rounded, or lack a part'
    assert_output '^ok +a planted divergence is found'
}

@test "verify compares replicas of local SGD where they are synchronised, and plants there" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 3 --batch-per-rank 4 \
        --strategy local-sgd --sync-every 3
    assert_exit 0
    assert_output 'after the 2 of 8 steps that synchronise them, on 3 ranks'
    assert_output 'skipped: between synchronisations every rank trains by itself'
    assert_output '^ok +a planted divergence is found'
    assert_output 'the replicas differ after step 3'
    dpbench verify --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 \
        --strategy local-sgd --sync-every 9
    assert_exit 0
    assert_output 'skipped: they were not synchronised in so few steps'
    refute_output '^ok'
}

@test "verify works with ring and tiny buckets" {
    dpbench verify --data synthetic --workload mnist-cnn --ranks 2 --global-batch 16 \
        --algorithm ring --bucket 4KiB
    assert_exit 0
}

@test "a planted divergence is found, and the rank is named" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 3 --global-batch 24
    assert_exit 0
    assert_output '^ok +a planted divergence is found'
    assert_output 'rank 2'
}

@test "one rank has nothing to differ from: said, not hidden" {
    dpbench verify --data synthetic --workload mnist-mlp --ranks 1 --global-batch 8
    assert_exit 0
    assert_output '^skip +a planted divergence'
    assert_output '^skip +losses follow one big batch'
    refute_output '^ok '
}

@test "verify --json is JSON" {
    dpbench_stdout verify --data synthetic --workload mnist-mlp --ranks 2 --global-batch 16 --json
    assert_exit 0
    printf '%s' "$output" >verify.json
    assert_json verify.json 'all(c["passed"] for c in d)' true
    assert_json verify.json 'len(d[0]["checks"]) >= 5' true
}

@test "verify follows real images, too" {
    [ -n "$(dpkg-query -L dataset-fashion-mnist 2>/dev/null)" ] ||
        skip "dataset-fashion-mnist is not installed"
    dpbench verify --workload mnist-cnn --ranks 2 --global-batch 32
    assert_exit 0
}

@test "verify refuses what cannot be verified" {
    dpbench verify --data synthetic --ranks abc
    assert_usage_error
    dpbench verify --data synthetic --ranks 2 --global-batch 15
    assert_exit 2
}
