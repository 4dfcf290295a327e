# The synchronisation plan, told before anything runs.

load helper

@test "explain tells units, messages and what never hides, and writes nothing" {
    dpbench explain --bucket 1MiB --link 2.5Gbps,100us
    assert_exit 0
    assert_output '^mnist-cnn, strategy ddp, 2 ranks of 64 samples: 8 gradients, 4\.58 MiB$'
    assert_output '^step 1: 1 unit; from step 2 on:$'
    assert_output '^ +0 +4\.51 MiB +4 +fc2\.bias, fc2\.weight, \.\.\. fc1\.weight$'
    assert_output '^ +0 +all-reduce +4\.51 MiB +fc1\.weight .* may$'
    assert_output '^ +1 +all-reduce +73\.5 KiB +conv1\.bias +100\.0 % .* never$'
    assert_output '^per step and rank: 2 messages, 4\.58 MiB sent'
    assert_output 'fc1\.weight has 4\.50 MiB\) is above the limit of 1\.00 MiB'
    assert_nothing_written
}

@test "explain --json is one document per cell, and its bytes add up" {
    dpbench_stdout explain --ranks 4 --bucket 4KiB,1MiB --link 25Gbps,5us --json
    assert_exit 0
    printf '%s' "$output" >plans.json
    assert_json plans.json '[len(p["steady_plan"]["units"]) for p in d]' '[4, 2]'
    assert_json plans.json \
        'all(sum(m["bytes"] for m in p["messages"]) == p["gradient_bytes"] for p in d)' true
    # 2 (P - 1) / P of them, shards rounded up
    assert_json plans.json \
        '[0 <= p["wire_bytes_per_step"] - 1.5 * p["gradient_bytes"] < 100 for p in d]' \
        '[true, true]'
    assert_json plans.json 'd[0]["messages"][-1]["always_exposed"]' true
    assert_json plans.json \
        'all(sum(m["wire_ns"] for m in p["messages"]) == p["wire_ns_per_step"] for p in d)' true
}

@test "explain tells what stays inside nodes and what goes between them" {
    dpbench explain --ranks 4 --ranks-per-node 2 --algorithm hierarchical
    assert_exit 0
    assert_output '^on 2 nodes: a rank sends at most 4\.58 MiB inside its node and 2\.29 MiB to others, a node 4\.58 MiB$'
    dpbench_stdout explain --ranks 4 --ranks-per-node 1,2,4 --algorithm ring --json
    assert_exit 0
    printf '%s' "$output" >plans.json
    assert_json plans.json '[p["nodes"] for p in d]' '[4, 2, 1]'
    assert_json plans.json '[p["wire_bytes_inside_per_step"] > 0 for p in d]' '[false, true, true]'
    # of a ring one rank of each node sends all of its own to the next node
    assert_json plans.json \
        '[0 <= p["node_wire_bytes_per_step"] - 1.5 * p["gradient_bytes"] < 100 for p in d]' '[true, true, false]'
    assert_json plans.json 'd[2]["node_wire_bytes_per_step"]' 0
    dpbench explain --ranks 4
    refute_output 'nodes'
}

@test "explain has the same bytes for an algorithm of ours over MPI, and the least for MPI's own" {
    "$DPBENCH" list comms | grep -q mpi || skip 'this build has no comm mpi'
    for algorithm in ring tree hierarchical; do
        dpbench_stdout explain --ranks 4 --ranks-per-node 2 --algorithm "$algorithm" --json
        printf '%s' "$output" >ours.json
        dpbench_stdout explain --ranks 4 --ranks-per-node 2 --comm mpi --mpi-algorithm "$algorithm" --json
        assert_exit 0
        printf '%s' "$output" >mpi.json
        keys='["algorithm", "wire_bytes_per_step", "wire_bytes_between_per_step", "node_wire_bytes_per_step"]'
        assert_json mpi.json "[d[0][k] for k in $keys] == [json.load(open('ours.json'))[0][k] for k in $keys]" true
    done
    dpbench explain --ranks 4 --ranks-per-node 2 --comm mpi
    assert_output 'at least 6\.87 MiB sent \(algorithm library\)$'
    refute_output 'nodes'
    dpbench explain --ranks 4 --strategy zero1 --comm mpi --mpi-algorithm tree
    assert_exit 2
    assert_output '^dpbench: error: --mpi-algorithm: strategy "zero1" on 4 ranks: algorithm "tree" has no reduce-scatter'
}

@test "every strategy of this build can be explained" {
    local strategy
    for strategy in $("$DPBENCH" list strategies --json | python3 -c '
import json, sys
print(*[p["name"] for p in json.load(sys.stdin)])'); do
        dpbench_stdout explain --strategy "$strategy" --ranks 4 --link 25Gbps,5us --json
        assert_exit 0
        printf '%s' "$output" >plan.json
        assert_json plan.json 'd[0]["strategy"]' "$strategy"
        assert_json plan.json 'd[0]["wire_bytes_per_step"] > 0' true
        dpbench explain --strategy "$strategy" --ranks 1
        assert_exit 0
        assert_output 'one rank exchanges nothing'
    done
}

@test "long lists are cut with a count, and --verbose shows them" {
    dpbench explain --workload resnet50 --strategy naive --ranks 2
    assert_exit 0
    assert_output '^\.\.\.: 137 more units; --verbose shows them$'
    refute_output 'layer3\.2\.conv1\.weight'
    dpbench explain --workload resnet50 --strategy naive --ranks 2 --verbose
    assert_exit 0
    assert_output 'layer3\.2\.conv1\.weight'
    refute_output 'more units'
}

@test "a tied embedding is named: no bucket size hides it" {
    dpbench explain --workload gpt2-small --ranks 2
    assert_exit 0
    assert_output 'transformer\.wte\.weight, 147 MiB or 31 % of all gradient bytes'
}

@test "what is decided in the run, and what a layer waits for, is told apart" {
    dpbench explain --strategy horovod --ranks 2
    assert_exit 0
    assert_output 'decided in the run'
    refute_output 'nothing overlaps'
    # a gather just before its own use is waited for, a prefetched one may hide
    local prefetch gathers='[m["always_exposed"] for m in d[0]["messages"] if m["when"] == "backward-use"]'
    for prefetch in pre none; do
        dpbench_stdout explain --strategy fsdp --workload resnet18 --ranks 2 \
            --backward-prefetch "$prefetch" --json
        assert_exit 0
        printf '%s' "$output" >"$prefetch.json"
    done
    assert_json none.json "len($gathers) > 1 and all($gathers)" true
    assert_json pre.json "not all($gathers)" true
    dpbench_stdout explain --strategy zero1 --workload resnet18 --ranks 2 \
        --overlap-param-gather on --json
    assert_exit 0
    printf '%s' "$output" >zero1.json
    assert_json zero1.json \
        '[m["always_exposed"] for m in d[0]["messages"] if m["when"] == "forward"]' '[true, false]'
}

@test "explain lists what a network exchanges itself, with the bytes that a run records" {
    # --trace-steps 2: a record's bytes are those of its traced steps
    local options keys='["exchanges_per_step", "exchange_bytes_per_step", "wire_bytes_per_step"]'
    for options in 'dlrm-small --embedding-gradients sparse' 'dlrm-small --embedding-gradients sharded' \
        'dlrm-mlperf --table-rows-max 50' 'cifar-resnet20 --sync-bn on --broadcast-buffers off'; do
        # shellcheck disable=SC2086 # several words on purpose
        dpbench_stdout explain --ranks 2 --batch-per-rank 8 --json --workload $options
        assert_exit 0
        printf '%s' "$output" >plan.json
        rm -rf runs
        # shellcheck disable=SC2086
        dpbench run --ranks 2 --batch-per-rank 8 --data synthetic --steps 4 --warmup 2 --trace-steps 2 \
            --probe-retries 0 --workload $options
        assert_exit 0
        cp runs/*/records.jsonl record.json
        assert_json plan.json 'd[0]["exchanges_per_step"] > 1' true
        assert_json plan.json \
            "[d[0][k] == json.load(open('record.json'))['communication'][k] for k in $keys]" \
            '[true, true, true]'
        assert_json plan.json 'sum(x["bytes"] for x in d[0]["exchanges"]) == d[0]["exchange_bytes_per_step"]' true
        # the formula is the one of the bytes
        assert_json plan.json 'all(eval(__import__("re").sub(" [a-z]+", "", x["formula"].replace(" B", "").replace(" x ", "*"))) == x["bytes"] for x in d[0]["exchanges"])' true
    done
}

@test "explain says what the network waits for, and how an exchange's bytes come about" {
    dpbench explain --workload dlrm-mlperf --ranks 6 --batch-per-rank 256
    assert_exit 0
    assert_output '^row-numbers +all-to-all +30\.0 KiB +forward +25\.0 KiB +never$'
    assert_output '^row-gradients +all-to-all +3\.75 MiB +backward +3\.12 MiB +the bottom MLP$'
    assert_output '^bytes: 30\.0 KiB = 6 ranks x \(1 \+ 5 tables x 256 samples\) x 4 B$'
    assert_output '^per step and rank: 2 messages and 3 exchanges, 21\.3 MiB sent'
    dpbench explain --workload dlrm-mlperf --ranks 1
    assert_exit 0
    refute_output 'exchanges, in every'
    dpbench explain --workload dlrm-small --ranks 6
    refute_output 'exchanges, in every'
}

@test "mistakes of explain are usage errors" {
    dpbench explain --strategy none --bucket 1MiB
    assert_usage_error
    dpbench explain --repeats 3
    assert_usage_error
    assert_output 'explain runs nothing'
    dpbench explain --bucket 10XB
    assert_usage_error
    dpbench explain --rank 2
    assert_usage_error
    dpbench explain resnet50
    assert_usage_error
}

@test "explain says where zero1 counts parameters, and how often local-sgd sends" {
    dpbench explain --workload mnist-mlp --ranks 2 --strategy zero1
    assert_exit 0
    assert_output '^ +parameters +0 B'
    assert_output '^- parameters lie where collectives find them'
    dpbench explain --workload mnist-mlp --ranks 2
    refute_output 'parameters lie where'
    dpbench explain --workload mnist-mlp --ranks 2 --strategy local-sgd --sync-every 5
    assert_exit 0
    assert_output '^per step and rank: 1 message in 5 steps, '
}
