# One configuration: what is printed, what is recorded, and that training is training.

load helper

@test "run records what it did" {
    dpbench run "${quick[@]}" --ranks 2 --bucket 1MiB -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'len(d)' 1
    assert_json "$file" 'd[0]["schema"]' dpb.record/1
    assert_json "$file" 'd[0]["status"]' ok
    assert_json "$file" 'd[0]["ranks"]' 2
    assert_json "$file" 'd[0]["config"]["bucket_bytes"]' 1048576
    assert_json "$file" 'len(d[0]["samples_step_ns"])' 4
    assert_json "$file" 'all(isinstance(n, int) and n > 0 for n in d[0]["samples_step_ns"])' true
    assert_json "$file" 'd[0]["global_batch"], d[0]["batch_per_rank"]' '[16, 8]'
    assert_json "$file" 'd[0]["verified"]["replicas_identical"]' true
    assert_json "$file" 'd[0]["emulated"], d[0]["simulated"]' '[false, false]'
    assert_json "$file" '0 < d[0]["probe"]["availability_ratio"] <= 1' true
    assert_json "$file" '"NaN" in open(sys.argv[1]).read()' false
}

@test "run --json prints JSON on stdout and nothing else" {
    dpbench_stdout run "${quick[@]}" --ranks 1 -o out --json
    assert_exit 0
    printf '%s' "$output" >stdout.json
    python3 -m json.tool stdout.json >/dev/null
}

@test "without -o the record lands under runs/" {
    dpbench run "${quick[@]}" --ranks 1
    assert_exit 0
    [ "$(find . -path './runs/*/records.jsonl' | wc -l)" -eq 1 ]
    [ "$(find . -path './runs/*/manifest.json' | wc -l)" -eq 1 ]
}

@test "synthetic data and an emulated link are always named" {
    dpbench run "${quick[@]}" --ranks 2 --link 10Gbps,5us -o out
    assert_exit 0
    assert_output 'emulated'
    grep -q 'emulated' out/report.md
    grep -q 'synthetic' out/report.md
    file=$(records_file)
    assert_json "$file" 'd[0]["config"]["data"]' synthetic
    assert_json "$file" 'd[0]["emulated"]' true
}

@test "the line that reproduces a record does" {
    dpbench run "${quick[@]}" --ranks 2 --strategy naive -o out
    assert_exit 0
    repro=$(json "$(records_file)" 'd[0]["repro"]')
    [[ $repro == dpbench\ run\ * ]]
    first=$(json "$(records_file)" 'd[0]["series"]')
    rm -r out
    run bash -c "${repro/#dpbench/\"\$DPBENCH\"} -o out"
    assert_exit 0
    [ "$(json "$(records_file)" 'd[0]["series"]')" = "$first" ]
}

@test "the loss falls, and one seed gives one result" {
    options=(--data synthetic --workload mnist-cnn --batch-per-rank 16 --steps 30 --warmup 2
        --trace-steps 0 --probe-retries 0 --ranks 2)
    dpbench run "${options[@]}" -o a
    assert_exit 0
    dpbench run "${options[@]}" -o b
    assert_exit 0
    a=$(find a -name records.jsonl)
    b=$(find b -name records.jsonl)
    assert_json "$a" 'd[0]["training"]["loss_last"] < 0.8 * d[0]["training"]["loss_first"]' true
    [ "$(json "$a" 'd[0]["training"]["loss_last"]')" = "$(json "$b" 'd[0]["training"]["loss_last"]')" ]
}

@test "two ranks learn real images" {
    [ -n "$(dpkg-query -L dataset-fashion-mnist 2>/dev/null)" ] ||
        skip "dataset-fashion-mnist is not installed"
    dpbench run --workload mnist-cnn --data fashion-mnist --ranks 2 --batch-per-rank 32 --steps 60 \
        --warmup 2 --trace-steps 0 --probe-retries 0 --evaluate on -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["training"]["loss_last"] < 0.7 * d[0]["training"]["loss_first"]' true
    assert_json "$file" 'd[0]["training"]["test_samples"]' 10000
    assert_json "$file" 'd[0]["training"]["test_accuracy"] > 0.6' true
}

@test "a missing data set names the package and the option" {
    mkdir empty
    dpbench run --data fashion-mnist --data-dir empty --ranks 1 --steps 4 --warmup 2 -o out
    assert_exit 3
    assert_output 'dataset-fashion-mnist'
    assert_output 'synthetic'
}

@test "a trace is JSON that Perfetto opens, and its steps are extra" {
    dpbench run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 6 --warmup 2 \
        --trace-steps 3 --probe-retries 0 --ranks 2 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'len(d[0]["samples_step_ns"])' 4
    assert_json "$file" 'd[0]["overlap"]["rank_steps"]' 6
    assert_json "$file" 'd[0]["trace"]["lost"]' 0
    assert_json "$file" 'd[0]["overlap"]["compute_ns"] + d[0]["overlap"]["exposed_ns"] + d[0]["overlap"]["idle_ns"] == d[0]["overlap"]["span_ns"]' true
    trace=$(find out -path '*traces*' -type f | head -n 1)
    case $trace in
    *.gz) gzip -dc "$trace" >trace.json ;;
    *) cp "$trace" trace.json ;;
    esac
    assert_json trace.json 'len(d["traceEvents"]) > 10' true
    assert_json trace.json 'sorted({e["pid"] for e in d["traceEvents"] if e["ph"] == "X"}) == [0, 1]' true
}

@test "a step of many messages is traced whole" {
    dpbench run --workload mnist-mlp --batch-per-rank 8 --ranks 2 --steps 3 --warmup 2 \
        --trace-steps 2 --probe-retries 0 --strategy mirrored --cross-device-ops nccl \
        --num-packs 400 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["communication"]["collectives_per_step"]' 400.0
    assert_json "$file" 'd[0]["trace"]["lost"]' 0
}

@test "what every micro-batch sends is in the step's wire time" {
    options=(--workload mnist-mlp --batch-per-rank 4 --ranks 2 --accumulate 3 --strategy zero2
        --link 10Gbps,10us)
    dpbench run "${options[@]}" --steps 3 --warmup 2 --trace-steps 1 --probe-retries 0 -o out
    assert_exit 0
    dpbench_stdout explain "${options[@]}" --json
    assert_exit 0
    printf '%s' "$output" >explain.json
    file=$(records_file)
    # three reduce-scatters and one all-gather
    assert_json "$file" 'd[0]["communication"]["collectives_per_step"]' 4.0
    expected=$(python3 -c 'import json; print(json.load(open("explain.json"))[0]["wire_ns_per_step"])')
    assert_json "$file" 'd[0]["communication"]["wire_ns_per_step"]' "$expected"
}

@test "a deep network trains on small images, and its trace is complete" {
    dpbench run --workload resnet50 --image-size 32 --batch-per-rank 2 --ranks 2 --steps 3 \
        --warmup 2 --trace-steps 1 --probe-retries 0 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["config"]["image_size"]' 32
    assert_json "$file" 'd[0]["trace"]["lost"]' 0
    assert_json "$file" 'd[0]["verified"]["replicas_identical"]' true
    dpbench run --workload mnist-mlp --image-size 32 --ranks 1 -o other
    assert_exit 2
    assert_output 'image-size'
}

@test "micro-batches make a step, which reduces once, and its trace is complete" {
    for accumulate in 1 4; do
        dpbench run --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 --steps 4 \
            --warmup 2 --trace-steps 2 --probe-retries 0 --accumulate "$accumulate" -o "out$accumulate"
        assert_exit 0
    done
    assert_json out4/records.jsonl 'd[0]["global_batch"], d[0]["batch_per_rank"], d[0]["config"]["accumulate"]' \
        '[32, 4, 4]'
    assert_json out4/records.jsonl 'd[0]["trace"]["lost"]' 0
    jq() { python3 -c "import json; print(json.loads(open('$1').readline())$2)"; }
    for key in collectives_per_step payload_bytes_per_step; do
        [ "$(jq out1/records.jsonl '["communication"]["'$key'"]')" = \
            "$(jq out4/records.jsonl '["communication"]["'$key'"]')" ]
    done
    memory='d[0]["memory"]["predicted"]["strategy"] > 0'
    assert_json out4/records.jsonl "$memory" true
    dpbench run --data synthetic --workload mnist-mlp --ranks 2 --accumulate 3 --global-batch 16
    assert_exit 2
    assert_output 'a multiple of 6'
    dpbench run --workload dlrm-small --embedding-gradients sparse --ranks 2 --accumulate 2
    assert_exit 2
    assert_output 'by the rows of one batch'
}

@test "PowerSGD sends little, holds what was predicted, and refuses what cannot take effect" {
    dpbench run --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 --steps 6 --warmup 3 \
        --trace-steps 2 --probe-retries 0 --hook powersgd --powersgd-rank 2 -o out
    assert_exit 0
    # three matrices, in one or two buckets
    assert_json out/records.jsonl 'd[0]["communication"]["wire_bytes_per_step"] < 60000' true
    assert_json out/records.jsonl '[d[0]["memory"]["predicted"][k] == d[0]["memory"]["parts"][k] for k in ("communication", "strategy")]' \
        '[true, true]'
    assert_json out/records.jsonl 'd[0]["verified"]["replicas_identical"]' true
    dpbench run "${quick[@]}" --ranks 2 --powersgd-rank 2
    assert_exit 2
    assert_output 'cannot take effect without its hook'
    dpbench run "${quick[@]}" --ranks 2 --hook powersgd --powersgd-start 1
    assert_exit 2
    assert_output 'must be at least 2 with error feedback'
}

@test "local SGD in which no timed step communicates is warned of" {
    local every
    for every in 4 5 100; do
        dpbench run --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 --steps 7 \
            --warmup 4 --trace-steps 0 --probe-retries 0 --strategy local-sgd \
            --sync-every "$every" -o "out$every"
        assert_exit 0
    done
    assert_json out5/records.jsonl '[w for w in d[0]["warnings"] if "no timed step" in w]' '[]'
    assert_json out4/records.jsonl 'len([w for w in d[0]["warnings"] if "no timed step" in w])' 1
    assert_json out100/records.jsonl 'len([w for w in d[0]["warnings"] if "no timed step" in w])' 1
    grep -q 'in no timed step the ranks sent anything: one in 100 does, and 3 were timed' \
        out100/report.md
}

@test "local SGD communicates in one of so many steps" {
    for every in 1 4; do
        dpbench run --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 4 --steps 8 \
            --warmup 2 --trace-steps 8 --probe-retries 0 --link 10Gbps,10us --strategy local-sgd \
            --sync-every "$every" -o "out$every"
        assert_exit 0
        assert_json "out$every/records.jsonl" 'd[0]["verified"]["replicas_identical"]' true
        assert_json "out$every/records.jsonl" 'd[0]["communication"]["collectives_per_step"]' "$(python3 -c "print(1 / $every)")"
    done
    python3 - <<'END'
import json
one, four = (json.loads(open(f"out{n}/records.jsonl").readline())["communication"] for n in (1, 4))
for key in "wire_bytes_per_step", "payload_bytes_per_step", "wire_ns_per_step":
    assert abs(one[key] - 4 * four[key]) <= 4, (key, one[key], four[key])
END
    dpbench run "${quick[@]}" --ranks 2 --strategy local-sgd --sync-every 5 -o between
    assert_exit 0
    assert_json between/records.jsonl 'd[0]["verified"]["replicas_identical"]' null
    dpbench run "${quick[@]}" --ranks 2 --strategy local-sgd --average-moments on --momentum 0
    assert_exit 2
    assert_output 'average-moments on cannot take effect'
    dpbench run "${quick[@]}" --ranks 2 --strategy local-sgd --sync-every 0
    assert_exit 2
}

@test "ranks per node divide the ranks" {
    dpbench run "${quick[@]}" --ranks 4 --ranks-per-node 2 -o out
    assert_exit 0
    assert_json "$(records_file)" 'd[0]["config"]["ranks_per_node"]' 2
    dpbench run "${quick[@]}" --ranks 4 --ranks-per-node 3
    assert_exit 2
    assert_output 'does not divide the 4 ranks'
}

@test "the record tells bytes inside and between nodes, and whom the others waited for" {
    dpbench run --data synthetic --workload mnist-mlp --batch-per-rank 4 --steps 4 --warmup 2 --trace-steps 2 \
        --probe-retries 0 --ranks 4 --ranks-per-node 2 -o out
    assert_exit 0
    # direct: of each rank's 3 peers one is in its node
    assert_json "$(records_file)" 'abs(d[0]["communication"]["wire_bytes_between_per_step"] /
        d[0]["communication"]["wire_bytes_inside_per_step"] - 2) < 0.01' true
    # a rank that is last in a collective is one of the four
    assert_json "$(records_file)" 'abs(sum(r["last_share"] for r in d[0]["waiting"]["late_ranks"]) - 1) < 1e-9' true
    assert_json "$(records_file)" '{sum(counts) == d[0]["waiting"]["collectives"] for counts in d[0]["waiting"]["wait_counts"]} == {True}' true
    dpbench report out
    assert_exit 0
    grep -q 'Which ranks the others waited for' out/report.md
    grep -q 'What a rank sends in a step' out/report.md
}

@test "uneven batches train when asked for" {
    dpbench run --data synthetic --workload mnist-mlp --steps 4 --warmup 2 --trace-steps 0 \
        --probe-retries 0 --ranks 2 --global-batch 15 --uneven on -o out
    assert_exit 0
    assert_json "$(records_file)" 'd[0]["global_batch"]' 15
}

@test "more ranks than cores work" {
    dpbench run "${quick[@]}" --ranks 5 -o out
    assert_exit 0
    assert_json "$(records_file)" 'len(d[0]["rank_median_step_ns"])' 5
}

@test "the record says which optimizer trained, and its settings" {
    dpbench run "${quick[@]}" --ranks 2 --optimizer adamw --beta2 0.75 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" '[d[0]["config"][k] for k in ("optimizer", "lr", "beta1", "beta2", "momentum")]' \
        '["adamw", 0.001, 0.9, 0.75, null]'
    assert_json "$file" 'd[0]["memory"]["parts"]["optimizer"] == d[0]["memory"]["predicted"]["optimizer"]' \
        true
    assert_json "$file" 'd[0]["memory"]["parts"]["optimizer"] == 2 * d[0]["memory"]["parts"]["parameters"]' \
        true
}

@test "row-wise Adagrad keeps a number per row of an embedding table" {
    dpbench run --workload dlrm-small --table-rows 64 --ranks 2 --batch-per-rank 8 --steps 6 \
        --warmup 2 --trace-steps 0 --probe-retries 0 --optimizer rowwise-adagrad -o out
    assert_exit 0
    file=$(records_file)
    # 26 tables of 64 rows: a row is 16 floats, and 1 float of state
    assert_json "$file" 'd[0]["memory"]["parts"]["parameters"] - d[0]["memory"]["parts"]["optimizer"]' \
        $((26 * 64 * (64 - 4)))
    dpbench run "${quick[@]}" --ranks 1 --optimizer rowwise-adagrad -o other
    assert_exit 2
    assert_output 'no embedding tables'
}

@test "rows of embedding tables travel between ranks, and are predicted in memory and bytes" {
    # 3 ranks, 4 samples of each, 9 slots for the tables of a rank, rows of 16 floats
    dpbench run --workload dlrm-small --table-rows 50 --embedding-gradients sharded --ranks 3 \
        --batch-per-rank 4 --steps 6 --warmup 2 --trace-steps 2 --probe-retries 0 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["communication"]["exchanges_per_step"]' 3
    assert_json "$file" 'd[0]["communication"]["exchange_bytes_per_step"]' \
        $((3 * 4 * (1 + 9 * 4) + 2 * 3 * 4 * 9 * 4 * 16))
    assert_json "$file" 'd[0]["memory"]["parts"]["activations"] <= d[0]["memory"]["predicted"]["activations"]' true
    assert_json "$file" 'd[0]["verified"]["replicas_identical"]' true
    dpbench verify --workload dlrm-small --table-rows 50 --embedding-gradients sharded \
        --batch-per-rank 16 --optimizer rowwise-adagrad --lr 0.01
    assert_exit 0
    assert_output 'ok +values beside the parameters follow one big batch'
    dpbench verify --workload dlrm-small --table-rows 50 --embedding-gradients sparse --batch-per-rank 16
    assert_exit 0
    dpbench run --workload dlrm-small --embedding-gradients sparse --ranks 2 --momentum 0.9 -o other
    assert_output 'optimizer "sgd" with momentum would change rows'
    dpbench run --workload dlrm-mlperf --ranks 2 --memory-limit 400MiB -o other
    assert_output 'embedding tables are too large'
}

@test "a locale with a decimal comma changes nothing" {
    mkdir locale
    localedef -i de_DE -f UTF-8 locale/de_DE.UTF-8 >/dev/null 2>&1 ||
        skip "localedef cannot make de_DE.UTF-8 (package locales)"
    export LOCPATH=$PWD/locale LC_ALL=de_DE.UTF-8
    [ "$(locale decimal_point)" = , ]
    dpbench run "${quick[@]}" --ranks 1 --lr 0,1 -o out
    assert_exit 2
    assert_output 'lr'
    [ ! -e out ]
    dpbench_stdout run "${quick[@]}" --ranks 2 --lr 0.25 --link 2.5Gbps,1.5us -o out --json
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["config"]["lr"]' 0.25
    printf '%s' "$output" | python3 -m json.tool >/dev/null
    grep -q '"lr": *"\?0\.25' "$file"
}

@test "an empty environment is enough" {
    run env -i "$DPBENCH" run "${quick[@]}" --ranks 2 -o out
    assert_exit 0
    assert_json "$(records_file)" 'd[0]["status"]' ok
}

@test "a thread setting of the user's does not decide" {
    OMP_NUM_THREADS=64 run "$DPBENCH" run "${quick[@]}" --ranks 2 --threads-per-rank 1 -o out
    assert_exit 0
    assert_json "$(records_file)" 'd[0]["config"]["threads_per_rank"]' 1
}

@test "fewer threads than were asked for are refused: oneDNN would leave out their part" {
    OMP_THREAD_LIMIT=1 run "$DPBENCH" run "${quick[@]}" --ranks 1 --threads-per-rank 2 -o limited
    assert_exit 3
    assert_output "OpenMP gives 1 of 2 threads to a rank"
    assert_output "unset OMP_THREAD_LIMIT"
    OMP_THREAD_LIMIT=1 run "$DPBENCH" run "${quick[@]}" --ranks 1 --threads-per-rank 1 -o one
    assert_exit 0
    OMP_DYNAMIC=true run "$DPBENCH" verify --workload mnist-mlp --data synthetic --ranks 1 \
        --threads-per-rank 2 --batch-per-rank 64
    assert_exit 0
}

@test "memory is predicted before and measured after" {
    dpbench run "${quick[@]}" --ranks 2 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'sum(v for v in d[0]["memory"]["predicted"].values()) == d[0]["memory"]["predicted_bytes"]' true
    # what the workload keeps and exchanges lies in its activations
    assert_json "$file" 'all(d[0]["memory"]["predicted"][k] == d[0]["memory"]["parts"][k] for k in ("parameters", "gradients", "optimizer", "activations", "communication", "strategy"))' true
    assert_json "$file" '0.5 < d[0]["memory"]["measured_bytes"] / d[0]["memory"]["predicted_bytes"] < 2' true
    assert_json "$file" 'd[0]["memory"]["limit_bytes"] > d[0]["memory"]["predicted_total_bytes"]' true
}

@test "what cannot fit into memory is refused with the arithmetic" {
    dpbench run "${quick[@]}" --ranks 2 --memory-limit 20MiB
    assert_exit 3
    assert_output 'memory: 2 ranks need .* MiB, the limit is 20.0 MiB; each rank: parameters 2.55 MiB \+'
    assert_output 'hint: .*--batch-per-rank.*--ranks'
    assert_nothing_written
    dpbench verify --workload mnist-mlp --data synthetic --batch-per-rank 8 --memory-limit 20MiB
    assert_exit 3
    assert_nothing_written
    dpbench run --data synthetic --ranks 1 --batch-per-rank 60000 --memory-limit 1GiB --steps 4 \
        --warmup 2
    assert_exit 3
    assert_nothing_written
}

@test "the recorded environment holds what matters, and no secret" {
    run env OMP_PROC_BIND=close SLURM_JWT=eyJhbGciOi CUDA_API_KEY=qx7hidden9 HOME_SECRET=x \
        "$DPBENCH" run "${quick[@]}" --ranks 1 -o out
    assert_exit 0
    assert_json out/records.jsonl 'd[0]["host"]["environment"]["OMP_PROC_BIND"]' close
    run grep -lE 'eyJhbGciOi|qx7hidden9|HOME_SECRET' -r out
    [ "$status" -eq 1 ]
}

@test "training images that are missing are found before any work" {
    mapfile -t images < <(dpkg-query -L dataset-fashion-mnist 2>/dev/null | grep t10k)
    [ "${#images[@]}" -gt 0 ] || skip "dataset-fashion-mnist is not installed"
    mkdir half
    cp "${images[@]}" half
    dpbench run --data-dir half --ranks 1 --steps 4 --warmup 2 -o out
    assert_exit 3
    assert_output 'train-images'
    [ ! -e out ]
    # In a sweep, too, whose first folder is whole.
    dpbench sweep --data-dir "$(dirname "${images[0]}"),half" --ranks 2 -o out
    assert_exit 3
    assert_output 'train-images.*half'
    [ ! -e out ]
}

@test "a recommendation model trains on interactions" {
    dpbench run --workload dlrm-small --table-rows 50 --ranks 2 --batch-per-rank 16 --steps 6 \
        --warmup 2 --trace-steps 0 --probe-retries 0 -o out
    assert_exit 0
    file=$(records_file)
    assert_json "$file" 'd[0]["config"]["table_rows"], d[0]["data"]["kind"]' '[50, "synthetic"]'
    assert_json "$file" 'sum(u["bytes"] for u in d[0]["plan"]["units"]) - 4 * (26 * 50 * 16 + 475985) < 64' true
    assert_json "$file" 'd[0]["verified"]["replicas_identical"]' true
    dpbench verify --workload dlrm-small --table-rows 50 --batch-per-rank 16
    assert_exit 0
    assert_output 'ok +parameters follow one big batch'
    dpbench run "${quick[@]}" --table-rows 50
    assert_exit 2
    assert_output 'table-rows'
}

@test "a folder in which a run was killed at its beginning is used again, and what it half wrote is removed" {
    mkdir begun held old
    touch begun/records.jsonl begun/.space-check begun/records.jsonl.tmp-7-0 begun/manifest.json.tmp-7-1 \
        begun/notes.tmp-7-0 held/records.jsonl old/records.jsonl
    dpbench run "${quick[@]}" --ranks 1 -o begun
    assert_exit 0
    assert_json begun/records.jsonl '[r["status"] for r in d]' '["ok"]'
    [ -e begun/notes.tmp-7-0 ] # not a run's
    [ ! -e begun/.space-check ]
    [ -z "$(find begun -name 'records.jsonl.*' -o -name 'manifest.json.*')" ]
    exec 9<held
    flock 9
    dpbench run "${quick[@]}" --ranks 1 -o held
    assert_exit 2
    assert_output '"held" already holds a run'
    exec 9<&-
    echo '{}' >old/manifest.json
    dpbench run "${quick[@]}" --ranks 1 -o old
    assert_exit 2
    assert_output '"old" already holds a run'
}
