# Plans, axes, resume, interruption, and the mistakes of a sweep file.

load helper

# A sweep of 2 ranks x 2 buckets that takes a few seconds.
write_sweep() {
    cat >sweep.yaml <<'YAML'
version: 1
name: small
base: {workload: mnist-mlp, data: synthetic, batch-per-rank: 8, steps: 5, warmup: 2, repeats: 2}
axes: {ranks: [1, 2], bucket: [256KiB, 4MiB]}
YAML
}

# A sweep-file mistake: exit 2, the place, a message that matches, no run.
assert_file_mistake() {
    dpbench sweep sweep.yaml -o out
    assert_exit 2
    assert_output "sweep\.yaml:[0-9]+:[0-9]+: "
    assert_output "$1"
    [ ! -e out ]
    [ ! -e runs ]
}

@test "--dry-run prints the plan and runs nothing" {
    write_sweep
    dpbench sweep sweep.yaml --dry-run
    assert_exit 0
    assert_output 'ranks=1'
    assert_output 'ranks=2 bucket=256KiB'
    assert_output 'ranks=2 bucket=4MiB'
    refute_output 'ranks=1 bucket'
    [ ! -e runs ]
}

@test "the default sweep is there without a file" {
    dpbench sweep --dry-run
    assert_exit 0
    assert_output 'overlap=on'
    assert_output 'overlap=off'
    assert_output 'batch-per-rank 64 '
    # its batch is the workload's, and makes way for a global one
    dpbench sweep --dry-run --workload gpt2-small
    assert_exit 0
    assert_output 'batch-per-rank 4 '
    dpbench sweep --dry-run --ranks 1,2 --global-batch 32
    assert_exit 0
    assert_output 'batch-per-rank 16 '
    assert_nothing_written
}

@test "a sweep runs every cell and repeat, and writes a report" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 -o out
    assert_exit 0
    assert_output 'report\.html'
    file=$(records_file)
    assert_json "$file" 'len(d)' 6
    assert_json "$file" 'sorted((r["ranks"], r["repeat"]) for r in d)' \
        '[[1, 0], [1, 1], [2, 0], [2, 0], [2, 1], [2, 1]]'
    assert_json "$file" 'sorted(r["order"] for r in d)' '[0, 1, 2, 3, 4, 5]'
    assert_json "$file" '{r["status"] for r in d} == {"ok"}' true
    [ -s "$(find out -name report.html)" ]
    [ -s "$(find out -name report.md)" ]
    python3 -m json.tool "$(find out -name manifest.json)" >/dev/null
}

@test "options on the command line override and add axes" {
    write_sweep
    dpbench sweep sweep.yaml --ranks 2 --overlap on,off --bucket 1MiB --dry-run
    assert_exit 0
    assert_output 'overlap=on'
    assert_output 'overlap=off'
    refute_output '256KiB'
}

@test "the order of cells comes from the seed" {
    write_sweep
    for seed in 1 1 2 3 4 5; do
        "$DPBENCH" sweep sweep.yaml --dry-run --json --seed "$seed" >plan.json
        json plan.json 'd["order"]' >>orders
    done
    [ "$(sed -n 1p orders)" = "$(sed -n 2p orders)" ]
    [ "$(sort -u orders | wc -l)" -gt 1 ]
}

@test "mistakes in a sweep file name file, line and column" {
    printf 'version: 1\nname: x\nbase: {wrokload: mnist-mlp}\n' >sweep.yaml
    assert_file_mistake 'workload'
    printf 'version: 1\nname: x\nbase:\n  steps: 5\n  steps: 6\n' >sweep.yaml
    assert_file_mistake 'steps'
    printf 'version: 1\nname: x\nbase: {ranks: abc}\n' >sweep.yaml
    assert_file_mistake 'ranks'
    printf 'version: 1\nname: x\nbase: {lr: .nan}\n' >sweep.yaml
    assert_file_mistake 'lr'
    printf 'version: 1\nname: x\nbase: {bucket: 10XB}\n' >sweep.yaml
    assert_file_mistake 'bucket'
    printf 'version: 1\nname: x\naxes: {ranks: []}\n' >sweep.yaml
    assert_file_mistake 'ranks'
    printf 'version: 1\nname: x\nbase: {steps: 5}\naxes: {steps: [5, 6]}\n' >sweep.yaml
    assert_file_mistake 'steps'
    printf 'version: 1\nname: x\nsurprise: 1\n' >sweep.yaml
    assert_file_mistake 'surprise'
    printf 'version: 2\nname: x\n' >sweep.yaml
    assert_file_mistake 'version'
    printf 'version: 1\nname: [x\n' >sweep.yaml
    assert_file_mistake 'sweep'
}

@test "an empty sweep file, a missing one and a folder are refused" {
    : >sweep.yaml
    dpbench sweep sweep.yaml -o out
    assert_exit 2
    [ ! -e out ]
    dpbench sweep nowhere.yaml -o out
    [ "$status" -eq 2 ] || [ "$status" -eq 3 ]
    assert_output 'nowhere\.yaml'
    [ ! -e out ]
    mkdir folder.yaml
    dpbench sweep folder.yaml -o out
    [ "$status" -eq 2 ] || [ "$status" -eq 3 ]
    [ ! -e out ]
}

@test "a sweep in which an option takes effect in no cell is refused" {
    printf 'version: 1\nbase: {workload: mnist-mlp, ranks: 1, bucket: 1MiB}\n' >sweep.yaml
    dpbench sweep sweep.yaml -o out
    assert_exit 2
    assert_output 'sweep\.yaml:2:.*cannot take effect with one rank'
    [ ! -e out ]
    write_sweep
    dpbench sweep sweep.yaml --ranks 1 --overlap off -o out
    assert_exit 2
    assert_output '^dpbench: error: --overlap: cannot take effect'
    [ ! -e out ]
}

@test "a sweep file that flags narrow, or a machine with one core, still runs" {
    write_sweep
    dpbench sweep sweep.yaml --ranks 1 -o out
    assert_exit 0
    assert_output 'bucket takes no effect in this sweep'
    run taskset -c 0 "$DPBENCH" sweep --dry-run
    [ "$status" -eq 0 ]
}

@test "an exclude that leaves nothing is refused" {
    write_sweep
    printf 'exclude: [{ranks: [1, 2]}]\n' >>sweep.yaml
    dpbench sweep sweep.yaml -o out
    assert_exit 2
    [ ! -e out ]
}

@test "SIGINT: exit 130, valid records, and --resume finishes the rest" {
    write_sweep
    start_dpbench sweep sweep.yaml --probe-retries 0 --steps 400 --repeats 3 -o out
    wait_for_records out 2
    mapfile -t ranks < <(children_of "$background")
    kill -INT "$background"
    finish_dpbench
    assert_exit 130
    assert_gone "${ranks[@]}"
    file=$(records_file)
    before=$(json "$file" 'sum(r["status"] == "ok" for r in d)')
    [ "$before" -ge 2 ]
    [ "$before" -lt 9 ]
    assert_json "$file" '{r["status"] for r in d} <= {"ok", "interrupted"}' true
    cp "$file" before.jsonl

    dpbench sweep --resume "$(dirname "$file")"
    assert_exit 0
    assert_json "$file" 'len({(r["cell"], r["repeat"]) for r in d if r["status"] == "ok"})' 9
    assert_json "$file" 'sum(r["status"] == "ok" for r in d)' 9
    head -c "$(stat -c %s before.jsonl)" "$file" | cmp - before.jsonl
}

@test "--resume repairs a torn last line, and a finished run has nothing to do" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 -o out
    assert_exit 0
    file=$(records_file)
    cp "$file" whole.jsonl
    truncate -s -20 "$file"
    dpbench sweep --resume "$(dirname "$file")"
    assert_exit 0
    assert_json "$file" 'len(d)' 6
    [ "$(head -n 5 "$file")" = "$(head -n 5 whole.jsonl)" ]
    cp "$file" whole.jsonl
    dpbench sweep --resume "$(dirname "$file")"
    assert_exit 0
    cmp "$file" whole.jsonl
}

@test "the command that continues a run can be pasted, a blank in its folder or not" {
    dpbench run "${quick[@]}" --ranks 1 -o 'my run'
    assert_exit 0
    dpbench run "${quick[@]}" --ranks 1 -o 'my run'
    assert_exit 2
    assert_output "continue it with .dpbench sweep --resume 'my run'., or choose another folder"
}

@test "--resume of what is no run is refused" {
    mkdir empty
    dpbench sweep --resume empty
    [ "$status" -eq 3 ] || [ "$status" -eq 5 ]
    dpbench sweep --resume nowhere
    [ "$status" -eq 3 ]
    write_sweep
    dpbench sweep sweep.yaml --resume empty
    assert_exit 2
}

@test "a cell that fails does not stop the rest, and the exit status says so" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 --workload mnist-mlp,mnist-cnn --ranks 1,2 \
        --bucket 4MiB --steps 2000000 --timeout 1s --repeats 1 -o out
    assert_exit 4
    file=$(records_file)
    assert_json "$file" 'len(d)' 4
    assert_json "$file" '{r["status"] for r in d} == {"timeout"}' true
    assert_json "$file" 'all(r["reason"] for r in d)' true
    assert_json "$file" 'all(r["samples_step_ns"] == [] for r in d)' true
}

@test "a cell that does not fit into memory is skipped, and the rest runs" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 --workload mnist-mlp --data synthetic --ranks 2 \
        --bucket 4MiB --batch-per-rank 8,25000 --memory-limit 200MiB --repeats 1 -o out
    assert_exit 3
    assert_output 'skipped'
    assert_output '1 of 2 launches are not ok; the first: memory: 2 ranks need'
    file=$(records_file)
    assert_json "$file" 'sorted(r["status"] for r in d)' '["ok", "skipped"]'
    assert_json "$file" '[r["reason"].split(":")[0] for r in d if r["status"] == "skipped"]' '["memory"]'
    assert_json "$file" '[r["batch_per_rank"] for r in d if r["status"] == "skipped"]' '[25000]'
    assert_json "$file" '[r["memory"]["measured_bytes"] for r in d if r["status"] == "skipped"]' '[null]'
    grep -q 'memory: 2 ranks need' out/report.md
}

@test "a precision that this CPU cannot do is refused before any work; a sweep skips the cell" {
    export ONEDNN_MAX_CPU_ISA=AVX2
    dpbench run "${quick[@]}" --precision bf16 --ranks 1 -o out
    assert_exit 3
    assert_output 'error: workload "mnist-mlp": device "cpu" \(.*\) has no operator "matmul" in bf16: oneDNN needs'
    assert_output 'use --precision fp32, or another --device'
    [ ! -e out ]
    dpbench sweep "${quick[@]}" --precision fp32,bf16 --ranks 1 -o out
    assert_exit 3
    assert_output 'skipped, the device cannot compute it'
    file=$(records_file)
    assert_json "$file" '{r["config"]["precision"]: r["status"] for r in d}' '{"fp32": "ok", "bf16": "skipped"}'
    assert_json "$file" 'all("\"matmul\" in bf16" in r["reason"] for r in d if r["status"] == "skipped")' true
}

@test "a resumed run keeps its name, however its folder is written or moved" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 -o out/
    assert_exit 0
    for _ in 1 2 3; do
        file=$(records_file)
        head -n 4 "$file" >rest.jsonl
        cp rest.jsonl "$file"
        case $(ls -d out moved 2>/dev/null) in
        out) dpbench sweep --resume out/ && mv out moved ;;
        *) (cd moved && "$DPBENCH" sweep --resume .) ;;
        esac
        assert_exit 0
        file=$(records_file)
        assert_json "$file" 'len(d)' 6
        assert_json "$file" 'sorted({r["run_id"] for r in d})' '["out"]'
    done
}

@test "two sweeps at once do not share a folder" {
    write_sweep
    start_dpbench sweep sweep.yaml --probe-retries 0 --steps 3000 -o out
    wait_for_children 1
    dpbench sweep sweep.yaml -o out
    assert_exit 2
    assert_output 'already holds a run'
    dpbench sweep --resume out
    assert_exit 3
    assert_output 'another dpbench is running'
    kill -INT "$background"
    finish_dpbench
    assert_exit 130
}

@test "of sweeps that start into one folder in the same moment, one runs" {
    write_sweep
    for i in 1 2 3 4 5 6; do
        "$DPBENCH" sweep sweep.yaml --probe-retries 0 -o out >/dev/null 2>&1 3>&- &
        pids[i]=$!
    done
    ran=0
    for i in 1 2 3 4 5 6; do
        ! wait "${pids[i]}" || ran=$((ran + 1))
    done
    [ "$ran" -eq 1 ]
    assert_json out/records.jsonl 'len(d)' 6
}

@test "targets that are mistakes are refused before anything runs" {
    write_sweep
    printf 'targets: {eficiency: ">= 99"}\n' >>sweep.yaml
    assert_file_mistake 'target eficiency'
}

@test "too few steps to judge targets by are told before the run" {
    cat >few.yaml <<'END'
version: 1
name: few
base: {workload: mnist-mlp, data: synthetic, steps: 14, warmup: 4, ranks: 1}
targets: {step-time-median: "<= 10s"}
END
    dpbench sweep few.yaml --dry-run
    assert_exit 0
    assert_output 'warning: --steps 14 with --warmup 4 leaves too few steps to judge targets by: 10 after the first 5'
    assert_output 'hint: give --steps 19 or more'
    dpbench sweep few.yaml --steps 19 --dry-run
    [[ $output != *'too few steps'* ]]
}

@test "targets are judged after the run, and again when it is resumed" {
    cat >sweep.yaml <<'END'
version: 1
name: aim
base: {workload: mnist-mlp, data: synthetic, batch-per-rank: 8, steps: 60, warmup: 2, trace-steps: 0,
       ranks: 1, probe-retries: 0, repeats: 3}
targets: {step-time-median: "<= 10s", loss: "<= 100"}
END
    dpbench sweep sweep.yaml -o kept
    assert_exit 0
    assert_output '^PASS  *step-time-median'
    # the evidence is in the report, too, and in one that is made again
    dpbench report kept -o again
    for at in kept again; do
        grep -q '<h2>Targets: PASS</h2>' $at/report.html
        grep -q '<td class="s">step-time-median</td>' $at/report.html
        grep -Eq '^\| PASS \| step-time-median \| .*10s \| ' $at/report.md
        assert_json $at/report.json '[(t["metric"], t["verdict"], len(t["records_sha256"])) for t in d["targets"]]' \
            '[["step-time-median", "PASS", 3], ["loss", "PASS", 3]]'
    done
    # The loss is the same in every repeat; of times that differ much a target cannot be told broken.
    sed -i 's/<= 100"/<= 0.000001"/' sweep.yaml
    dpbench sweep sweep.yaml -o broken
    assert_exit 1
    assert_output '^FAIL  *loss'
    dpbench sweep --resume broken
    assert_exit 1
    grep -q '<h2>Targets: FAIL</h2>' broken/report.html
}

@test "an efficiency that targets are judged by says which one it is, beside the report's" {
    cat >sweep.yaml <<'END'
version: 1
name: far
base: {workload: cifar-resnet20, device: sim, machine: dgx-a100, steps: 24, warmup: 2, repeats: 3,
       trace-steps: 0, batch-per-rank: 128}
axes: {ranks: [1, 8]}
targets: {efficiency: ">= 0.2"}
END
    dpbench sweep sweep.yaml -o out
    assert_exit 0
    assert_output '^Efficiency here is the mean over runs, .*the report.s takes all timed steps together'
    grep -q '<p>Efficiency here is the mean over runs' out/report.html
    grep -q '^Efficiency here is the mean over runs' out/report.md
    grep -q 'gates and targets take run by run' out/report.md
    dpbench gate out --targets out/targets.yaml --markdown gate.md
    grep -q '^Efficiency here is the mean over runs' gate.md
}

@test "exclude that matches no cell is refused" {
    write_sweep
    printf 'exclude: [{ranks: 7}]\n' >>sweep.yaml
    assert_file_mistake 'matches no cell'
}

@test "--resume of a run that has only begun is no error" {
    write_sweep
    dpbench sweep sweep.yaml --probe-retries 0 -o out
    assert_exit 0
    : >out/records.jsonl
    dpbench sweep --resume out
    assert_exit 0
    refute_output 'error: '
    assert_json out/records.jsonl 'len(d)' 6
}
