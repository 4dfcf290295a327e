# Packed data sets: made, checked, trained from.

load helper

# Small IDX files of 80 images to train and 20 to test into the folder idx.
make_idx() {
    python3 - <<'PYTHON'
import os, random, struct
random.seed(3)
os.mkdir("idx")
for name, count in ("train", 80), ("t10k", 20):
    with open(f"idx/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28))
        file.write(bytes(random.randrange(256) for _ in range(count * 28 * 28)))
    with open(f"idx/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">4BI", 0, 0, 8, 1, count))
        file.write(bytes(random.randrange(10) for _ in range(count)))
PYTHON
}

train() {
    dpbench run --workload mnist-mlp --ranks 2 --batch-per-rank 8 --steps 6 --warmup 2 \
        --trace-steps 0 --probe-retries 0 --evaluate on "$@"
    assert_exit 0
}

@test "training from packed shards is training from what was packed" {
    make_idx
    dpbench data pack --data fashion-mnist --data-dir idx --shards 3 -o packed
    assert_exit 0
    assert_output 'packed: 80 samples to train in 3 shards, 20 to test in 3'
    assert_json packed/index.json 'd["data"], [s["samples"] for s in d["train"]]' \
        '["fashion-mnist", [26, 27, 27]]'
    dpbench data check packed
    assert_exit 0
    train --data fashion-mnist --data-dir idx -o a
    train --data packed --data-dir packed -o b
    assert_json b/records.jsonl 'd[0]["data"]["kind"], d[0]["data"]["synthetic"]' '["packed", false]'
    training=$(json a/records.jsonl 'd[0]["training"]')
    [[ $training == *'"test_samples": 20'* ]]
    assert_json b/records.jsonl 'd[0]["training"]' "$training"
}

@test "each rank reads its own shards only, and the record says which" {
    make_idx
    "$DPBENCH" data pack --data fashion-mnist --data-dir idx --shards 4 -o packed
    train --data packed --data-dir packed -o out
    assert_json out/records.jsonl \
        'd[0]["config"]["sharding"], d[0]["data"]["sharding"], d[0]["data"]["shards"]' \
        '["auto", "shards", 4]'
    bytes=$(($(stat -c %s packed/train-00000.dpbs) + $(stat -c %s packed/train-00002.dpbs)))
    assert_json out/records.jsonl 'd[0]["data"]["rank_files"], d[0]["data"]["rank_file_bytes"]' \
        "[[2, 2], [$bytes, $bytes]]"
    assert_json out/records.jsonl 'd[0]["training"]["test_samples"]' 20
    train --data packed --data-dir packed --sharding samples -o samples
    assert_json samples/records.jsonl 'd[0]["data"]["sharding"], d[0]["data"]["rank_files"]' \
        '["samples", [4, 4]]'
    dpbench verify --workload mnist-mlp --ranks 2 --batch-per-rank 8 --data packed \
        --data-dir packed --sharding shards --seed 7
    assert_exit 0
    assert_output 'ok +parameters follow one big batch'
}

@test "interactions are made, packed, learnt, and said to be made up" {
    dpbench data make --workload dlrm-small --samples 6000 --seed 3 -o clicks.csv
    assert_exit 0
    assert_output 'clicks.csv: 6000 synthetic interactions'
    [ "$(head -c 11 clicks.csv)" = '# synthetic' ]
    "$DPBENCH" data make --workload dlrm-small --samples 6000 --seed 3 -o again.csv
    cmp clicks.csv again.csv
    dpbench data make --workload dlrm-small --samples 6000 --seed 3 -o clicks.csv
    assert_exit 2
    dpbench data pack --workload dlrm-small --data interactions --data-file clicks.csv --shards 2 \
        -o packed
    assert_exit 0
    dpbench run --workload dlrm-small --ranks 2 --batch-per-rank 128 --steps 60 --warmup 2 \
        --trace-steps 0 --probe-retries 0 --data packed --data-dir packed -o out
    assert_exit 0
    assert_json out/records.jsonl \
        'd[0]["data"]["synthetic"], d[0]["data"]["sharding"], d[0]["data"]["rank_files"]' \
        '[true, "shards", [1, 1]]'
    assert_json out/records.jsonl \
        'd[0]["memory"]["predicted"]["data"]' \
        "$((5400 / 2 * 8 + 2 * 128 * (40 * 4 + 8)))"
    assert_json out/records.jsonl \
        'd[0]["training"]["loss_last"] < d[0]["training"]["loss_first"]' true
}

@test "too few shards, and unequal ones, are named" {
    make_idx
    "$DPBENCH" data pack --data mnist --data-dir idx --shards 3 -o packed
    run_packed() {
        dpbench run --workload mnist-mlp --batch-per-rank 4 --steps 4 --warmup 2 --trace-steps 0 \
            --probe-retries 0 --data packed --data-dir packed --sharding shards "$@"
    }
    run_packed --ranks 4 -o out
    assert_exit 2
    assert_output 'packed" has 3 shards of "train", too few for 4 ranks'
    assert_output 'dpbench data pack --shards 4'
    [ ! -e out ]
    run_packed --ranks 2 -o out
    assert_exit 0
    assert_output 'leaves out 32 of 80 samples in every epoch'
    assert_json out/records.jsonl 'd[0]["data"]["steps_per_epoch"]' 6
    dpbench run --workload mnist-mlp --data synthetic --sharding shards -o none
    assert_exit 2
    assert_output '--data synthetic has no shards'
}

@test "damaged shards are named, and so is where" {
    make_idx
    "$DPBENCH" data pack --data mnist --data-dir idx -o packed
    cp -r packed cut
    truncate -s -100 cut/train-00000.dpbs
    dpbench run --data packed --data-dir cut --ranks 1 --steps 4 --warmup 2 -o out
    assert_exit 5
    assert_output 'cut/train-00000.dpbs": it ends at byte [0-9]+, within sample 79 of 80'
    [ ! -e out ]
    printf x | dd of=packed/test-00000.dpbs bs=1 seek=5000 conv=notrunc status=none
    dpbench data check packed
    assert_exit 5
    assert_output 'packed/test-00000.dpbs": the samples from byte 192 to [0-9]+ are damaged'
    dpbench run --workload cifar-resnet20 --data packed --data-dir packed --ranks 1 -o out
    assert_exit 2
    assert_output 'holds 28x28x1 images of 10 classes, the workload takes 32x32x3'
}

@test "data says what it cannot do" {
    for words in mend pack 'pack -o out --samples 5' 'pack -o out --steps 5' \
        'pack here -o out --data mnist' 'pack -o out --shards 0' check 'check a b' \
        'check a --shards 2' 'check a -o b' make 'make here' 'make -o out --shards 2' \
        'make -o out' 'make --workload dlrm-small -o out --data synthetic' \
        'make --workload dlrm-small -o out --samples 1' 'check a --samples 5'; do
        # shellcheck disable=SC2086 # words of a command line
        dpbench data $words
        assert_usage_error
    done
    dpbench data check nowhere
    assert_exit 3
    assert_output 'there is no packed data set in "nowhere"'
}
