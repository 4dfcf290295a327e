# Histories: dpbench history.

load helper

# Commits c$1 to c$2 with three runs each around the value $3.
add_commits() {
    local i noise
    for ((i = $1; i <= $2; i++)); do
        noise=$((i * 7 % 10))
        printf '%s\n' "$3.$noise" "$3.1$noise" "$3.2$noise" >"c$i.csv"
        dpbench history add "c$i.csv" --commit "c$i"
        assert_exit 0
    done
}

@test "history: trend finds the commit of a change, adding again adds nothing" {
    add_commits 10 29 100
    add_commits 30 49 110
    dpbench history add c49.csv --commit c49
    assert_output '0 runs added, 3 known'
    dpbench_stdout history trend value --metric value --json -o plot
    assert_exit 0
    printf '%s' "$output" >trend.json
    assert_json trend.json '[e["commit"] for e in d["changes"]]' '["c30"]'
    assert_json trend.json 'len(d["points"])' 40
    [ -s plot/trend.dat ]
    dpbench history trend value --metric value
    assert_output '^value of value, 40 commits$'
    assert_output '^c10 +20 +100\.[0-9]+ +- +-'
    assert_output '^c30 +20 +110\.[0-9]+ +\+[0-9.]+ % +0\.00[0-9]'
    refute_output 'not confirmed'
    dpbench history check
    assert_exit 0
}

@test "history: drift against the last release fails, until a release takes the level" {
    add_commits 10 14 100
    dpbench history release c14 --label v1
    assert_exit 2
    dpbench history release c14 --label v1 --reason 'version 1'
    assert_exit 0
    add_commits 20 23 107
    dpbench history drift value --metric value
    assert_exit 1
    assert_output 'since release c14, 4 commits ago: ALARM'
    assert_output 'since c20, and in every one of the 3 commits after it'
    dpbench_stdout history drift value --metric value --json
    assert_exit 1
    printf '%s' "$output" >drift.json
    assert_json drift.json '[d["anchor"], d["anchor_is_release"], d["is_alarm"], d["beyond_since"]]' \
        '["c14", true, true, "c20"]'
    dpbench history release c23 --label v2 --reason 'accepted'
    dpbench history drift value --metric value
    assert_exit 0
}

@test "history: export has every value; no file, no commit and other files are errors" {
    dpbench history list
    assert_exit 3
    printf '1\n2\n' >a.csv
    dpbench history add a.csv
    assert_exit 2
    assert_output 'which commit'
    dpbench history add a.csv --commit abc
    assert_exit 0
    dpbench_stdout history export
    [ "$(wc -l <<<"$output")" -eq 3 ]
    dpbench history export --json -o out.json
    assert_json out.json '[e["value"] for e in d]' '[1.0, 2.0]'
    printf 'this is no database, it is a text of some length' >other.db
    dpbench history list --db other.db
    assert_exit 5
}

@test "runs that are not there make no history" {
    dpbench history add nosuch
    assert_exit 3
    assert_nothing_written
}

@test "what cannot be added makes no history, and adds nothing to one" {
    printf '1\nnan\n' >bad.csv
    printf '1\n2\n' >good.csv
    dpbench history add bad.csv --commit abc
    assert_exit 5
    dpbench history add good.csv
    assert_exit 2
    assert_output 'which commit'
    mkdir empty
    dpbench history add empty
    [ "$status" -ne 0 ]
    [ ! -e history.db ]
    dpbench history add good.csv --commit abc
    assert_exit 0
    dpbench history add good.csv bad.csv --commit def
    assert_exit 5
    dpbench_stdout history export
    [ "$(wc -l <<<"$output")" -eq 3 ]
}

@test "a plot of few commits names them" {
    add_commits 10 11 100
    dpbench history trend value --metric value -o plot
    assert_exit 0
    grep -q "^set xtics rotate by 30 right ('c10' 0, 'c11' 1)" plot/trend.gp
    grep -q '^set xrange \[-0.6:1.6\]' plot/trend.gp
    echo 100 >quoted.csv
    dpbench history add quoted.csv --commit "it's c12"
    dpbench history trend value --metric value -o quoted
    assert_exit 0
    grep -q "^set xtics .*'c11' 1, 'it''s c12' 2)" quoted/trend.gp
}

@test "a history that cannot be opened: where one can be" {
    dpbench run "${quick[@]}" --ranks 1 -o out
    assert_exit 0
    dpbench history add out --db nowhere/h.db
    assert_exit 3
    assert_output 'nowhere/h.db: cannot open'
    assert_output 'hint: --db names a SQLite file in a folder that exists'
}

@test "a plot of a value that does not change shows no noise of rounding" {
    for i in 1 2 3 4; do
        printf '%s\n' 162.4223087 162.4223091 >"c$i.csv"
        dpbench history add "c$i.csv" --commit "c$i"
        assert_exit 0
    done
    dpbench history trend value --metric value -o plot
    assert_exit 0
    grep -qE '^set yrange \[160\.[0-9]+:164\.[0-9]+\]' plot/trend.gp
    # the level lies where its points are
    awk 'NF >= 2 && $1 != "#" { print $2 }' plot/trend.dat | sort -u >values
    [ "$(wc -l <values)" -eq 1 ]
}

@test "a history on a disk that is full or cannot be written: what helps" {
    unshare -m true 2>/dev/null || skip "no permission to mount"
    printf '1\n2\n' >a.csv
    dpbench history add a.csv --commit abc
    assert_exit 0
    mkdir place
    run unshare -m bash -c 'mount -t tmpfs -o size=8k tmpfs place || exit 77
        exec "$DPBENCH" history add a.csv --commit abc --db place/h.db'
    [ "$status" -ne 77 ] || skip "no tmpfs can be mounted here"
    assert_exit 3
    assert_output 'hint: check the space'
    run unshare -m bash -c 'mount -t tmpfs tmpfs place && cp history.db place &&
        mount -o remount,ro place || exit 77
        exec "$DPBENCH" history list --db place/history.db'
    [ "$status" -ne 77 ] || skip "nothing can be mounted read-only here"
    assert_exit 3
    assert_output 'hint: --db names a SQLite file in a folder .*, also to be read'
}
