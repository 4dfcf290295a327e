# Finding the best bucket size by measurement.

load helper

tuning=("${quick[@]}" --workload mnist-cnn --ranks 2 --bucket "4KiB,16MiB" --first-bucket auto)
unset 'tuning[2]' 'tuning[3]' # quick's workload

@test "tune --dry-run names the candidates and runs nothing" {
    dpbench tune "${tuning[@]}" --dry-run
    assert_exit 0
    assert_output '^3 candidates in 2 rounds of halving, then 10 pairs of winner and default$'
    assert_output '^ +4KiB '
    assert_output '^ +16MiB '
    assert_output '^ +25MiB .* default *$'
    assert_nothing_written
}

@test "what is the default written out is no candidate; another first bucket is told" {
    dpbench tune --workload resnet50 --ranks 2 --strategy horovod \
        --fusion-threshold 128MiB,64MiB --cycle-time 1ms,2ms --dry-run
    assert_exit 0
    assert_output '^4 candidates '
    assert_output '^1 combinations more'
    [ "$(grep -cE '^ *128MiB +1ms ' <<<"$output")" -eq 1 ]
    dpbench tune --workload resnet50 --ranks 2 --bucket 25MiB,64MiB --first-bucket auto --dry-run
    assert_exit 0
    assert_output '^ +25MiB +auto: 1MiB .* default *$'
    assert_output '^ +25MiB +auto: 25MiB '
}

@test "tune launches within its budget, compares in pairs, and writes a run" {
    dpbench tune "${tuning[@]}" --link 2.5Gbps,100us --budget 16 -o out
    assert_exit 0
    assert_output 'emulated link 2\.5Gbps,100us'
    assert_output 'in 5 fresh pairs a step with --bucket (4KiB|16MiB)$'
    assert_output 'times as fast as with the default \(95 % interval [0-9.]+ to [0-9.]+\), on the emulated link'
    assert_output '^(no claim|keep the default|use:)'
    file=$(records_file)
    assert_json "$file" 'len(d) <= 16' true
    assert_json "$file" '{r["status"] for r in d} == {"ok"}' true
    assert_json "$file" 'len({(r["cell"], r["repeat"]) for r in d}) == len(d)' true
    # the comparison: five fresh launches of each, in turns, each order in its turn
    winner=$(json out/tune.json 'd["comparison"]["cell"]')
    assert_json "$file" "[r['cell'] == $winner for r in sorted(d, key=lambda r: r['order'])][-10:]" \
        '[false, true, true, false, false, true, true, false, false, true]'
    assert_json out/tune.json 'd["emulated"]' true
    assert_json out/tune.json 'd["comparison"]["pairs"]' 5
    assert_json out/tune.json 'd["comparison"]["low95"] < d["comparison"]["high95"]' true
    assert_json out/tune.json \
        'd["comparison"]["verdict"] == ("better" if d["comparison"]["low95"] > 1 else "worse" if d["comparison"]["high95"] < 1 else "no difference shown")' \
        true
    assert_json out/tune.json 'sum(c["launches"] for c in d["candidates"]) == d["launches"]' true
    [ -s out/report.html ]
    python3 -m json.tool out/manifest.json >/dev/null
}

@test "tune --json prints the same as it writes" {
    dpbench_stdout tune "${tuning[@]}" --budget 14 --json -o out
    assert_exit 0
    printf '%s\n' "$output" >printed.json
    cmp printed.json out/tune.json
}

@test "a launch that is not ok ends tune with its status, and records stay" {
    dpbench tune "${tuning[@]}" --budget 14 --timeout 1ms -o out
    assert_exit 4
    assert_output 'tuning ended early'
    refute_output 'fresh pairs'
    [ -s out/records.jsonl ]
    assert_json out/tune.json 'd["comparison"]' null
}

@test "mistakes of tune are usage errors" {
    dpbench tune --strategy none --ranks 2
    assert_usage_error
    assert_output 'nothing to tune'
    dpbench tune --ranks 1
    assert_usage_error
    dpbench tune --ranks 2 --budget 5
    assert_usage_error
    dpbench tune --ranks 2 --repeats 3
    assert_usage_error
    dpbench tune --ranks 2 --steps 20,30
    assert_usage_error
    assert_output 'run tune for each'
    dpbench tune --ranks 2 --bucket 8MiB,16MiB --first-bucket 1MiB
    assert_usage_error
    assert_output 'same messages as the default'
    dpbench tune --ranks 2 --budget ten
    assert_usage_error
    dpbench tune sweep.yaml
    assert_usage_error
}
