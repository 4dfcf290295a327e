# tests/gpu/check.sh without a GPU, and with a program in the place of dpbench: that it runs each part,
# stops none for another, and says what it could not do.

load helper

check=$BATS_TEST_DIRNAME/../../tests/gpu/check.sh

# A machine as the script would find one with a GPU: a device file, a build, a cmake that has nothing
# to do, and a dpbench that writes what a run writes. Its losses are $1 on the GPU.
pretend() {
    mkdir -p "$folder/bin" "$folder/build/harness/cli" "$folder/build/kernels/cuda/tests" \
        "$folder/build/bench/peers"
    printf '#!/bin/sh\n' >"$folder/bin/cmake"
    printf '#!/bin/sh\necho "import torch: no" >&2\nexit 1\n' >"$folder/build/bench/peers/dpb_peer_start"
    cat >"$folder/build/harness/cli/dpbench" <<TXT
#!/bin/bash
[ "\$1" = run ] || { echo "[]"; exit 0; }
loss=2.0
while [ \$# -gt 0 ]; do
    case \$1 in
    -o) out=\$2 ;;
    --device) [ "\$2" = cpu ] || loss=$1 ;;
    --comm) ${2:-:} ;;
    esac
    shift
done
mkdir -p "\$out"
echo '{"status": "ok", "reason": null, "global_batch": 8, "samples_step_ns": [1000000], "phases": {},
 "config": {"workload": "w", "precision": "bf16"}, "energy": null, "overlap_reason": "none here",
 "trace": {"lost": 0, "overhead_ratio": 1.0}, "overlap": {"span_ns": 4, "compute_ns": 3, "idle_ns": 1},
 "training": {"loss_curve": {"loss": ['\$loss']}}}' | tr -d '\n' >"\$out/records.jsonl"
echo >>"\$out/records.jsonl"
TXT
    printf '#!/bin/sh\necho "[       OK ] test_x"\n' >"$folder/build/kernels/cuda/tests/test_gpu_ops"
    printf '#!/bin/sh\necho "SKIP: no fp16 here"\nexit 77\n' \
        >"$folder/build/kernels/cuda/tests/test_gpu_fp16"
    printf '#!/bin/sh\necho "{\\"dtype\\": \\"bf16\\", \\"size\\": 1, \\"tflops\\": 9}"\n' \
        >"$folder/build/kernels/cuda/tests/gpu_ceiling"
    chmod +x "$folder/bin/cmake" "$folder"/build/*/*/dpb* "$folder"/build/kernels/cuda/tests/*
    export DPB_GPU_DEVICE_FILE=/dev/null PATH=$folder/bin:$PATH
}

check() {
    run "$check" --build "$folder/build" --out "$folder/out" "$@"
}

@test "without a GPU every part says why it does not run, at once, with exit status 3" {
    DPB_GPU_DEVICE_FILE=$folder/none run "$check"
    [ ! -e /dev/dxg ] || skip "/dev/dxg is here"
    assert_exit 3
    [ "${#lines[@]}" -ge 10 ]
    for line in "${lines[@]}"; do
        [[ $line == *"SKIP: no NVIDIA GPU: neither $folder/none nor /dev/dxg is there" ]]
    done
    assert_nothing_written
}

@test "the parts have names, limits that fit, and wrong uses are refused" {
    run "$check" --list
    assert_exit 0
    assert_output '^ops +[0-9]+ s '
    run "$check" --only nothing
    assert_exit 2
    run "$check" --out
    assert_exit 2
    run "$check" --limit soon
    assert_exit 2
    run "$check" --wrong
    assert_exit 2
    run "$check" --help
    assert_exit 0
    assert_output 'exit status|Exit status'
}

@test "figures are computed right" {
    run python3 "$(dirname "$check")/figures.py" --self-test
    assert_exit 0
}

@test "shellcheck finds nothing" {
    command -v shellcheck >/dev/null || skip "shellcheck is not installed"
    run shellcheck "$check"
    assert_exit 0
}

@test "all parts run, and the table says what each of them found" {
    pretend 2.0001
    PYTHON=python3 check
    assert_output '^losses +bert-base +ok '
    assert_output '^ops +ops +ok +1 tests'
    assert_output '^ops +fp16 +skipped +SKIP: no fp16 here'
    assert_output '^nccl +one rank +ok +1.00 ms'
    assert_output '^ceiling +bf16 +- +9.0 TFLOP/s'
    assert_output "^trace +kernels' share of a step +ok +75.0%"
    assert_output '^steps +resnet50-bf16-256 +ok +1.00 ms, 8000 samples/s'
    assert_output '^teardown +processes +ok'
    assert_output '^overlap .*skipped +. GPU, 2 are needed'
    assert_output '[0-9]+ ok, 0 failed, [0-9]+ skipped$'
    assert_exit 0
    [ -s out/table.txt ]
}

@test "other losses are a failure, and later parts run all the same" {
    pretend 2.5
    check --only losses,nccl,ceiling
    assert_exit 1
    assert_output '^losses +resnet50 +FAILED +1 steps, largest difference 2.5e-01'
    assert_output '^nccl +one rank +ok'
    assert_output '^ceiling +bf16'
    refute_output '^ops '
}

@test "the log of a part that failed is printed, before the table, and a second check starts afresh" {
    pretend 2.0 '{ echo "a reason of its own" >&2; exit 4; }'
    check --only nccl
    assert_exit 1
    assert_output '^---- nccl, the end of .*/nccl.log'
    assert_output '^a reason of its own'
    [[ ${lines[-1]} == *"1 failed"* ]]
    touch out/nccl/left
    pretend 2.0
    check --only nccl
    assert_exit 0
    refute_output '^---- nccl'
    [ ! -e out/nccl/left ]
}

@test "what a part has no time for is skipped, not ended half way" {
    pretend 2.0
    check --only losses --limit 7
    assert_exit 0
    assert_output '^losses +bert-base +skipped +no time left of 7 s'
}

@test "a part that hangs is ended, and counts as failed" {
    pretend 2.0 'sleep 1000'
    check --only nccl,ceiling --limit 12
    assert_exit 1
    assert_output '^nccl .*FAILED +ran past 12 s'
    assert_output '^ceiling +bf16'
}

@test "what the device says is the reason, when it says that it is not available" {
    pretend 2.0
    printf '#!/bin/sh\necho "dpbench: error: device cuda: not available here, because of a test"\nexit 3\n' \
        >build/harness/cli/dpbench
    check --only ops,losses
    assert_exit 3
    assert_output '^ops +SKIP: .*not available here, because of a test'
}

@test "no time left is said" {
    pretend 2.0
    sed -E 's/^budget_s=.*/budget_s=4/' "$check" >check.sh
    chmod +x check.sh
    mkdir -p x/y && mv check.sh x/y && ln -s "$(dirname "$check")/figures.py" x/y/figures.py
    run x/y/check.sh --build "$folder/build" --out "$folder/out" --only ceiling
    assert_output '^ceiling .*skipped +no time left of 4 s'
}
