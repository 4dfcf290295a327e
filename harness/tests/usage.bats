# What may be asked, and what is refused: exit 2, nothing written, the message has a remedy.

load helper

@test "--version prints one line, and needs no environment" {
    run env -i "$DPBENCH" --version
    assert_exit 0
    assert_output '^dpbench [0-9]+\.[0-9]+\.[0-9]+'
    [ "${#lines[@]}" -eq 1 ]
}

@test "--help lists the commands, and needs no environment" {
    run env -i "$DPBENCH" --help
    assert_exit 0
    for command in run sweep report verify comm list doctor; do
        assert_output "^ *(dpbench )?$command\b"
    done
    refute_output '\bworker\b'
}

@test "every command has --help" {
    for command in run sweep report verify comm list doctor; do
        dpbench "$command" --help
        assert_exit 0
        assert_output "dpbench $command"
    done
    assert_nothing_written
}

@test "help COMMAND is COMMAND --help" {
    dpbench help run
    assert_exit 0
    assert_output '--batch-per-rank'
    dpbench help nothing
    assert_exit 2
    assert_output 'is no command'
}

@test "an endless sweep file ends with its limit" {
    dpbench sweep /dev/zero
    assert_exit 2
    assert_output 'too large: more than the 1048576 bytes'
}

@test "run --help shows default, choices and unit of options" {
    dpbench run --help
    assert_exit 0
    assert_output '--ranks'
    assert_output '--bucket'
    assert_output '25MiB'
    assert_output 'fashion-mnist'
}

@test "limits of sizes are ones that people can read" {
    dpbench list options --markdown
    assert_exit 0
    refute_output 'from [0-9]+B to [0-9]{5,}'
    dpbench run --bucket 2TiB
    assert_usage_error
    assert_output 'at most 1TiB'
    assert_output 'from 1B to 1TiB'
}

@test "an unknown option that begins as a known one is answered with that" {
    for word in --output --output-dir --outfile; do
        dpbench run $word x
        assert_usage_error
        assert_output 'did you mean "--out"'
    done
    dpbench run --batch 3
    assert_usage_error
    assert_output 'did you mean "--batch-per-rank"'
}

@test "help shows an option that several parts share once" {
    dpbench run --help
    assert_exit 0
    assert_output '--image-size N +\[resnet18, resnet50, '
    [ "$(printf '%s\n' "$output" | grep -c -- '--image-size N.*resnet18')" -eq 1 ]
}

@test "help goes to stdout, errors go to stderr" {
    dpbench_stdout --help
    assert_exit 0
    [ -n "$output" ]
    [ ! -s err ]
    dpbench_stdout run --ranks abc
    assert_exit 2
    [ -z "$output" ]
    [ -s err ]
}

@test "help into a full device is an error" {
    [ -w /dev/full ] || skip "no /dev/full here"
    run bash -c '"$DPBENCH" --help >/dev/full'
    assert_exit 3
}

@test "no command and an unknown command are usage errors" {
    dpbench
    assert_exit 2
    dpbench swep
    assert_usage_error
    assert_output 'sweep'
}

@test "--ranks refuses what is no number of ranks" {
    for value in abc 0 -1 1e99 1.5 nan inf '' ' ' 0x2 '2 ' 2x 99999999999999999999 65537; do
        dpbench run "${quick[@]}" --ranks "$value"
        assert_usage_error
        assert_output 'ranks'
    done
}

@test "--bucket refuses what is no size" {
    for value in 10XB abc -1MiB 0 nan 1e99 1,5MiB 10MiBx MiB; do
        dpbench run "${quick[@]}" --ranks 2 --bucket "$value"
        assert_usage_error
        assert_output 'bucket'
    done
}

@test "--link refuses what is no link" {
    for value in fast 10Gbps 10Gbps,abc -1Gbps,5us 10Gbps,5us,5us nan,5us 0Gbps,5us; do
        dpbench run "${quick[@]}" --ranks 2 --link "$value"
        assert_usage_error
        assert_output 'link'
    done
}

@test "numbers of steps that leave nothing to time are refused" {
    for steps in 0 -3 nan; do
        dpbench run --data synthetic --steps "$steps"
        assert_usage_error
        assert_output 'steps'
    done
    for warmup in 6 7 1000; do
        dpbench run "${quick[@]:0:6}" --ranks 1 --steps 6 --warmup "$warmup"
        assert_usage_error
        assert_output 'warmup'
    done
}

@test "numbers that are not finite or out of range are refused" {
    for value in nan inf -inf -1 1e300 abc 0,1; do
        dpbench run "${quick[@]}" --ranks 1 --lr "$value"
        assert_usage_error
        assert_output 'lr'
    done
    dpbench run "${quick[@]}" --ranks 1 --momentum 1.5
    assert_usage_error
}

@test "an unknown option gets a suggestion" {
    dpbench run --rank 2
    assert_usage_error
    assert_output 'ranks'
    dpbench run --buckte 1MiB
    assert_usage_error
    assert_output 'bucket'
}

@test "unknown values of an option get the choices" {
    dpbench run --data synthetic --ranks 1 --workload resnet51
    assert_usage_error
    assert_output 'mnist-cnn'
    dpbench run --data fashion-minst --ranks 1
    assert_usage_error
    assert_output 'fashion-mnist'
    dpbench run "${quick[@]}" --ranks 2 --strategy dpd
    assert_usage_error
    assert_output 'ddp'
}

@test "data that do not fit the network are refused with what fits" {
    dpbench run --data cifar10 --ranks 1 --workload mnist-cnn
    assert_usage_error
    assert_output '32x32x3 images'
    assert_output '--data fashion-mnist, mnist, synthetic'
}

@test "an option given twice, or without its value, is refused" {
    dpbench run --ranks 1 --ranks 2
    assert_usage_error
    assert_output 'ranks'
    dpbench run --ranks
    assert_usage_error
}

@test "arguments that mean nothing are refused" {
    dpbench run file.yaml
    assert_usage_error
    dpbench doctor --ranks 2
    assert_usage_error
    dpbench list nonsense
    assert_usage_error
    assert_output 'strategies'
}

@test "options that cannot take effect are refused" {
    dpbench run "${quick[@]}" --ranks 1 --link 10Gbps,5us
    assert_usage_error
    dpbench run "${quick[@]}" --ranks 1 --bucket 1MiB
    assert_usage_error
    dpbench run "${quick[@]}" --ranks 2 --strategy naive --bucket 1MiB
    assert_usage_error
    assert_output 'bucket'
    dpbench run "${quick[@]}" --ranks 1 --sequence 16
    assert_usage_error
    assert_output 'it belongs to workload "bert-base" or "bert-large" or "gpt2-small", which no cell'
    dpbench run --workload gpt2-small --ranks 1 --sequence 1025
    assert_usage_error
    assert_output 'at most 1024' # bert-base's option of that name ends at 512
}

@test "options that contradict each other are refused" {
    dpbench run --data synthetic --ranks 2 --global-batch 64 --batch-per-rank 8
    assert_usage_error
    dpbench run --data synthetic --ranks 1 --steps 10 --epochs 1
    assert_usage_error
    assert_output 'epochs'
}

@test "a global batch that the ranks do not divide needs --uneven" {
    dpbench run --data synthetic --workload mnist-mlp --steps 4 --warmup 2 --trace-steps 0 \
        --ranks 2 --global-batch 15
    assert_usage_error
    assert_output 'uneven'
}

@test "a list where run wants one value is refused" {
    dpbench run "${quick[@]}" --ranks 1,2
    assert_usage_error
    assert_output 'sweep'
}

@test "more ranks than the comm can hold are refused before any work" {
    dpbench run "${quick[@]}" --ranks 65
    assert_usage_error
    assert_output '64'
    assert_output 'dpbench simulate'
}

@test "list names the parts of this build" {
    dpbench list workloads
    assert_exit 0
    assert_output 'mnist-cnn'
    assert_output 'mnist-mlp'
    assert_output '^mnist-cnn +1199882 +4.58 MiB +24.0 MFLOP +[0-9.]+ MiB +64 '
    assert_output '^gpt2-small .* GiB +4 ' # not 64, which needs 90 GiB
    assert_output '3 times'
    dpbench_stdout list workloads --json
    assert_exit 0
    printf '%s' "$output" >list.json
    assert_json list.json '[w["parameters"] for w in d if w["name"] == "mnist-mlp"]' '[669706]'
    assert_json list.json '[w["gradient_bytes"] for w in d if w["name"] == "mnist-mlp"]' '[2678824]'
    assert_json list.json 'all(w["train_flops_per_sample"] == 3 * w["fwd_flops_per_sample"] > 0 for w in d)' true
    # parameters and gradients; plain SGD keeps no state
    assert_json list.json 'all(w["memory"]["predicted_bytes"] > 2 * w["gradient_bytes"] for w in d)' true
    dpbench list strategies
    assert_exit 0
    for name in none naive ddp; do
        assert_output "^ *$name\b"
    done
    dpbench list devices
    assert_exit 0
    assert_output '^ *cpu\b'
    dpbench list comms
    assert_exit 0
    assert_output '^ *shm\b'
}

@test "list --json is JSON" {
    for kind in workloads strategies devices comms options; do
        "$DPBENCH" list "$kind" --json | python3 -m json.tool >/dev/null
    done
}

@test "list options --markdown has a row for every core option" {
    dpbench list options --markdown
    assert_exit 0
    for option in ranks bucket first-bucket overlap link algorithm steps warmup repeats seed \
        threads-per-rank data timeout global-batch batch-per-rank strategy workload; do
        assert_output "^\|.*\`(--)?$option\`"
    done
}

@test "doctor says what this machine is fit for" {
    dpbench doctor
    assert_exit 0
    assert_output 'cpu'
    assert_output 'shm'
    "$DPBENCH" doctor --json >doctor.json
    python3 -m json.tool doctor.json >/dev/null
}

@test "an empty value of -o or --resume is refused, not taken as if it were absent" {
    dpbench run "${quick[@]}" --ranks 1 -o ''
    assert_usage_error
    assert_output '--out'
    dpbench sweep --resume ''
    assert_usage_error
    assert_output '--resume'
}

@test "options before the command get a hint" {
    dpbench --ranks 2 run
    assert_usage_error
    assert_output 'options follow the command'
}

@test "what only the size of the data set tells is refused before any work" {
    dpbench run --data synthetic --workload mnist-mlp --ranks 2 --global-batch 70000
    assert_usage_error
    assert_output 'larger than the data set of 60000'
    dpbench run --data synthetic --workload mnist-mlp --ranks 2 --epochs 1 --warmup 600
    assert_usage_error
    assert_output 'no timed step of the 468'
}

@test "a folder for synthetic data, and measurement options for verify, cannot take effect" {
    for option in data-dir data-file; do
        dpbench run "${quick[@]}" --ranks 1 --$option nowhere
        assert_usage_error
        assert_output "$option"
    done
    for option in repeats trace-steps probe-retries; do
        dpbench verify --data synthetic --$option 2
        assert_usage_error
        assert_output "$option"
    done
}

@test "what a strategy sends and --algorithm does not have is refused before any rank starts" {
    for refused in "zero1 hierarchical reduce-scatter" "fsdp tree all-gather" \
        "mirrored hierarchical reduce"; do
        read -r strategy algorithm kind <<<"$refused"
        for command in run explain; do
            dpbench "$command" --workload mnist-mlp --ranks 4 --strategy "$strategy" \
                --algorithm "$algorithm"
            assert_exit 2
            assert_output "--algorithm: strategy \"$strategy\" on 4 ranks: .* has no $kind .*direct"
            assert_output 'hint: give --algorithm another value'
        done
    done
    dpbench run --workload mnist-mlp --ranks 3 --strategy zero2 --algorithm halving-doubling
    assert_exit 2
    assert_output 'has no reduce-scatter for this number of ranks'
    dpbench run --workload mnist-mlp --ranks 2 --link-inside 1Gbps,1us
    assert_exit 2
    assert_output '--link-inside: cannot take effect without'
    assert_nothing_written
}

@test "a coordinator beside a network that exchanges is refused before any rank starts" {
    dpbench run --workload cifar-resnet20 --ranks 2 --strategy horovod --sync-bn on
    assert_exit 2
    assert_output '^dpbench: error: strategy "horovod" reduces gradients from a thread of its own'
    dpbench explain --workload dlrm-mlperf --ranks 2 --strategy horovod
    assert_exit 2
    assert_output '^dpbench: error: strategy "horovod" .* workload "dlrm-mlperf"'
    dpbench run --workload cifar-resnet20 --ranks 2 --hook powersgd --sync-bn on
    assert_exit 2
    assert_output '^dpbench: error: strategy "ddp" reduces gradients in chains'
    assert_nothing_written
}

@test "settings of autotuning without it are refused" {
    for strategy in horovod horovod-legacy; do
        dpbench run --workload mnist-mlp --ranks 2 --strategy "$strategy" --autotune-samples 5
        assert_exit 2
        assert_output 'autotune-... cannot take effect with --autotune off'
    done
    assert_nothing_written
}
