#!/usr/bin/env bats
# dpbench plan: the question, the answer, the report.

load helper

# A small network on few accelerators: a plan in a blink.
plan=(plan --workload cifar-resnet20 --machine dgx-a100 --ranks 8,16,32 --batch-per-rank 128
    --strategy ddp --bucket 1MiB,25MiB --samples 50000 --epochs 200)

machine() { # a copy of a machine that comes with the program, edited by sed
    sed -E "$1" "$BATS_TEST_DIRNAME/../../profiles/machines/dgx-a100.yaml" >small.yaml
}

# What the plan found, without what was asked: the options and the answer.
findings() {
    json "$1/report.json" 'json.dumps([d["options"], d["answer"], d["sensitivity"]], sort_keys=True)'
}

# assert_moves OPTION...: with these options more (or instead), the findings are others. Options that
# stand in $plan are replaced.
assert_moves() {
    local words=() skip=0 word
    for word in "${plan[@]}"; do
        if [ "$skip" -eq 1 ]; then
            skip=0
        elif [[ " $* " == *" $word "* && $word == --* ]]; then
            skip=1
        else
            words+=("$word")
        fi
    done
    dpbench "${words[@]}" "$@" -o "$folder/moved"
    assert_exit 0
    [ "$(findings moved)" != "$(findings still)" ] || {
        printf '%s moves nothing\n' "$*" >&2
        return 1
    }
    rm -r moved
}

@test "the answer comes first, then the table, then where the report is" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    assert_output '^[0-9]+ accelerators in [0-9]+ nodes? of dgx-a100, strategy ddp with buckets of [0-9]+MiB, batch 128 per accelerator: .* (minutes|seconds), efficiency [0-9.]+ %, [0-9.]+ USD, [0-9.]+ kWh\.$'
    assert_output '^- It fits in memory: .* of 74\.5 GiB; up to [0-9]+ samples per accelerator do\.$'
    assert_output '^\* dgx-a100 +[0-9]+ +ddp'
    assert_output 'Simulated, nothing was measured here'
    assert_output 'report: out/report\.md'
    head -n 1 out/report.md | grep -qx '# Capacity plan: plan'
    for plot in time cost pareto breakdown; do [ -s "out/plots/$plot.svg" ]; done
    assert_json out/report.json 'd["schema"]' dpb.plan/1
    assert_json out/report.json 'd["answer"]["met"]' true
}

@test "messages below the smallest measured size are told apart from what lies beyond it" {
    # aws-p4d has 8 to 32 accelerators at 1 GiB; buckets are smaller, 64 accelerators are 2 x as many
    dpbench plan --workload resnet50 --batch-per-rank 64 --machine aws-p4d --ranks 8,64 \
        --strategy ddp --bucket 25MiB --samples 1000000 --epochs 1 --efficiency 0.3 -o out
    assert_exit 0
    assert_json out/report.json '[o["extrapolated_by"] for o in d["options"]]' '[1.0, 2.0]'
    assert_json out/report.json 'all(o["extrapolated_below"] > 1000 for o in d["options"])' true
    grep -Eq '^- aws-p4d: network times are extrapolated, up to x2 beyond what was measured\.$' out/report.md
    grep -Eq '^- aws-p4d: messages are as small as 1/[0-9]+ of the smallest size that was measured;' out/report.md
    grep -Eq '^\| aws-p4d .*\| 8 \|.*\| /[0-9]+ \|$' out/report.md
    grep -Eq '^\| aws-p4d .*\| 64 \|.*\| x2\.0 /[0-9]+ \|$' out/report.md
    dpbench "${plan[@]}" --deadline 10min -o near
    assert_exit 0
    grep -Eq '^\| dgx-a100 .*\| no \|$' near/report.md
}

@test "plots have the targets as lines with a name and a value, within their axes" {
    dpbench "${plan[@]}" --deadline 10min --budget 3000USD --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    grep -q "10 with lines .* title 'deadline: 10 minutes'" out/plots/time.gp
    grep -q "3000 with lines .* title 'budget: 3000 USD'" out/plots/cost.gp
    grep -q 'deadline: 10 minutes' out/plots/time.svg
    grep -q '>3000<\|> 3000<' out/plots/cost.svg # the axis reaches it
}

@test "a step is the mean of whole periods: local SGD averages in few of them" {
    dpbench plan --workload cifar-resnet20 --machine dgx-a100 --ranks 8,32 --batch-per-rank 128 \
        --strategy local-sgd --sync-every 48 --samples 50000 --epochs 200 --efficiency 0.1 -o out
    assert_exit 0
    assert_json out/report.json 'all(o["steps_simulated"] % 48 == 0 for o in d["options"])' true
}

@test "an option that varies is told of every row, and of the answer" {
    dpbench plan --workload bert-large --precision bf16 --strategy horovod --compression none,fp16 \
        --batch-per-rank 64 --machine dgx-a100,aws-p4d --ranks 8,32 --samples-to-quality 1e6 \
        --efficiency 0.7 -o out
    assert_exit 0
    assert_output ', strategy horovod, compression=(none|fp16), batch 64'
    assert_output '^. aws-p4d +8 +horovod none '
    assert_output '^. aws-p4d +32 +horovod fp16 '
    assert_json out/report.json '[o["settings"] for o in d["options"] if o["machine"] == "aws-p4d"]' \
        '["compression=none", "compression=fp16"]'
    assert_json out/report.json 'd["question"]["compression"]' '["none", "fp16"]'
    grep -q '^| horovod compression=none | [a-z]* | 64 |' out/report.md
    grep -q '^| horovod compression=fp16 | [a-z]* | 64 |' out/report.md
}

@test "JSON and Markdown have the same numbers" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    python3 - <<'PY'
import json, re
d = json.load(open("out/report.json"))
text = open("out/report.md").read()
rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()
        if line.startswith("|")]
head = next(r for r in rows if r[0] == "machine" and "samples/s" in r)
unit = {"minutes": 60, "hours": 3600, "days": 86400}
name = next(h for h in head if h in unit)
table = rows[rows.index(head) + 2:][:len(d["options"])]
assert len(table) == len(d["options"])
losses = next(r for r in rows if "computing ms" in r)
losses_of = {row[losses.index("GPUs")]: dict(zip(losses, row))
             for row in rows[rows.index(losses) + 2:][:len(table)]}
def close(shown, value):
    shown = shown.split(" (")[0]
    digits = len(shown.split(".")[1]) if "." in shown else 0
    assert abs(float(shown) - value) <= 0.5000001 * 10 ** -digits, (shown, value)
for row, o in zip(table, d["options"]):
    cell = dict(zip(head, row))
    assert int(cell["GPUs"]) == o["accelerators"]
    close(cell["step ms"], o["step_ns"] / 1e6)
    close(cell["p99 ms"], o["step_p99_ns"] / 1e6)
    close(cell["eff. %"], 100 * o["efficiency"])
    close(cell["samples/s"], o["samples_per_s"])
    close(cell[name], o["wall_s"] / unit[name])
    close(cell["cost USD"], o["cost"])
    close(cell["energy kWh"], o["energy_kwh"])
    for part in ("computing", "small batch", "strategy", "latency", "bandwidth", "stragglers"):
        key = {"computing": "ideal_ns"}.get(part, part.replace(" ", "_") + "_ns")
        close(losses_of[cell["GPUs"]][part + " ms"], o["breakdown"][key] / 1e6)
assert d["answer"]["text"] in text.replace("\\", "")
for warning in d["warnings"]:
    assert warning.split("*")[0][:60] in text.replace("\\", ""), warning
PY
}

@test "figures of an option fit together" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    python3 - <<'PY'
import json, math
d = json.load(open("out/report.json"))
for o in d["options"]:
    same = lambda a, b: math.isclose(a, b, rel_tol=1e-9)
    assert o["steps"] == math.ceil(50000 * 200 / o["global_batch"])
    assert o["global_batch"] == 128 * o["accelerators"]
    assert same(o["useful_s"], o["steps"] * o["step_ns"] / 1e9)
    assert same(o["wall_s"], o["useful_s"] / o["goodput"])
    assert same(o["cost"], o["accelerators"] * 2.95 * o["wall_s"] / 3600)
    assert same(o["energy_kwh"], o["accelerators"] * 0.4 * o["wall_s"] / 3600)
    assert same(o["samples_per_s"], o["global_batch"] * 1e9 / o["step_ns"])
    assert o["step_low_ns"] <= o["step_ns"] <= o["step_high_ns"] and o["step_ns"] <= o["step_p99_ns"]
    parts = o["breakdown"]
    assert all(v >= 0 for v in parts.values())
    assert math.isclose(sum(parts.values()), o["step_ns"], rel_tol=0.02), (parts, o["step_ns"])
    assert same(sum(o["network_time_by_origin"].values()), 1)
assert sum(r["chosen"] for r in d["alternatives"]) == 1
assert [(r["figure"], round(r["change"], 9)) for r in d["sensitivity"]] == [
    (f, c) for f in ("bandwidth of the network", "latency of the network", "delays of ranks", "price")
    for c in (-0.2, 0.2)]
PY
}

@test "the HTML needs nothing else and is well formed" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    python3 - <<'PY'
from html.parser import HTMLParser
text = open("out/report.html").read()
void = {"meta", "br", "img", "hr", "link", "input", "stop", "use", "path", "circle", "rect"}
class Check(HTMLParser):
    stack = []
    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe"), tag
        for key, value in attrs:
            assert key != "src" and not (key.endswith("href") and (value or "").startswith("http"))
        if tag not in ("meta",):
            self.stack.append(tag)
    def handle_startendtag(self, tag, attrs):
        pass
    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, tag
check = Check()
check.feed(text)
assert not check.stack, check.stack
assert text.startswith("<!DOCTYPE html>") and text.count("<svg") == 4
PY
}

@test "the same seed gives the same plan, another seed another" {
    dpbench "${plan[@]}" --deadline 10min -o still
    dpbench "${plan[@]}" --deadline 10min -o again
    [ "$(findings still)" = "$(findings again)" ]
    dpbench "${plan[@]}" --deadline 10min --seed 2 -o other
    [ "$(findings still)" != "$(findings other)" ]
}

@test "every input moves the output" {
    # long enough for checkpoints
    plan=("${plan[@]/#200/200000}" --price 2.95USD/h@2026-11-30)
    dpbench "${plan[@]}" --deadline 30d -o still
    assert_exit 0
    assert_moves --deadline 30d --workload resnet18
    assert_moves --deadline 30d --machine aws-p5
    assert_moves --deadline 30d --ranks 8,16
    assert_moves --deadline 30d --batch-per-rank 64
    assert_moves --deadline 30d --accumulate 2
    assert_moves --deadline 30d --strategy naive,ddp --bucket 25MiB
    assert_moves --deadline 30d --bucket 25MiB
    assert_moves --deadline 30d --optimizer adamw
    assert_moves --deadline 30d --samples 60000
    assert_moves --deadline 30d --epochs 100
    assert_moves --deadline 30d --price 3USD/h@2026-11-30
    assert_moves --deadline 30d --throughput 20000
    assert_moves --deadline 30d --tf32 on
    assert_moves --deadline 30d --reserve 20GiB
    assert_moves --deadline 30d --checkpoint 20s
    assert_moves --deadline 30d --checkpoint-size 10GB
    assert_moves --deadline 30d --checkpoint-rate 1MB/s
    assert_moves --deadline 30d --restart 1h
    assert_moves --deadline 30d --mtbf 10h
    assert_moves --deadline 1s
    assert_moves --deadline 30d --budget 1USD
    assert_moves --efficiency 99%
    assert_moves --step-p99 1us
}

@test "critical batch: more samples for larger batches" {
    words=(plan --workload cifar-resnet20 --machine dgx-a100 --ranks 8,32 --batch-per-rank 128
        --strategy ddp --deadline 1h --samples-to-quality 10000000)
    dpbench "${words[@]}" -o out
    assert_exit 0
    assert_json out/report.json '[o["steps"] for o in d["options"]]' '[9766.0, 2442.0]'
    grep -q 'Without --critical-batch' out/report.md
    dpbench "${words[@]}" --critical-batch 1024 --quality "91 % top-1" -o out
    assert_exit 0
    # samples (1 + 1024 / 1024) and (1 + 4096 / 1024)
    assert_json out/report.json '[o["steps"] for o in d["options"]]' '[19532.0, 12208.0]'
    assert_json out/report.json 'd["question"]["targets"]["quality"]' '91 % top-1'
}

@test "targets that nothing meets: by how much, and what would do" {
    dpbench "${plan[@]}" --deadline 1s --budget 0.01USD --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    assert_output '^Nothing that was asked about meets all targets\. Nearest: '
    assert_output 'It misses the target for the training time by [0-9.]+ %: .* instead of '
    assert_output 'instead of 1 seconds'
    assert_output 'It would do with deadline '
    assert_json out/report.json 'd["answer"]["met"]' false
}

@test "a budget where the machine that fits has no price: its cost is not known, and no number" {
    machine 's/^memory: \{value: 80GB/memory: {value: 1GB/; s/^name: .*/name: small/'
    dpbench "${plan[@]/dgx-a100/./small.yaml,dgx-a100}" --budget 100USD \
        --price small=2.95USD/h@2026-11-30 -o out
    assert_exit 0
    assert_output 'It misses the target for the cost by an unknown share: what is not known instead'
    refute_output '\bnan\b'
    refute_output 'It would do with'
}

@test "what pure data parallel cannot hold: sharding is named" {
    machine 's/^memory: \{value: 80GB/memory: {value: 9GB/'
    words=(plan --workload bert-large --precision bf16 --machine ./small.yaml --ranks 8,64
        --batch-per-rank 4 --samples 1000000 --epochs 1 --deadline 10d)
    dpbench "${words[@]}" --strategy ddp,fsdp -o out
    assert_exit 0
    assert_output 'strategy fsdp'
    assert_output 'Pure data parallel does not fit: ddp needs .*; fsdp divides'
    dpbench "${words[@]}" --strategy ddp -o out
    assert_exit 0
    assert_output '^Nothing that was asked about fits in memory\.'
    assert_output 'With the same batch, sharding needs: zero1 .*fsdp .*\(fits\)'
    assert_json out/report.json 'd["answer"]["fits"]' false
}

@test "a batch that is too large: the one that fits is named" {
    machine 's/^memory: \{value: 80GB/memory: {value: 9GB/'
    dpbench plan --workload resnet50 --machine ./small.yaml --ranks 8 --batch-per-rank 512 \
        --strategy ddp --samples 1000000 --epochs 1 --deadline 10d -o out
    assert_exit 0
    assert_output 'at most [0-9]+ fit: give a smaller --batch-per-rank'
    fits=$(json out/report.json 'int(d["options"][0]["largest_batch"])')
    dpbench plan --workload resnet50 --machine ./small.yaml --ranks 8 --batch-per-rank "$fits" \
        --strategy ddp --samples 1000000 --epochs 1 --deadline 10d -o out
    assert_json out/report.json 'd["answer"]["fits"]' true
    dpbench plan --workload resnet50 --machine ./small.yaml --ranks 8 \
        --batch-per-rank "$((fits + 1))" --strategy ddp --samples 1000000 --epochs 1 \
        --deadline 10d -o out
    assert_json out/report.json 'd["answer"]["fits"]' false
}

@test "what the slowest of many accelerators adds is told, as far as 4096" {
    dpbench "${plan[@]}" --deadline 10min -o out
    assert_exit 0
    grep -Eq 'the slowest of 32 accelerators makes a step about [0-9.]+ % longer by itself, of 4096 [0-9.]+ %' out/report.md
    assert_json out/report.json 'len([w for w in d["warnings"] if "the slowest of" in w])' 1
    [ "$(grep -c 'of their steps take' out/report.md)" -eq 0 ] # the machine has no rare delays
    machine '/^noise.rank:/a noise.tail-share: {value: 0.01, source: test}\nnoise.tail-mean: {value: 0.5, source: test}'
    dpbench "${plan[@]/dgx-a100/./small.yaml}" --deadline 10min -o rare
    grep -q 'ranks differ by 1 %, and 1 % of their steps take on average 50 % longer' rare/report.md
}

@test "the question is told with the units that it was asked in" {
    dpbench "${plan[@]}" --deadline 10min --budget 300USD --efficiency 0.7 --step-p99 80ms \
        --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    grep -qxF '| target: deadline | 10 minutes |' out/report.md
    grep -qxF '| target: budget | 300 USD |' out/report.md
    grep -qxF '| target: efficiency | 70.0 % |' out/report.md
    grep -qxE '\| target: step-p99 \| 80\.0+ ms \|' out/report.md
    [ "$(grep -c '_reason' out/report.md)" -eq 0 ]
}

@test "the p4d trap: two nodes look fine, four do not" {
    dpbench "${plan[@]/dgx-a100/aws-p4d}" --efficiency 50% -o out
    assert_exit 0
    grep -q '2 nodes look fine and 4 do not: all-reduce reaches 57.2 GB/s with 2 nodes and 29.6' out/report.md
}

@test "prices: without a date a warning, without any a reason" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h -o out
    assert_exit 0
    grep -q 'the price of 2.95 USD/h has no date' out/report.md
    dpbench "${plan[@]}" --deadline 10min -o out
    assert_exit 0
    assert_json out/report.json 'd["options"][0]["cost"]' null
    assert_json out/report.json 'd["options"][0]["cost_reason"]' 'no price is known for this machine'
    grep -q 'no price is known, so it has no cost' out/report.md
}

@test "every figure of the machine is in the table of sources" {
    dpbench "${plan[@]}" --deadline 10min --price 2.95USD/h@2026-11-30 -o out
    assert_exit 0
    python3 - <<'PY'
import json
d = json.load(open("out/report.json"))
rows = {r["figure"]: r for r in d["provenance"]}
assert rows["price"]["kind"] == "given" and rows["price"]["date"] == "2026-11-30"
assert rows["inside.latency"]["kind"] == "assumed" and rows["memory"]["kind"] == "published"
assert rows["all-reduce of 8 on 1 node"]["kind"] == "measured"
assert all(r["source"] for r in d["provenance"])
PY
}

@test "a machine is chosen among several" {
    dpbench "${plan[@]/dgx-a100/dgx-a100,dgx-h100,aws-p4d}" --deadline 10min \
        --price dgx-a100=3USD/h@2026-11-30,dgx-h100=9USD/h@2026-11-30,aws-p4d=0.5USD/h@2026-11-30 \
        -o out
    assert_exit 0
    assert_output '^[0-9]+ accelerators in [0-9]+ nodes? of aws-p4d, '
    assert_json out/report.json 'sorted({o["machine"] for o in d["options"]})' \
        '["aws-p4d", "dgx-a100", "dgx-h100"]'
}

@test "numbers that fill no nodes are left out, and told" {
    dpbench "${plan[@]/8,16,32/4,8,12,16}" --deadline 10min -o out
    assert_exit 0
    assert_json out/report.json '[o["accelerators"] for o in d["options"]]' '[4, 8, 16]'
    grep -q '12 accelerators are not whole nodes of 8' out/report.md
}

@test "a plan file, and the command line over it" {
    cat >scale.yaml <<'YAML'
version: 1
name: scale
base: {workload: cifar-resnet20, machine: dgx-a100, batch-per-rank: 128, samples: 50000, epochs: 200,
       price: 2.95USD/h@2026-11-30}
axes: {ranks: [8, 16], strategy: [ddp, naive], bucket: [1MiB, 25MiB]}
targets: {deadline: 10min, efficiency: ">= 50%"}
YAML
    dpbench plan scale.yaml --ranks 8,32 -o out
    assert_exit 0
    assert_json out/report.json '[d["name"], d["question"]["targets"]["efficiency"]]' '["scale", 0.5]'
    assert_json out/report.json '[o["accelerators"] for o in d["options"]]' '[8, 32]'
    sed -i 's/efficiency: /efficency: /' scale.yaml
    dpbench plan scale.yaml -o out2
    assert_exit 2
    assert_output 'a plan has no target "efficency"'
    assert_output 'did you mean "efficiency"'
    sed -i 's/efficency: ">=/efficiency: "<=/' scale.yaml
    dpbench plan scale.yaml -o out3
    assert_exit 2
    assert_output 'target efficiency: "<= 50%": .*at least'
    sed -i 's/efficiency: "<=/efficiency: ">=/; s/deadline: 10min/deadline: ">= 10min"/' scale.yaml
    dpbench plan scale.yaml -o out4
    assert_exit 2
    assert_output 'target deadline: ">= 10min": .*at most'
}

@test "what takes no effect is told" {
    machine 's/^mtbf-node:.*//'
    dpbench "${plan[@]/dgx-a100/./small.yaml}" --deadline 10min --checkpoint 10s -o out
    assert_exit 0
    grep -q -e '--checkpoint takes no effect: no mean time between failures is known' out/report.md
    dpbench "${plan[@]}" --deadline 10min --checkpoint 10s --checkpoint-size 1GB -o out
    grep -q -e '--checkpoint-size takes no effect beside --checkpoint' out/report.md
}

@test "mistakes in the question" {
    refuse() {
        dpbench "${plan[@]}" "$@"
        assert_usage_error || {
            printf 'after %s\n' "$*" >&2
            return 1
        }
    }
    refuse
    refuse --deadline 2020-01-01
    refuse --deadline soon
    refuse --budget -5USD
    refuse --deadline 1d --budget 5EUR
    refuse --budget 500USD # no price
    refuse --efficiency 2
    refuse --deadline 1d --price 2.95
    refuse --deadline 1d --price other=2.95USD/h
    refuse --deadline 1d --throughput -1
    refuse --deadline 1d --throughput 1e12
    refuse --deadline 1d --quality 76
    refuse --deadline 1d --critical-batch 100
    refuse --deadline 1d --samples-to-quality 1000
    refuse --deadline 1d --fusion-threshold 1MiB
    refuse --deadline 1d --steps 4
    refuse --deadline 1d --mtbf 0s
    plan=("${plan[@]/8,16,32/0}")
    refuse --deadline 1d
    assert_output 'ranks'
    plan=("${plan[@]/dgx-a100/dgx-a1000}")
    plan=("${plan[@]/#0/8}")
    refuse --deadline 1d
    assert_output 'dgx-a1000'
    assert_output 'dgx-a100'
}

@test "no machine, or nothing said about how long" {
    dpbench plan --workload cifar-resnet20 --samples 100 --epochs 1 --deadline 1d
    assert_usage_error
    assert_output 'dgx-a100'
    dpbench plan --workload cifar-resnet20 --machine dgx-a100 --samples 100 --deadline 1d
    assert_usage_error
}

@test "a strategy that trains otherwise is told" {
    dpbench plan --workload cifar-resnet20 --machine dgx-a100 --ranks 8 --samples 100000 --epochs 1 \
        --deadline 1d --strategy local-sgd -o out
    assert_exit 0
    grep -q 'local-sgd lets replicas differ' out/report.md
}

@test "packs of mirrored on accelerators" {
    dpbench plan --workload cifar-resnet20 --machine dgx-a100 --ranks 8 --samples 100 --epochs 1 \
        --deadline 1d --strategy mirrored --num-packs 1,4 -o out
    assert_exit 0
}

@test "the folder of a run is not overwritten" {
    mkdir out
    touch out/records.jsonl
    dpbench "${plan[@]}" --deadline 10min -o out
    assert_exit 2
    assert_output 'holds the records of a run'
    [ ! -e out/report.md ]
}
