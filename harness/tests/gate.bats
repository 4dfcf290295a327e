#!/usr/bin/env bats
# dpbench gate: decisions on runs that are there, on runs it makes, and what it writes.

load helper

# A side made of one real record: side NAME FACTOR [RUNS] [EDIT]. Steps are scaled, with a noise of
# 0.3 % from run to run that the name seeds; EDIT is Python on the record r of run i.
side() {
    mkdir -p "$1"
    python3 - "$@" <<'PY'
import json, random, sys
name, factor, runs = sys.argv[1], float(sys.argv[2]), int((sys.argv + [6] * 3)[3])
edit = sys.argv[4] if len(sys.argv) > 4 else ""
random.seed(name)
lines = []
for i in range(runs):
    r = json.loads(open("real/records.jsonl").readline())
    r["run_id"], r["repeat"], r["order"] = name, i, i
    r["probe"]["flagged"] = False
    scale = factor * (1 + random.gauss(0, 0.003))
    r["samples_step_ns"] = [int(1e6 * scale * (1 + 0.001 * (s % 5))) for s in range(40)]
    exec(edit)
    lines.append(json.dumps(r, separators=(",", ":")) + "\n")
open(name + "/records.jsonl", "w").writelines(lines)
PY
}

# One launch with just enough steps for a gate.
short=(--data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 20 --warmup 2
    --trace-steps 0 --probe-retries 0)

real() {
    "$DPBENCH" run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 20 --warmup 2 \
        --trace-steps 2 --probe-retries 0 -o real >/dev/null 2>&1
}

@test "equal sides pass, a slower one fails, a better one passes and says so" {
    real
    side a 1 && side b 1 && side c 1.1 && side d 0.9
    dpbench gate b --baseline a
    assert_exit 0
    assert_output '^PASS$'
    dpbench gate c --baseline a
    assert_exit 1
    assert_output '^FAIL  *(step-time|throughput)'
    dpbench gate d --baseline a
    assert_exit 0
    assert_output 'refresh the baseline'
}

@test "times on a machine without free cores are inconclusive, unless that is allowed" {
    real
    side a 1 && side b 1.1 6 'r["probe"]["flagged"] = i == 4'
    dpbench gate b --baseline a
    assert_exit 5
    assert_output 'busy in 1 of 12 runs'
    dpbench gate b --baseline a --allow-diff busy
    assert_exit 1
    assert_output 'allowed to differ: busy'
    # a saved baseline still knows of its own
    side c 1 6 'r["probe"]["flagged"] = i < 2' && side d 1.1
    id=$("$DPBENCH" baseline save c --name main)
    dpbench gate d --baseline "baselines/main/$id.json"
    assert_exit 5
    assert_output "busy in 2 of 12 runs \(2 of the baseline's 6\)"
    # where the runs tell nothing anyway it is told, too: more of them would not help
    side e 1 2 'r["probe"]["flagged"] = True'
    dpbench gate e --baseline a
    assert_exit 5
    assert_output 'INCONCLUSIVE: .*; the machine was busy in 2 of 8 runs'
}

@test "few runs are inconclusive, and --inconclusive says what that is" {
    real
    side a 1 2 && side b 1 2
    dpbench gate b --baseline a
    assert_exit 5
    assert_output '^INCONCLUSIVE$'
    dpbench gate b --baseline a --inconclusive fail --junit r.xml --github
    assert_exit 1
    # what ends the gate is red in a CI system, too
    assert_output '^::error title=dpbench gate::.*INCONCLUSIVE'
    grep -Eq '<testsuite name="dpbench gate" tests="[0-9]+" failures="[1-9][0-9]*" errors="0"' r.xml
    grep -q '<failure message="INCONCLUSIVE' r.xml
    dpbench gate b --baseline a --inconclusive pass --junit r.xml --github
    assert_exit 0
    refute_output '^::error'
    grep -q 'failures="0" errors="0"' r.xml
}

@test "no baseline, no sides, a baseline that is not there, the run itself: never a pass" {
    real
    side a 1
    dpbench gate a
    assert_exit 2
    assert_output 'nothing to be compared with'
    dpbench gate a --baseline none
    assert_exit 3
    dpbench gate a --baseline a
    assert_exit 5
    assert_output 'same record'
    : >empty
    dpbench gate a --baseline empty
    assert_exit 5
}

@test "a failed run, a missing rank's record and a loss that is not finite are errors" {
    real
    side a 1
    side b 1 6 'r.update(status="failed", reason="rank 1 died", samples_step_ns=[]) if i == 2 else 0'
    dpbench gate b --baseline a
    assert_exit 5
    assert_output 'a run is failed: rank 1 died'
    side c 1 6 'r["verified"]["loss_finite"] = i != 3'
    dpbench gate c --baseline a
    assert_exit 5
    assert_output 'not finite'
    side e 1 6 'r["samples_step_ns"] = r["samples_step_ns"][:12]'
    dpbench gate e --baseline a
    assert_exit 5
    assert_output 'steps after'
}

@test "what was made differently is refused, unless it is allowed, which the report names" {
    real
    side a 1
    side b 1 6 'r["fingerprint"] = "other"; r["config"]["lr"] = 7; r["series"] += " x"'
    dpbench gate b --baseline a
    assert_exit 5
    assert_output 'REFUSED'
    assert_output 'lr: 0.0[0-9]*, 7'
    dpbench gate b --baseline a --allow-diff lr,fingerprint --json r.json
    assert_exit 0
    assert_output 'allowed to differ: lr'
    assert_json r.json 'len(d["allowed_differences"])' 2
    refute_output 'no run tells'
    dpbench gate b --baseline a --allow-diff learning-rate,fingerprint
    assert_exit 5
    assert_output '"learning-rate" was to be allowed to differ, but no run tells'
    side e 1 6 'r["config"]["new_option"] = 1; r["series"] += " z"'
    dpbench gate e --baseline a
    assert_exit 5
    assert_output 'new-option: \(none\), 1'
    dpbench gate e --baseline a --allow-diff absent
    assert_exit 0
    refute_output 'no run tells'
    dpbench gate e --baseline a --allow-diff absent --json -
    assert_exit 2
    assert_output '/dev/stdout is the standard output'
    side c 1 6 'r["config"]["workload"] = "renamed"; r["series"] += " y"'
    dpbench gate c --baseline a
    assert_exit 5
    assert_output 'no such cell'
}

@test "sides one after the other are told, and refused when order is required" {
    real
    side a 1 6 'r["time_utc"] = "2026-12-01T10:0%d:00.000Z" % i'
    side b 1 6 'r["time_utc"] = "2026-12-01T11:0%d:00.000Z" % i'
    dpbench gate b --baseline a
    assert_exit 0
    assert_output 'before all of the other'
    dpbench gate b --baseline a --require-interleaved
    assert_exit 5
    assert_output 'REFUSED'
}

@test "counters must agree exactly, and only chosen metrics decide" {
    real
    side a 1
    side b 1.3 6 'r["communication"]["wire_bytes_per_step"] += 4'
    dpbench gate b --baseline a --metrics wire-bytes,collectives
    assert_exit 1
    assert_output 'differs by 4'
    dpbench gate b --baseline a --metrics wire-bytes,collectives --margin wire-bytes=4
    assert_exit 0
    assert_output 'FAIL \(advisory\)  *step-time'
    dpbench gate b --baseline a --metrics wire-byte
    assert_exit 2
    dpbench gate b --baseline a --margin step-time-median=lots
    assert_exit 2
}

@test "a baseline that is too old is refused where its age is limited" {
    real
    side a 1 6 'r["time_utc"] = "2026-0%d-01T10:00:00.000Z" % (1 + i)'
    side b 1
    dpbench gate b --baseline a --baseline-days 30000
    assert_exit 0
    dpbench gate b --baseline a --baseline-days 1
    assert_exit 5
    assert_output 'the oldest run of the baseline is [0-9]+\.[0-9] days old'
    id=$("$DPBENCH" baseline save a --name main)
    dpbench gate b --baseline "baselines/main/$id.json" --baseline-days 1
    assert_exit 5
    assert_output 'oldest run'
    printf '%s\n' 1 2 3 >values.csv
    dpbench gate values.csv --baseline values.csv --baseline-days 1
    assert_exit 5
    assert_output 'does not say when'
    printf 'step-time-median: "<= 10ms"\n' >targets.yaml
    dpbench gate b --targets targets.yaml --baseline-days 1
    assert_exit 2
    assert_output 'cannot take effect without --baseline'
}

@test "targets: kept, broken, undecidable, with the records' hashes" {
    real
    side a 1
    printf 'step-time-median: "<= 10ms"\ncost-per-epoch: "<= 1000 USD"\nprice: "2 USD/h"\n' >good.yaml
    dpbench gate a --targets good.yaml --json r.json
    assert_exit 0
    line=$(head -n 1 a/records.jsonl | tr -d '\n' | sha256sum | cut -c1-64)
    # the hash is that of the record as dpbench writes it, which is the line itself
    assert_json r.json 'd["targets"][0]["records_sha256"][0]' "$line"
    printf 'step-time-median: "<= 10us"\n' >bad.yaml
    dpbench gate a --targets bad.yaml
    assert_exit 1
    printf 'energy-per-sample: "<= 1 J"\n' >unknown.yaml
    dpbench gate a --targets unknown.yaml
    assert_exit 1
    assert_output 'no record can decide it: it needs a meter'
    printf 'step-time-p99: "<= 1s"\nefficiency: ">= 0.5"\nloss-parity: "<= 1"\n' >more.yaml
    dpbench gate a --targets more.yaml
    assert_exit 1
    assert_output 'step-time-p99: FAIL: no record can decide it: it needs 100 steps or more'
    assert_output 'efficiency: FAIL: no record can decide it: it needs a cell of fewer ranks'
    assert_output 'loss-parity: FAIL: no record can decide it: it needs --baseline, or'
    printf 'step-time-median: "<= soon"\n' >none.yaml
    dpbench gate a --targets none.yaml
    assert_exit 2
    dpbench gate a --targets missing.yaml
    assert_exit 3
}

@test "JSON, JUnit, Markdown, annotations and Prometheus are well-formed" {
    real
    side a 1 && side b 1.1
    dpbench gate b --baseline a --json r.json --junit r.xml --markdown r.md --prometheus r.prom \
        --github
    assert_exit 1
    assert_output '^::error title=dpbench gate::'
    assert_json r.json 'd["schema"], d["outcome"]' '["dpb.gate/1", "FAIL"]'
    run python3 -c '
import sys, xml.etree.ElementTree as e
root = e.parse("r.xml").getroot()
suite = root.find("testsuite")
cases = suite.findall("testcase")
assert int(suite.get("tests")) == len(cases) > 5
assert int(suite.get("failures")) == len(suite.findall("testcase/failure")) > 0
assert all(c.get("name") and c.get("classname") for c in cases)
import re
for line in open("r.prom"):
    assert re.fullmatch(r"# (HELP|TYPE) .*|[a-z_]+\{[a-z]+=\".*\"\} [-+0-9.e]+", line.rstrip()), line
assert len(open("r.md", "rb").read()) <= 65536
'
    assert_exit 0
    dpbench gate b --baseline a --json nowhere/r.json
    assert_exit 3
}

@test "the gate tests itself, calibrates and plans" {
    real
    side a 1 12
    dpbench gate a --self-test
    assert_exit 0
    assert_output 'FAIL .*step-time-median'
    dpbench gate a --self-test --inject 0.1%
    assert_exit 1
    assert_output 'cannot fail'
    dpbench gate calibrate a --json c.json
    assert_output 'may block'
    # the steps of a side go round in fives, of which every run has as many of each
    assert_output "a run's median is known to 0\.0[0-9]* % .*longer runs would not help"
    assert_json c.json '0 < d["cells"][0]["se_step"] < d["cells"][0]["sd_run"] / 2' true
    side few 1 5
    dpbench gate calibrate few
    assert_exit 5
    assert_output '10 are needed'
    dpbench gate plan --sd 1% --mde 2% --power 0.9
    assert_exit 0
    assert_output '^6 runs a side'
    dpbench gate plan --from a
    assert_exit 0
    dpbench gate plan
    assert_exit 2
}

@test "measure interleaves fresh processes A B B A, and decides on pairs" {
    dpbench gate measure "${short[@]}" --runs 3 --candidate-options '--bucket 1MiB' \
        --metrics buckets -o m --json r.json
    assert_exit 0
    assert_json m/records.jsonl '[r["gate"]["side"][0] for r in d]' '["b", "c", "c", "b", "b", "c"]'
    assert_json m/records.jsonl 'len({r["device"]["ranks"][0]["pid"] for r in d})' 6
    assert_json m/records.jsonl 'd[1]["gate"]["differs"]' '["bucket"]'
    assert_json r.json 'd["findings"][0]["order"]' pairs
    assert_json r.json 'd["candidate"]' 'candidate (this build, --bucket 1MiB)'
    assert_output '^candidate \(this build, --bucket 1MiB\) against baseline \(this build\)$'
    assert_json r.json 'd["allowed_differences"]' '["bucket: 26214400, 1048576"]'
}

@test "measure: its folder is no other run's; SIGTERM ends the launch that is at work" {
    start_dpbench gate measure --data synthetic --workload mnist-mlp --batch-per-rank 8 \
        --steps 2000000 --warmup 2 --trace-steps 0 --probe-retries 0 --runs 3 -o m
    for _ in $(seq 300); do
        launch=$(children_of "$background")
        [ -z "$launch" ] || [ -z "$(children_of "$launch")" ] || break
        sleep 0.1
    done
    ranks=$(children_of "$launch")
    run "$DPBENCH" run "${short[@]}" -o m
    assert_exit 2
    assert_output '"m" already holds a run'
    kill -TERM "$background"
    finish_dpbench || {
        kill -KILL "$launch"
        return 1
    }
    assert_exit 130
    # shellcheck disable=SC2086 # one or several
    assert_gone $launch $ranks
}

# Programs whose launches are real and whose step times are made up: program NAME NS. They differ
# from launch to launch by 0.5 %, and do not hang on how busy this machine is.
program() {
    cat >"$1" <<PROGRAM
#!/usr/bin/env python3
import json, random, subprocess, sys
out = sys.argv[sys.argv.index("-o") + 1]
if subprocess.run(["$DPBENCH"] + sys.argv[1:]).returncode != 0:
    sys.exit(1)
record = json.loads(open(out + "/records.jsonl").readline())
random.seed(out.split("/")[-1])
step_ns = $2 * (1 + random.gauss(0, 0.005))
record["samples_step_ns"] = [int(step_ns * (1 + 0.001 * (s % 5))) for s in range(40)]
record["probe"]["flagged"] = False
open(out + "/records.jsonl", "w").write(json.dumps(record) + "\\n")
PROGRAM
    chmod +x "$1"
}

@test "measure: a slower build is a failure that pairs show, an equal one is not" {
    program fast 1e6 && program slow 1.2e6 && program same 1e6
    dpbench gate measure "${short[@]}" --runs 3 --baseline-build fast --candidate-build ./slow \
        --metrics step-time-median -o w --json r.json
    assert_exit 1
    assert_output 'FAIL  *step-time-median'
    assert_json r.json 'd["findings"][0]["order"]' pairs
    dpbench gate measure "${short[@]}" --runs 3 --baseline-build fast --candidate-build same \
        --metrics step-time-median --margin step-time-median=10% -o e
    assert_exit 0
}

# A repository whose builds are scripts that run the program under test.
repository() {
    git init -q repo && cd repo
    git config user.name test && git config user.email test@example.org
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$DPBENCH" >dpbench && chmod +x dpbench
    cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(fake NONE)
file(COPY dpbench DESTINATION ${CMAKE_BINARY_DIR}/harness/cli)
add_custom_target(dpbench)
CMAKE
    git add . && git commit -q -m first
    printf '#!/bin/sh\nexec "%s" "$@" --bucket 1MiB\n' "$DPBENCH" >dpbench
    git commit -q -a -m second
    echo 'message(FATAL_ERROR "broken on purpose")' >>CMakeLists.txt
    git commit -q -a -m third
    cd ..
}

# Nothing is left where the revisions were built, and git knows of no worktree but its own.
assert_cleaned() {
    [ -z "$(ls -A scratch)" ] || {
        ls -A scratch >&2
        return 1
    }
    [ "$(git -C repo worktree list | wc -l)" -eq 1 ]
}

@test "measure builds two revisions, compares them, and leaves nothing behind" {
    command -v git >/dev/null && command -v cmake >/dev/null || skip "git or cmake is missing"
    repository && mkdir scratch
    export TMPDIR=$PWD/scratch
    cd repo
    dpbench gate measure "${short[@]}" --runs 3 --baseline-revision HEAD~2 \
        --candidate-revision HEAD~1 --metrics buckets --allow-diff bucket -o ../m --json ../r.json
    cd ..
    assert_exit 0
    commit=$(git -C repo rev-parse --short=12 HEAD~1)
    assert_output "^candidate \\(revision HEAD~1, $commit\\) against baseline \\(revision HEAD~2, "
    assert_json m/records.jsonl '{(r["gate"]["side"], r["config"]["bucket_bytes"]) for r in d} == {("baseline", 26214400), ("candidate", 1048576)}' true
    assert_cleaned
}

@test "measure says which revision is none, or does not build" {
    command -v git >/dev/null && command -v cmake >/dev/null || skip "git or cmake is missing"
    repository && mkdir scratch
    export TMPDIR=$PWD/scratch
    cd repo
    dpbench gate measure "${short[@]}" --candidate-revision nosuch -o ../a
    assert_exit 3
    assert_output 'no revision "nosuch"'
    dpbench gate measure "${short[@]}" --candidate-revision HEAD -o ../b
    assert_exit 3
    assert_output 'cannot configure the revision'
    grep -q 'broken on purpose' ../b/candidate-build.log
    cd ..
    assert_cleaned
    # TMPDIR may lie in a checkout of ours.
    GIT_CEILING_DIRECTORIES=$(dirname "$folder") dpbench gate measure "${short[@]}" --candidate-revision HEAD -o c
    assert_exit 3
    assert_output 'not a git repository'
}

@test "measure refuses what cannot be measured" {
    dpbench gate measure "${quick[@]}" --candidate-build nowhere -o m
    assert_exit 3
    dpbench gate measure "${quick[@]}" --candidate-options '--no-such-option 1' -o n
    assert_exit 2
    assert_output 'hint: '
    dpbench gate b --baseline a --workload mnist-mlp
    assert_exit 2
}
