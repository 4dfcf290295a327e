# Reports are functions of records: from good ones, damaged ones, and without gnuplot.

load helper

# One run for all tests of this file: ranks 1 and 2, two buckets, overlap on and off, a link.
setup_file() {
    shared=$(mktemp -d)
    export shared
    cat >"$shared/sweep.yaml" <<'YAML'
version: 1
name: shown
base: {workload: mnist-mlp, data: synthetic, batch-per-rank: 8, steps: 6, warmup: 2, repeats: 2, link: "10Gbps,5us"}
axes: {ranks: [1, 2], bucket: [256KiB, 4MiB], overlap: [on, off]}
YAML
    "$DPBENCH" sweep "$shared/sweep.yaml" --probe-retries 0 -o "$shared/run" >"$shared/out" 2>&1 || {
        cat "$shared/out" >&2
        return 1
    }
}

teardown_file() {
    rm -rf "$shared"
}

# A copy of the records alone, so that what a report writes is new.
copy_run() {
    mkdir run
    cp "$(find "$shared/run" -name records.jsonl)" run/
    cp "$(find "$shared/run" -name manifest.json)" run/
}

@test "report writes Markdown, HTML and JSON, and prints a table" {
    copy_run
    dpbench report run
    assert_exit 0
    assert_output 'report\.html'
    assert_output 'emulated'
    [ -s run/report.md ]
    [ -s run/report.html ]
    python3 -m json.tool run/report.json >/dev/null
    grep -q '<svg' run/report.html
    grep -qi 'synthetic' run/report.md
    grep -qi 'efficiency' run/report.md
    run grep -n 'NaN' run/report.json
    assert_exit 1
    python3 - run/report.html <<'PY'
import html.parser, sys
class Balanced(html.parser.HTMLParser):
    void = {"meta", "link", "br", "hr", "img", "input", "col", "path", "use", "line", "rect", "circle"}
    def __init__(self):
        super().__init__()
        self.open = []
    def handle_starttag(self, tag, attrs):
        if tag not in self.void:
            self.open.append(tag)
    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open and self.open.pop() == tag, tag
page = Balanced()
page.feed(open(sys.argv[1], encoding="utf-8").read())
assert not page.open, page.open
PY
}

@test "report --json prints the summary" {
    copy_run
    dpbench_stdout report run --json
    assert_exit 0
    printf '%s' "$output" >summary.json
    assert_json summary.json 'd["schema"]' dpb.summary/1
    assert_json summary.json 'len(d["cells"])' 5
    assert_json summary.json 'sorted({c["ranks"] for c in d["cells"]})' '[1, 2]'
}

@test "report -o writes there and leaves the run alone" {
    copy_run
    dpbench report run -o elsewhere
    assert_exit 0
    [ -s elsewhere/report.html ]
    [ "$(find run -type f | wc -l)" -eq 2 ]
}

@test "report -o does not overwrite another run's report" {
    copy_run
    cp -r run other
    dpbench report run -o other
    assert_exit 2
    assert_output 'the folder of another run, whose report would be overwritten'
    dpbench report run -o run
    assert_exit 0
}

@test "without gnuplot there is a warning, and the rest is written" {
    copy_run
    mkdir bin
    PATH=$PWD/bin run "$DPBENCH" report run
    assert_exit 0
    assert_output '(warning|warn).*gnuplot|gnuplot.*not'
    [ -s run/report.md ]
    [ -s run/report.html ]
}

@test "a file cut at any place still gives a report of what is whole" {
    copy_run
    size=$(stat -c %s run/records.jsonl)
    [ "$(wc -l <run/records.jsonl)" -eq 10 ]
    for cut in 1 100 $((size / 3)); do
        copy=cut$cut
        mkdir "$copy"
        cp run/manifest.json "$copy/"
        head -c $((size - cut)) run/records.jsonl >"$copy/records.jsonl"
        dpbench report "$copy"
        assert_exit 0
        assert_output '(cut|torn|incomplete|last line)'
    done
}

@test "damaged and foreign records are refused with file and line" {
    copy_run
    sed -i '2s/"status"/"statsu"/' run/records.jsonl
    dpbench report run
    assert_exit 5
    assert_output 'records\.jsonl.*\b2\b'
    rm -r run
    copy_run
    sed -i '3s/.*/not JSON/' run/records.jsonl
    dpbench report run
    assert_exit 5
    assert_output 'records\.jsonl.*\b3\b'
    rm -r run
    copy_run
    sed -i '1s,dpb.record/1,dpb.record/9,' run/records.jsonl
    dpbench report run
    assert_exit 5
    assert_output 'dpb\.record/9'
}

@test "a report of nothing is refused" {
    mkdir empty
    dpbench report empty
    [ "$status" -eq 3 ] || [ "$status" -eq 5 ]
    assert_output 'empty'
    dpbench report nowhere
    assert_exit 3
    dpbench report
    assert_exit 2
    : >empty/records.jsonl
    dpbench report empty
    assert_exit 5
}

@test "a run in which nothing was ok is reported as such, with exit 5" {
    dpbench run --data synthetic --workload mnist-mlp --steps 2000000 --timeout 1s --ranks 1 \
        --probe-retries 0 -o failed
    assert_exit 4
    dpbench report "$(dirname "$(records_file)")"
    assert_exit 5
    assert_output 'timeout'
}

@test "a report into a full device says so" {
    [ -w /dev/full ] || skip "no /dev/full here"
    copy_run
    run bash -c '"$DPBENCH" report run >/dev/full'
    assert_exit 3
}

@test "records alone are enough, and a file of them can be named" {
    copy_run
    mkdir alone
    cp run/records.jsonl alone/
    dpbench report alone
    assert_exit 0
    refute_output 'error: '
    [ -s alone/report.html ]
    rm alone/report.*
    dpbench report alone/records.jsonl
    assert_exit 0
    [ -s alone/report.html ]
    (cd alone && rm report.* && "$DPBENCH" report records.jsonl && [ -s report.html ])
}

@test "a report that cannot be written does not keep the table back" {
    copy_run
    echo file >blocked
    dpbench report run -o blocked
    assert_exit 3
    assert_output 'ranks +.*step ms'
}

@test "what is no run gets a remedy" {
    mkdir empty
    for run in nowhere empty; do
        dpbench report $run
        assert_exit 3
        assert_output 'hint: '
    done
}

@test "a report of a run whose driver died says that the run is not complete" {
    copy_run
    dpbench report run
    refute_output 'not complete'
    sed -i 's/"state": *"complete"/"state": "running"/' run/manifest.json
    dpbench report run
    assert_exit 0
    assert_output 'warning: .*not complete'
    assert_output 'hint: .*--resume run'
}

@test "a report of several runs names all of their strategies, and what was not compared" {
    for strategy in none local-sgd; do
        dpbench run --data synthetic --workload mnist-mlp --ranks 2 --batch-per-rank 8 --steps 5 \
            --warmup 2 --trace-steps 0 --probe-retries 0 --strategy "$strategy" -o "$strategy"
        assert_exit 0
    done
    dpbench report none local-sgd -o both
    assert_exit 0
    grep -q 'What ran: workload mnist-mlp, strategy none/local-sgd, \|strategy local-sgd/none, ' \
        both/report.md
    grep -q 'identical to the bit after training in 1 of 2 ok records.*; in 1 they were not compared' \
        both/report.md
}
