#!/usr/bin/env bats
# dpbench simulate and dpbench profile: sweeps on virtual time, and what they are made of.

load helper

# Short simulations.
sim=(--machine dgx-h100 --workload mnist-cnn --steps 6 --warmup 3)

@test "simulate: a range of ranks, each cell a record that says simulated" {
    dpbench simulate "${sim[@]}" --ranks 1,8..64:x2 -o out
    assert_exit 0
    assert_output '64 +.*simulated'
    assert_json out/records.jsonl '[r["ranks"] for r in sorted(d, key=lambda r: r["ranks"])]' '[1, 8, 16, 32, 64]'
    assert_json out/records.jsonl 'all(r["simulated"] and not r["emulated"] and r["status"] == "ok" for r in d)' true
    assert_json out/records.jsonl '{len(r["samples_step_ns"]) for r in d} == {3}' true
    assert_json out/records.jsonl 'all(r["training"] is None and "simulated" in r["training_reason"] for r in d)' true
    assert_json out/records.jsonl 'all(r["verified"] is None and r["memory"]["limit_bytes"] == 80000000000 for r in d)' true
    assert_json out/records.jsonl 'all(r["overlap"]["compute_ns"] + r["overlap"]["exposed_ns"] + r["overlap"]["idle_ns"] == r["overlap"]["span_ns"] for r in d)' true
    assert_json out/records.jsonl '{r["simulation"]["machine"] for r in d} == {"dgx-h100"}' true
    assert_json out/records.jsonl 'all(abs(sum(v for k, v in r["simulation"]["network"].items() if k.endswith("share")) - 1) < 1e-9 for r in d if r["ranks"] > 1)' true
    assert_json out/records.jsonl '{r["energy"]["meter"] for r in d} == {"simulated"}' true
    grep -q 'In simulation' out/report.md
    grep -q 'Machine: simulated, by the profile dgx-h100\. Simulated on this host' out/report.md
    grep -q 'Machine: simulated, by the profile dgx-h100\.' out/report.html
    dpbench report out --json
    assert_output '"machine": ?"dgx-h100"'
    grep -q 'What the simulation stands on' out/report.md
}

@test "simulate: the same again is the same to the bit, on whatever host" {
    "$DPBENCH" simulate "${sim[@]}" --ranks 8,16 -o a
    taskset -c 0 "$DPBENCH" simulate "${sim[@]}" --ranks 8,16 -o b
    keep='[[r[k] for k in ("fingerprint", "series", "samples_step_ns", "overlap", "plan", "simulation")] for r in sorted(d, key=lambda r: r["cell"])]'
    [ "$(json a/records.jsonl "$keep")" = "$(json b/records.jsonl "$keep")" ]
}

@test "simulate: sweep files, and run with --device sim" {
    cat >sweep.yaml <<'YAML'
version: 1
base: {workload: mnist-cnn, steps: 6, warmup: 3, lr: 0.1}
axes: {ranks: [1, 8..32:x2], bucket: [256KiB, 25MiB]}
YAML
    dpbench simulate sweep.yaml --machine dgx-a100 -o out
    assert_exit 0
    assert_output 'lr takes no effect in a simulation'
    assert_json out/records.jsonl 'len(d)' 7
    dpbench run --device sim "${sim[@]}" --ranks 8 -o one
    assert_exit 0
    assert_json one/records.jsonl 'd[0]["simulated"]' true
}

@test "simulate: the plan without running it, and --resume" {
    dpbench simulate "${sim[@]}" --ranks 8,16 --dry-run
    assert_exit 0
    assert_output '^simulate: 2 cells'
    assert_nothing_written
    "$DPBENCH" simulate "${sim[@]}" --ranks 8,16 -o out
    head -n 1 out/records.jsonl >first && mv first out/records.jsonl
    dpbench simulate --resume out
    assert_exit 0
    assert_output '1 launch was done before'
    assert_json out/records.jsonl 'len(d)' 2
    dpbench simulate --resume out --ranks 8
    assert_exit 2
}

@test "simulate: mistakes are named, with exit code 2" {
    dpbench simulate --ranks 8
    assert_exit 2
    assert_output 'needs --machine'
    dpbench simulate --machine dgx-h10 --ranks 8
    assert_exit 2
    assert_output 'did you mean dgx-h100'
    dpbench simulate "${sim[@]}" --ranks 0
    assert_exit 2
    dpbench simulate "${sim[@]}" --ranks 12
    assert_exit 2
    assert_output 'do not fill nodes'
    dpbench simulate "${sim[@]}" --ranks 8 --set inside.rat=3GB/s
    assert_exit 2
    assert_output 'did you mean "inside.rate"'
    dpbench simulate "${sim[@]}" --ranks 8 --lr 0.1 --bind off
    assert_exit 2
    assert_output 'lr: cannot take effect in a simulation'
    assert_output 'bind: cannot take effect in a simulation'
    dpbench simulate "${sim[@]}" --ranks 8 --device cpu
    assert_exit 2
    dpbench run --device sim --comm shm "${sim[@]}" --ranks 8
    assert_exit 2
    assert_output 'is simulated, and the other is not'
    dpbench run --comm sim --ranks 1 --workload mnist-mlp
    assert_exit 2
    dpbench verify --device sim --machine dgx-h100 --ranks 2
    assert_exit 2
    assert_output 'nothing can be verified'
    dpbench sweep --machine dgx-h100 --ranks 1
    assert_exit 2
    assert_nothing_written
}

@test "simulate: what does not fit an accelerator is skipped with the arithmetic" {
    dpbench simulate --machine dgx-h100 --workload resnet50 --batch-per-rank 4096 --ranks 8 -o out
    [ "$status" -ne 0 ]
    assert_json out/records.jsonl 'd[0]["status"]' skipped
    assert_json out/records.jsonl '"the limit is 74.5 GiB" in d[0]["reason"] and "activations" in d[0]["reason"]' true
    assert_json out/records.jsonl 'd[0]["simulated"]' true
}

@test "simulate: --set is what it says, and what does nothing is reported" {
    "$DPBENCH" simulate "${sim[@]}" --ranks 8 --noise-rank 0 --set inside.rate=1GB/s,inside.nvls-from-ranks=64 -o slow
    "$DPBENCH" simulate "${sim[@]}" --ranks 8 --noise-rank 0 --set inside.rate=900GB/s -o fast
    [ "$(json slow/records.jsonl 'd[0]["samples_step_ns"][0]')" -gt "$(json fast/records.jsonl 'd[0]["samples_step_ns"][0]')" ]
    assert_json fast/records.jsonl '"between.rate" in d[0]["simulation"]["figures_without_effect"]' true
    assert_json slow/records.jsonl '"inside.rate" in d[0]["simulation"]["figures_without_effect"]' false
}

@test "simulate: a trace of virtual time in the format of all traces" {
    "$DPBENCH" simulate "${sim[@]}" --ranks 16 --trace-steps 3 -o out
    python3 "$BATS_TEST_DIRNAME/../../profiles/tests/check_trace.py" out/traces/cell000-repeat0.json
    assert_json out/traces/cell000-repeat0.json 'len([e for e in d["traceEvents"] if e.get("cat") == "step"])' 3
    assert_json out/traces/cell000-repeat0.json '"virtual time" in json.dumps(d["dpbench"])' true
    "$DPBENCH" simulate "${sim[@]}" --ranks 16 --trace-steps 0 -o none
    [ ! -e none/traces ]
}

@test "profile: layers add up to the step, and simulate replays them against the run" {
    dpbench profile --data synthetic --workload mnist-mlp --batch-per-rank 8,16 --steps 20 --warmup 5 \
        --trace-steps 5 --probe-retries 0 -o p.json --folder measured
    assert_exit 0
    assert_json p.json 'd["schema"], d["batches"], d["is_cpu"]' '["dpb.profile/1", [8, 16], true]'
    assert_json p.json 'all(abs(d["data_ns"][b] + d["optimizer_ns"][b] + d["rest_ns"][b] + sum(l["forward_ns"][b] + l["backward_ns"][b] for l in d["layers"]) - d["step_ns"][b]) < 1 for b in (0, 1))' true
    assert_json p.json 'sorted(d["unmapped"])' '["loss.bwd", "loss.fwd"]'
    assert_json p.json 'd["slowest_of"]' '[]' # 15 steps tell of one rank
    assert_json p.json 'all(l["forward_ns"][0] > 0 and l["backward_ns"][0] > 0 for l in d["layers"])' true
    dpbench simulate --profile p.json --against measured -o out
    assert_exit 0
    assert_output 'predicted ms +measured ms +error %'
    assert_output 'median error of 2 cells'
    # A replay of the very cells of the profile has their step times, unless what else runs here made
    # the medians of the layers together longer than the step.
    local most=0.02
    [ "$(json p.json 'all(a + b >= 0 for a, b in zip(d["data_ns"], d["rest_ns"]))')" = true ] || most=1
    assert_json out/records.jsonl "all(abs(r['against']['error_ratio']) < $most for r in d)" true
    assert_json out/records.jsonl '{r["simulation"]["compute"] for r in d} == {"profile"}' true
    grep -q 'Simulated against measured step times' out/report.md
    dpbench report out
    assert_output 'median error of 2 cells'
}

@test "profile: what the slowest of several such ranks takes, as far as its steps tell" {
    dpbench profile --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 101 --warmup 5 \
        --trace-steps 3 --probe-retries 0 -o p.json --folder measured
    assert_exit 0
    assert_output '^slowest of ranks like this one: 2: x [0-9.]+, 4: x [0-9.]+ of the median step$'
    # the mean of the larger of two, from their distribution
    cp measured/records.jsonl one.jsonl
    python3 - <<'PY'
import json
r = json.loads(open("one.jsonl").readline())
x = sorted(r["samples_step_ns"])
m = len(x)
median = (x[(m - 1) // 2] + x[m // 2]) / 2
of = {e["ranks"]: e["over_median"] for e in json.load(open("p.json"))["slowest_of"]}
for ranks in (2, 4):
    mean = sum(v * (((i + 1) / m) ** ranks - (i / m) ** ranks) for i, v in enumerate(x))
    assert abs(of[ranks] - mean / median) < 1e-9, (of, mean / median)
assert of[2] <= of[4] # and 1 <= of[2], but when the steps of half the run are slowed down
PY
}

@test "profile: a measured sweep over ranks and buckets, replayed" {
    DPBENCH="$DPBENCH" run "$BATS_TEST_DIRNAME/../../bench/replay.sh" replay --data synthetic --steps 6 --warmup 3 \
        --probe-retries 0
    assert_exit 0
    assert_output 'median error of 4 cells'
    assert_json replay/simulated/records.jsonl 'all(r["against"]["measured_step_ns"] > 0 for r in d)' true
    # One bucket is ready when the backward pass ends: it hides less than several.
    assert_json replay/simulated/records.jsonl 'max(r["against"]["predicted_step_ns"] for r in d) == [r["against"]["predicted_step_ns"] for r in d if r["axes"]["ranks"] == "2" and r["axes"]["bucket"] == "25MiB"][0]' true
}

@test "profile: what-if on other ranks, networks and precisions" {
    "$DPBENCH" profile --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 8 --warmup 3 \
        --trace-steps 3 --probe-retries 0 -o p.json --folder measured
    dpbench simulate --profile p.json --workload mnist-mlp --batch-per-rank 8 --ranks 1,8 --steps 6 --warmup 3 -o ideal
    assert_exit 0
    assert_json ideal/records.jsonl '[r for r in d if r["ranks"] == 8][0]["warnings"][0]' \
        'simulated on an ideal network: no --machine says what joins the ranks'
    dpbench simulate --profile p.json --machine dgx-a100 --workload mnist-mlp --batch-per-rank 32 --accumulate 2 \
        --strategy horovod --ranks 16 --steps 6 --warmup 3 -o other
    assert_exit 0
    assert_json other/records.jsonl 'any("batch of 32" in w for w in d[0]["warnings"])' true
    dpbench simulate --profile p.json --workload mnist-cnn --ranks 1 -o wrong
    [ "$status" -ne 0 ]
    assert_output 'the profile is of workload "mnist-mlp"'
}

@test "profile: mistakes are named, with exit code 2" {
    dpbench profile --workload mnist-mlp
    assert_exit 2
    assert_output 'needs -o FILE'
    dpbench profile -o p.json --ranks 2
    assert_exit 2
    dpbench profile -o p.json --strategy ddp
    assert_exit 2
    dpbench profile -o p.json --lr 0.1,0.2
    assert_exit 2
    dpbench profile -o p.json --device sim --machine dgx-h100
    assert_exit 2
    assert_output 'nothing can be measured there'
    assert_nothing_written
}
