# Predictions of published runs: dpbench validate.

load helper

header=source,system,model,precision,gpu,interconnect,gpus,per_gpu_batch,throughput_samples_s,scaling_efficiency_pct,notes

# A number of the JSON that the last command printed.
number() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$output"
}

@test "validate: the published rows hold the targets, by source, model and strategy" {
    dpbench_stdout validate --json
    assert_exit 0
    cat <<<"$output" >report.json
    python3 - <<'END'
import json
report = json.load(open("report.json"))
assert report["median_abs_error_points"] <= 5
assert report["ranking_agreement"] >= 0.8
assert report["rows_in_scope"] > 400
assert report["rows"] == report["rows_in_scope"] + sum(report["excluded"].values())
for source in report["per_source"].values():
    assert source["held_out_median_abs_error_points"] <= 8
for key in "per_source", "per_model", "per_strategy":
    assert sum(g["rows_in_scope"] for g in report[key].values()) == report["rows_in_scope"]
assert len(report["predictions"]) == report["rows_in_scope"]
END
}

@test "validate: what it prints for people" {
    dpbench validate
    assert_exit 0
    assert_output '^NVIDIA/DeepLearningExamples +[0-9]+ +[0-9.]+ +[0-9.]+ +-?[0-9.]+$'
    assert_output 'a parameter server, which is not modelled$'
    assert_output '^median absolute error [0-9.]+ points \(target 5: holds\)'
}

@test "validate: a table of one's own, with a byte order mark, CRLF and systems nobody knows" {
    {
        printf '\xEF\xBB\xBF%s\r\n' "$header"
        printf '%s\r\n' 'me,PyTorch DDP,ResNet-50,fp32,V100 (DGX-1),NVLink + 4x100Gb IB,1,32,300,,' \
            'me,PyTorch DDP,ResNet-50,fp32,V100 (DGX-1),NVLink + 4x100Gb IB,8,32,2300,,' \
            'me,"A, new ""thing""",Net-Nine,,WSE,Ether 3x,8,,,,' ',,,,,,,,,,'
    } >own.csv
    dpbench_stdout validate --published own.csv --json
    assert_exit 0
    [ "$(number rows)" = 4 ]
    [ "$(number rows_in_scope)" = 1 ]
}

@test "validate: a missed target ends with 1" {
    {
        echo "$header"
        echo 'me,PyTorch DDP,ResNet-50,fp32,V100 (DGX-1),NVLink + 4x100Gb IB,1,32,300,,'
        echo 'me,PyTorch DDP,ResNet-50,fp32,V100 (DGX-1),NVLink + 4x100Gb IB,8,32,700,,'
    } >own.csv
    dpbench validate --published own.csv
    assert_exit 1
    assert_output 'MISSED'
}

@test "validate: files that are no such table end with 2 and say where" {
    dpbench validate --published none.csv
    assert_exit 2
    echo 'source,system' >short.csv
    dpbench validate --published short.csv
    assert_exit 2
    assert_output 'short.csv:1: there is no column "model"'
    printf '%s\nme,PyTorch DDP,ResNet-50,fp32,V100,,1,32,"300,5",,\n' "$header" >comma.csv
    dpbench validate --published comma.csv
    assert_exit 2
    assert_output 'comma.csv:2: throughput_samples_s is "300,5"'
    printf '%s\nme,two\n' "$header" >ragged.csv
    dpbench validate --published ragged.csv
    assert_exit 2
    assert_output 'ragged.csv:2: 2 fields, 11 columns'
}

# Constants of the file were fitted with the simulation as it is: else fit them again.
@test "validate --fit: twice the same, and no better than the constants that the program has" {
    dpbench_stdout validate --fit
    assert_exit 0
    first=$output
    dpbench_stdout validate --fit
    [ "$output" = "$first" ]
    dpbench_stdout validate --fit --json
    fitted=$(number median_abs_error_points)
    dpbench_stdout validate --json
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 0.3)' \
        "$fitted" "$(number median_abs_error_points)"
}

@test "scenario bert-horovod-hundreds: a machine that falls off after two nodes is warned about" {
    sweep=$BATS_TEST_DIRNAME/../../bench/sweeps/bert-horovod-hundreds.yaml
    "$DPBENCH" plan "$sweep" --samples-to-quality 461242368 --deadline 1d --ranks 16,32 \
        --compression none --price 2USD/h@2026-12-01 -o plan
    run grep -E 'aws-p4d: 2 nodes look fine and 4 do not' plan/report.md
    assert_exit 0
}

@test "scenario bert-horovod-hundreds: simulated, two nodes of it look fine and four do not" {
    sweep=$BATS_TEST_DIRNAME/../../bench/sweeps/bert-horovod-hundreds.yaml
    dpbench_stdout simulate "$sweep" --ranks 8,16,32 --compression none -o run
    assert_exit 0
    python3 - <<'END'
import json
rate = {}
for line in open("run/records.jsonl"):
    record = json.loads(line)
    config = record["config"]
    rate[config["machine"], config["ranks"]] = record["samples_step_ns"]
median = {key: sorted(steps)[len(steps) // 2] for key, steps in rate.items()}
assert median["aws-p4d", 16] < 1.1 * median["aws-p4d", 8], median
assert median["aws-p4d", 32] > 1.2 * median["aws-p4d", 16], median
assert median["dgx-a100", 32] < 1.1 * median["dgx-a100", 8], median
END
}
