# Baselines and importers: dpbench baseline, dpbench import.

load helper

# A baseline of the values given, as NAME: its id in $id.
save() {
    local name=$1
    shift
    printf '%s\n' "$@" >"values-$1.csv"
    dpbench_stdout baseline save "values-$1.csv" --name "$name" --commit abc --price 2.5 --price-date 2026-11-01
    assert_exit 0
    id=$output
}

@test "baseline: save changes no anchor, promote and rollback need a reason and are kept" {
    save main 10 11 12
    first=$id
    dpbench baseline show main
    assert_exit 3
    dpbench baseline promote main "$first"
    assert_exit 2
    assert_output 'without a reason'
    dpbench baseline promote main "$first" --reason 'the beginning'
    assert_exit 0
    save main 9 9.5 10
    dpbench baseline promote main "$id" --reason 'faster kernels'
    assert_exit 0
    dpbench baseline diff "main@$first" main
    assert_exit 0
    assert_output '^value: value: 11 -> 9.5 .*3 -> 3 runs'
    dpbench baseline rollback main --reason 'they were wrong'
    assert_exit 0
    assert_output "^$first$"
    dpbench baseline list
    assert_output "main +$first +yes"
    assert_json baselines/decisions.jsonl '[e["action"] for e in d]' '["promote", "promote", "rollback"]'
    assert_json baselines/decisions.jsonl '[e["reason"] for e in d][1]' 'faster kernels'
}

@test "baseline: a changed file, and a decision that is gone, are refused by name" {
    save main 10 11 12
    dpbench baseline promote main "$id" --reason first
    save main 9 10 11
    dpbench baseline promote main "$id" --reason second
    cp -r baselines kept
    sed -i 's/ 9\.0/ 8.0/' baselines/main.json
    dpbench baseline show main
    assert_exit 5
    assert_output 'baselines/main.json: its content is not what was saved'
    rm -r baselines
    cp -r kept baselines
    sed -i 1d baselines/decisions.jsonl
    dpbench baseline list
    assert_exit 5
    assert_output 'decisions.jsonl:1'
    rm -r baselines
    cp -r kept baselines
    sed -i '$d' baselines/decisions.jsonl
    dpbench baseline show main
    assert_exit 5
    assert_output 'last decision'
}

@test "baseline: nothing to save and unknown names are errors" {
    dpbench baseline save nowhere
    assert_exit 3
    dpbench baseline frobnicate
    assert_exit 2
    dpbench baseline promote main 0123 --reason why
    assert_exit 3
    assert_output 'no baseline "main" in "baselines"'
    dpbench baseline rollback main --reason why
    assert_exit 3
    dpbench baseline list
    dpbench baseline show main
    assert_nothing_written
    printf '1\nnan\n' >values.csv
    dpbench baseline save values.csv
    assert_exit 5
    assert_output 'values.csv: line 2'
    [ ! -e baselines ]
}

@test "import: a benchmark is named once, and why it has no times of steps" {
    dpbench run "${quick[@]}" --ranks 1 -o out
    assert_exit 0
    dpbench import out
    assert_exit 0
    [ "$(printf '%s\n' "$output" | grep -c '^mnist-mlp ddp, ranks 1')" -eq 1 ]
    assert_output '^  loss +1 run: [0-9.]+$'
    assert_output '^  without times of steps: .* give more --steps$'
    printf '{"results": [{"command": "a", "times": [0.1, 0.25]}]}' >hyperfine.json
    dpbench import hyperfine.json
    assert_output '^  time +2 runs: 100\.0 ms, 250\.0 ms$'
}

@test "import: formats are detected, other files are refused" {
    printf '{"results": [{"command": "a", "times": [0.5, 0.25]}]}' >a.json
    dpbench_stdout import a.json --json
    assert_exit 0
    printf '%s' "$output" >out.json
    assert_json out.json 'd["cells"][0]["metrics"][0]["values"]' '[500000000.0, 250000000.0]'
    head -c 40 a.json >cut.json
    dpbench import cut.json
    assert_exit 5
    assert_output 'cut.json: line 1'
    dpbench import a.json --format nothing
    assert_exit 2
    assert_output 'formats are google-benchmark'
}
