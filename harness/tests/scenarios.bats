#!/usr/bin/env bats
# The sweep files in bench/sweeps are plans of this program.

load helper

sweeps=$(cd "$(dirname "$BATS_TEST_FILENAME")/../../bench/sweeps" && pwd)

@test "every sweep file is a plan, for sweep or for simulate" {
    local file count=0
    for file in "$sweeps"/*.yaml; do
        case $file in
        */bert-horovod-hundreds.yaml) dpbench simulate "$file" --ranks 8,16 --machine dgx-a100 -o simulated ;;
        *) dpbench sweep "$file" --dry-run ;;
        esac
        [ "$status" -eq 0 ] || { printf '%s:\n%s\n' "$file" "$output" >&2; return 1; }
        count=$((count + 1))
    done
    [ "$count" -ge 10 ]
}

@test "scenario dlrm-sharded-multinode, reduced: both targets are judged by records, and bytes between nodes are told" {
    dpbench sweep "$sweeps/dlrm-sharded-multinode-reduced.yaml" --table-rows-max 1000 --batch-per-rank 32 \
        --steps 20 --warmup 3 --repeats 1 --trace-steps 3 --probe-retries 0 -o run
    # One run decides no target.
    assert_exit 5
    assert_output 'efficiency +>= 0.70 .* ranks 2'
    assert_output 'exposed-share +<= 0.30 .* ranks 2'
    assert_json run/records.jsonl 'sorted((r["ranks"], r["status"]) for r in d)' '[[1, "ok"], [2, "ok"]]'
    assert_json run/records.jsonl '[r["communication"]["wire_bytes_between_per_step"] > 0 for r in d if r["ranks"] == 2]' \
        '[true]'
}
