# Ranks that die or stop, a launcher that dies, and folders that cannot be written.

load helper

endless=(--data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 2000000 --warmup 2
    --trace-steps 0 --probe-retries 0)

@test "kill -9 of a rank: exit 4, the message names rank, pid, signal and step, nobody is left" {
    start_dpbench run "${endless[@]}" --ranks 3 -o out
    wait_for_ranks 3
    kill -KILL "${ranks[1]}"
    finish_dpbench
    assert_exit 4
    assert_output "rank [0-2].*\b${ranks[1]}\b"
    assert_output '(SIGKILL|Killed|signal 9)'
    assert_output 'step [0-9]+'
    assert_gone "${ranks[@]}"
    file=$(records_file)
    assert_json "$file" 'd[0]["status"]' failed
    assert_json "$file" 'd[0]["samples_step_ns"]' '[]'
    assert_json "$file" 'str(d[0]["reason"]) != ""' true
}

@test "the reason in the record is the first error of the rank that failed, not what followed" {
    # shellcheck disable=SC2016 # the inner shell expands it
    limited='ulimit -v 250000 && "$DPBENCH" "$@"'
    bash -c "$limited" sh --version >/dev/null 2>&1 ||
        skip "the program does not start in little address space (a sanitizer's build?)"
    run bash -c "$limited" sh run --data synthetic --workload mnist-mlp --batch-per-rank 16384 \
        --ranks 2 --steps 4 --warmup 2 --trace-steps 0 --probe-retries 0 -o out
    assert_exit 3
    assert_json "$(records_file)" '"cpu: out of memory for a buffer" in d[0]["reason"]' true
    assert_json "$(records_file)" '"gave up" in d[0]["reason"]' false
}

@test "the reason in the record is that error also when the messages cannot be written" {
    [ -w /dev/full ] || skip "there is no /dev/full"
    # shellcheck disable=SC2016 # the inner shell expands it
    limited='ulimit -v 250000 && "$DPBENCH" "$@"'
    bash -c "$limited" sh --version >/dev/null 2>&1 ||
        skip "the program does not start in little address space (a sanitizer's build?)"
    run bash -c "$limited 2>/dev/full" sh run --data synthetic --workload mnist-mlp \
        --batch-per-rank 16384 --ranks 2 --steps 4 --warmup 2 --trace-steps 0 --probe-retries 0 \
        -o out
    assert_exit 3
    assert_json "$(records_file)" '"cpu: out of memory for a buffer" in d[0]["reason"]' true
}

@test "kill -SEGV and kill -TERM of a rank are the same" {
    for signal in SEGV TERM; do
        start_dpbench run "${endless[@]}" --ranks 2 -o "out$signal"
        wait_for_ranks 2
        kill -"$signal" "${ranks[0]}"
        finish_dpbench
        assert_exit 4
        assert_output "\b${ranks[0]}\b"
        assert_gone "${ranks[@]}"
    done
}

@test "kill -STOP of a rank: exit 4 within the time-out, the message names the rank" {
    start_dpbench run "${endless[@]}" --ranks 2 --stall-timeout 10s -o out
    wait_for_ranks 2
    kill -STOP "${ranks[1]}"
    finish_dpbench
    assert_exit 4
    assert_output "rank 1"
    assert_output "\b${ranks[1]}\b"
    assert_output 'step [0-9]+'
    assert_gone "${ranks[@]}"
    assert_json "$(records_file)" 'd[0]["status"]' timeout
}

@test "--timeout ends a run that is too long" {
    start_dpbench run "${endless[@]}" --ranks 2 --timeout 2s -o out
    # Not wait_for_ranks: on a busy machine they may not compute for a second within the two.
    wait_for_children 2
    finish_dpbench
    assert_exit 4
    assert_output '(timeout|time-out|timed out|longer than)'
    assert_gone "${ranks[@]}"
    assert_json "$(records_file)" 'd[0]["status"]' timeout
}

@test "a rank that dies leaves the records of earlier cells as they were" {
    dpbench run "${quick[@]}" --ranks 2 -o out
    assert_exit 0
    cat >sweep.yaml <<'YAML'
version: 1
name: dying
base: {workload: mnist-mlp, data: synthetic, batch-per-rank: 8, steps: 2000, warmup: 2, repeats: 2}
axes: {ranks: [2], bucket: [256KiB, 4MiB]}
YAML
    start_dpbench sweep sweep.yaml --probe-retries 0 --trace-steps 0 -o sweep
    wait_for_records sweep 1
    cp "$file" before.jsonl
    wait_for_children 2
    kill -KILL "${ranks[1]}"
    finish_dpbench 200
    assert_exit 4
    head -c "$(stat -c %s before.jsonl)" "$file" | cmp - before.jsonl
    assert_json "$file" 'len(d)' 4
    assert_json "$file" 'sorted(r["status"] for r in d)' '["failed", "ok", "ok", "ok"]'
}

@test "SIGINT during a run: exit 130, no rank is left, the records are valid" {
    start_dpbench run "${endless[@]}" --ranks 2 -o out
    wait_for_ranks 2
    kill -INT "$background"
    finish_dpbench
    assert_exit 130
    assert_gone "${ranks[@]}"
    file=$(find out -name records.jsonl)
    [ -z "$file" ] || assert_json "$file" '{r["status"] for r in d} <= {"interrupted"}' true
}

@test "SIGINT while a cell is run again for noise keeps the attempt that was complete" {
    # No machine is free to 100 %, so the cell is run again.
    start_dpbench run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 3000 \
        --warmup 2 --trace-steps 0 --ranks 1 --probe-limit 100% --probe-retries 2 -o out
    while ! grep -q 'running it again' log && kill -0 "$background"; do
        sleep 0.1
    done
    wait_for_children 1
    kill -INT "$background"
    finish_dpbench
    assert_exit 130
    file=$(records_file)
    assert_json "$file" 'd[0]["status"], len(d[0]["samples_step_ns"])' '["ok", 2998]'
    assert_json "$file" 'len(d[0]["probe"]["attempts"]), d[0]["probe"]["attempt_used"]' '[2, 0]'
    # Nothing is left to do.
    dpbench sweep --resume out
    assert_exit 0
    assert_output '1 launch was done before'
}

@test "the launcher's death ends the ranks" {
    start_dpbench run "${endless[@]}" --ranks 2 -o out
    wait_for_ranks 2
    kill -KILL "$background"
    wait "$background" || true
    background=
    assert_gone "${ranks[@]}"
}

@test "a read-only output folder: exit 3 before any work" {
    with_mount ro "$DPBENCH" run "${endless[@]}" --ranks 2 -o out/run
    assert_exit 3
    assert_output 'out/run'
    assert_output 'hint: '
    with_mount ro "$DPBENCH" sweep "${endless[@]}" --ranks 1,2 -o out
    assert_exit 3
}

@test "a full output folder: exit 3 before any work" {
    with_mount size=4k "$DPBENCH" run "${endless[@]}" --ranks 2 -o out/run
    assert_exit 3
    assert_output 'hint: '
    assert_output '(No space|full)'
}

@test "an output folder that is a file, or lies in no folder that can be made: exit 3" {
    : >file
    dpbench run "${endless[@]}" --ranks 2 -o file
    assert_exit 3
    assert_output '"?file'
    dpbench run "${endless[@]}" --ranks 2 -o file/below
    assert_exit 3
    dpbench run "${endless[@]}" --ranks 2 -o /proc/dpbench
    assert_exit 3
    [ ! -s file ]
}

@test "what cannot be written is told before anything is measured, by every command" {
    touch file
    local words
    while read -r -a words; do
        dpbench "${words[@]}"
        [ "$status" -eq 3 ] || { printf '%s: %s\n%s\n' "${words[*]}" "$status" "$output"; return 1; }
        assert_output '": (Not a directory|Is a directory|No such file)'
        refute_output 'records:|calibrate: collectives'
        [ "$(ls)" = file ] # no run, no report
    done <<'END'
profile --workload mnist-mlp --steps 40 -o .
profile --workload mnist-mlp --steps 40 -o file/x
profile --workload mnist-mlp --steps 40 -o nowhere/x
calibrate -o nowhere/x
comm --ranks 2 --sizes 1KiB --csv nowhere/x
gate measure --workload mnist-mlp --ranks 2 --runs 3 --json nowhere/x
gate measure --workload mnist-mlp --ranks 2 --runs 3 --junit file/x
gate measure --workload mnist-mlp --ranks 2 --runs 3 --markdown nowhere/x
gate measure --workload mnist-mlp --ranks 2 --runs 3 --prometheus nowhere/x
plan --workload mnist-mlp --machine dgx-a100 --samples 50000 --epochs 2 --efficiency 0.5 -o file/x
simulate --workload mnist-mlp --machine dgx-a100 --ranks 8 -o file/x
sweep --workload mnist-mlp --ranks 1,2 -o file/x
tune --workload cifar-resnet20 --ranks 2 -o file/x
data pack --workload mnist-mlp --data synthetic -o file/x
data make --workload dlrm-small --samples 100 -o nowhere/x
END
}

@test "the hidden worker verb without a launcher ends, with a message" {
    run timeout 10 "$DPBENCH" worker </dev/null 3>&-
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    assert_output 'dpbench: '
}

@test "a launcher that started several processes is refused before any work" {
    for variables in OMPI_COMM_WORLD_SIZE=16 PMI_SIZE=16 WORLD_SIZE=16 MV2_COMM_WORLD_SIZE=16 \
        SLURM_STEP_NUM_TASKS=16 SLURM_NTASKS=16 'SLURM_NTASKS=16 SLURM_JOB_ID=7 SLURM_STEP_ID=0' \
        'OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_RANK=3' 'PMI_SIZE=16 PMI_RANK=3' \
        'WORLD_SIZE=16 RANK=3' 'SLURM_STEP_NUM_TASKS=16 SLURM_PROCID=3'; do
        # shellcheck disable=SC2086 # words
        run env $variables "$DPBENCH" run "${quick[@]}" --ranks 2
        assert_exit 3
        assert_output "launched as 16 processes.*${variables%%=*}.* world size is 1"
        assert_output 'hint: .*--launcher none'
        assert_nothing_written
    done
    run env SLURM_NTASKS=16 "$DPBENCH" verify --data synthetic --ranks 2
    assert_exit 3
    run env WORLD_SIZE=many "$DPBENCH" run "${quick[@]}" --ranks 2
    assert_exit 3
    assert_output 'WORLD_SIZE=many is no number'
}

@test "a launcher of one process, also inside a larger allocation, is fine" {
    run env SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=1 \
        "$DPBENCH" run "${quick[@]}" --ranks 1 -o one
    assert_exit 0
    run env SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=16 \
        "$DPBENCH" run "${quick[@]}" --ranks 1 -o batch
    assert_exit 0
}

@test "closed standard descriptors: runs with what is left, and lost output is an error" {
    run bash -c '"$DPBENCH" run "$@" -o in <&-' _ "${quick[@]}" --ranks 2
    assert_exit 0
    run bash -c '"$DPBENCH" run "$@" -o err 2>&-' _ "${quick[@]}" --ranks 2
    assert_exit 0
    run bash -c '"$DPBENCH" run "$@" -o all <&- >&- 2>&-' _ "${quick[@]}" --ranks 2
    assert_exit 3
    for name in in err all; do
        assert_json $name/records.jsonl '[r["status"] for r in d]' '["ok"]'
        [ -s $name/report.html ]
    done
}

@test "too few open files: the message says how to have more" {
    run bash -c 'ulimit -n 20; "$DPBENCH" run "$@" -o out' _ "${quick[@]}" --ranks 2
    assert_exit 3
    assert_output 'ulimit -n'
}

@test "a limit on file size is a failed write, not a death" {
    run bash -c 'ulimit -f 4; "$DPBENCH" run "$@" -o out' _ "${quick[@]}" --ranks 2
    assert_exit 3
    assert_output 'out/.*File too large'
}

@test "a reader that closes its pipe loses nothing: records and report are there" {
    run bash -c '"$DPBENCH" sweep "$@" --repeats 2 -o out 2>&1 | head -n 1' _ "${quick[@]}" --ranks 2 --bucket 1MiB --overlap on
    [ "$status" -eq 0 ]
    assert_json out/records.jsonl '[r["status"] for r in d]' '["ok", "ok"]'
    [ -s out/report.html ]
}

@test "a reader that has had enough is no error, a full disk is" {
    local words
    mkfifo pipe
    exec 8<>pipe 9>pipe 8<&- # nobody reads any more
    for words in 'list options' 'run --help' --help; do
        # shellcheck disable=SC2086 # words
        "$DPBENCH" $words >&9 2>err
        [ ! -s err ]
    done
    exec 9>&-
    [ -w /dev/full ] || skip "there is no /dev/full"
    for words in 'list options' 'run --help'; do
        run bash -c "\"\$DPBENCH\" $words >/dev/full"
        assert_exit 3
        assert_output "cannot write to standard output"
    done
}

@test "nohup: a hang-up does not end the run" {
    nohup "$DPBENCH" run "${quick[@]/%6/500}" --ranks 1 -o out >log 2>&1 3>&- &
    background=$!
    wait_for_children 1
    kill -HUP "$background"
    finish_dpbench 200
    assert_exit 0
    assert_json out/records.jsonl '[r["status"] for r in d]' '["ok"]'
}

@test "too little memory for threads: the hint is about that" {
    run bash -c 'ulimit -v 60000; "$DPBENCH" run "$@" -o out' _ "${quick[@]}" --ranks 2
    [ "$status" -ne 0 ]
    assert_output 'hint: .*(ulimit -v|memory)'
    refute_output 'taskset'
}
