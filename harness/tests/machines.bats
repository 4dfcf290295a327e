# Machine profiles: dpbench list machines.

load helper

# A machine file without the lines that match $1, with the lines of standard input after it.
machine() {
    cat >base.yaml <<'END'
version: 1
name: ours
summary: 'ours'
accelerator: A100-SXM4-80GB
kind: gpu
accelerators-per-node: 8
memory: {value: 80GB, source: 'data sheet'}
memory-rate: {value: 2039GB/s, source: 'data sheet'}
compute.fp32: {value: 19.5TFLOPS, source: 'data sheet'}
compute.bf16: {value: 312TFLOPS, source: 'data sheet'}
inside.rate: {value: 300GB/s, source: 'data sheet'}
END
    { grep -v -e "$1" base.yaml; cat; } >machine.yaml
    rm base.yaml
}

@test "list machines: those of the program, with accelerator, links, price and its date" {
    dpbench list machines
    assert_exit 0
    assert_output '^dgx-a100 +8 x A100-SXM4-80GB +80GB +300GB/s +8 x 200Gbps +[0-9]+ '
    assert_output '^h200-p5en .* 5.407USD/h +before 2025-01-01$'
    dpbench_stdout list machines --json
    assert_exit 0
    printf '%s' "$output" >out.json
    assert_json out.json 'len(d) >= 13, all(f["source"] for m in d for f in m["figures"])' '[true, true]'
    assert_json out.json '[f["value"] for m in d if m["name"] == "dgx-a100" for f in m["figures"] if f["key"] == "between.rate"]' '[25000000000.0]'
}

@test "list machines NAME: every figure with its source, or that it is assumed, and what is not given" {
    dpbench list machines aws-p4d
    assert_exit 0
    assert_output '^between.rate +100Gbps  source  .*nccl#527'
    assert_output '^inside.latency +3us  assumed '
    assert_output '^all-reduce +16 ranks, 2 nodes, 1 size \(1.00 GiB\); NVIDIA/nccl#527$'
    assert_output '^not given: .*noise.tail-share'
    dpbench_stdout list machines aws-p4d --json
    printf '%s' "$output" >out.json
    assert_json out.json 'd["name"], len(d["curves"])' '["aws-p4d", 4]'
    dpbench list machines dgx-a10
    assert_exit 2
    assert_output 'did you mean dgx-a100'
    dpbench list devices cpu
    assert_exit 2
    assert_output 'only a list of machines takes a name'
}

@test "a machine file: a wrong unit, bits for bytes and bytes for bits, with their places" {
    machine inside.rate <<<"inside.rate: {value: 2400Gbps, source: s}"
    dpbench list machines ./machine.yaml
    assert_exit 2
    assert_output 'error: ./machine.yaml:11:22: inside.rate "2400Gbps" is in bits'
    machine nothing <<<"between.nics: {value: 4, source: s}
between.rate: {value: 25GB/s, source: s}"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'error: machine.yaml:13:23: between.rate "25GB/s" is in bytes: .*write Gbps'
    machine bf16 <<<"compute.bf16: {value: 312, source: s}"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:11:23: compute.bf16: "312": a rate of flops is a number with GFLOPS'
    machine bf16 <<<"compute.bf16: {value: 624TFLOPS, source: s}"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:11:23: .*is it the peak with sparsity'
}

@test "a machine file: a missing figure, a figure without source, no accelerators" {
    machine memory-rate </dev/null
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'error: machine.yaml:[0-9]+:[0-9]+: "memory-rate" is missing: rate of that memory'
    machine inside.rate </dev/null
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:.*8 accelerators per node, and "inside.rate" is missing'
    machine nothing <<<"power: {value: 400W}"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:12:8: power: it needs a source, or assumed'
    machine accelerators-per-node <<<"accelerators-per-node: 0"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:11:24: accelerators-per-node: "0" is not a number from 1'
    assert_output 'hint: docs/machines.md'
    machine nothing <<<"curves:
  - {collective: all-reduce, ranks: 16, nodes: 4, source: s, points: [[1MiB, 1ms]]}"
    dpbench list machines machine.yaml
    assert_exit 2
    assert_output 'machine.yaml:13:5: a curve of 16 ranks on 4 nodes: .* are on 2'
    dpbench list machines ./nowhere.yaml
    assert_exit 3
    assert_output 'nowhere.yaml'
}

@test "a machine file: an unknown accelerator and an undated price are warned of, with their places" {
    machine ^accelerator: <<<"accelerator: Z9000
price: {value: 2USD/h, source: 'our contract'}"
    dpbench list machines machine.yaml
    assert_exit 0
    assert_output 'warning: machine.yaml:11:14: nobody here knows an accelerator "Z9000"'
    assert_output 'warning: machine.yaml:12:[0-9]*:? ?the price has no date'
    assert_output 'hint: add date: '
    machine nothing <<<"price: {value: 2USD/h, source: 'our contract', date: 2026-11-30}"
    dpbench list machines machine.yaml
    assert_exit 0
    refute_output 'warning'
    assert_output '^price +2USD/h +source +our contract, 2026-11-30$'
}

@test "calibrate: a profile of what was measured, which gives the measured times back; errors are told" {
    dpbench comm --sizes 64B..1MiB:x4 --iterations 20 --ranks 2,3 -o comm
    assert_exit 0
    local steps=(--data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 14 --warmup 2
        --trace-steps 0 --probe-retries 0 --threads-per-rank 1)
    dpbench run "${steps[@]}" --ranks 1 -o one
    assert_exit 0
    dpbench run "${steps[@]}" --ranks 2 -o two
    assert_exit 0
    dpbench calibrate --comm comm --run one,two -o machine.yaml --name ours
    assert_exit 0
    assert_output '^  inside.rate .* largest busbw of dpbench comm comm/records.jsonl: shm direct, fp32, blocking calls, 20[0-9-]+$'
    assert_output '^  compute.fp32 .* sustained in both passes, 1 record, .*one, two'
    assert_output '^  noise.common .*one, two'
    assert_output '^  all of them: median [0-9.]+ %, worst [0-9.]+ %$'
    assert_output '^  mnist-mlp +measured +[0-9.]+ ms, predicted +[0-9.]+ ms: '
    assert_output '^  contention.inside: no pair of cells'
    refute_output 'whose ranks do not have'
    dpbench list machines ./machine.yaml
    assert_exit 0
    assert_output '^all-reduce +3 ranks, 1 node, 8 sizes from 64 B to 1.00 MiB; dpbench comm comm/records.jsonl'
    refute_output 'assumed'
    dpbench comm --device sim --machine ./machine.yaml --ranks 2,3 --sizes 64B..1MiB:x4 -o again
    assert_exit 0
    json comm/records.jsonl '[r["time_ns"]["p50"] for r in d]' >measured
    json again/records.jsonl '[r["time_ns"]["mean"] for r in d]' >simulated
    python3 - <<'END'
import json
measured, simulated = (json.load(open(f)) for f in ("measured", "simulated"))
assert len(measured) == 16 and all(abs(a - b) < 0.51 for a, b in zip(measured, simulated))
END
    assert_json again/records.jsonl '{r["origin"] for r in d} == {"measured"}' true
    dpbench_stdout calibrate --comm comm --run one,two -o machine.yaml --json
    assert_exit 0
    printf '%s' "$output" >out.json
    assert_json out.json '[c["held_out"] for c in d["curves"]], len(d["steps"])' '[[3, 3], 2]'
    dpbench run "${quick[@]}" --ranks 1 --threads-per-rank 2 -o threads
    dpbench calibrate --run two,threads -o machine.yaml
    assert_exit 0
    assert_output '^  1 record of steps whose ranks do not have 1 thread$'
    assert_json out.json '0 <= d["curves_median_error"] <= d["curves_worst_error"]' true
}

@test "calibrate: what nothing was measured for is assumed and told; what is no measurement is refused" {
    dpbench comm --sizes 64B,1MiB --iterations 5 --ranks 2 -o comm
    dpbench calibrate --comm comm -o machine.yaml
    assert_exit 0
    assert_output '^  compute.fp32 .* ASSUMED: no training steps were given'
    assert_output 'all of them: n/a'
    dpbench list machines ./machine.yaml
    assert_exit 0
    assert_output '^not given: .*noise.rank'
    dpbench comm --device sim --machine dgx-a100 --sizes 1MiB -o simulated
    dpbench calibrate --comm simulated -o never.yaml
    assert_exit 5
    assert_output 'nothing to calibrate from'
    dpbench run "${quick[@]}" --ranks 1 -o run
    dpbench calibrate --comm run -o never.yaml
    assert_exit 5
    assert_output '"run/records.jsonl" has no records of `dpbench comm`'
    dpbench calibrate --comm nowhere -o never.yaml
    assert_exit 3
    assert_output 'nowhere'
    dpbench calibrate --comm comm -o missing/machine.yaml
    assert_exit 3
    [ ! -e never.yaml ]
}
