# helper.bash: what every command-line test loads. DPBENCH names the program under test.
#
# A test starts in an empty folder of its own. Only what bats 1.2 has is used (Ubuntu 22.04).

setup() {
    [ -x "$DPBENCH" ] || {
        echo "DPBENCH must name the program under test, not '$DPBENCH'" >&2
        return 1
    }
    folder=$(mktemp -d)
    cd "$folder" || return 1
}

teardown() {
    [ -z "${background:-}" ] || kill -KILL "$background" 2>/dev/null || true
    cd / && rm -rf "$folder"
}

# Options that make one launch short: little data, made up; no trace unless a test wants one; a busy
# machine repeats nothing.
# shellcheck disable=SC2034 # used by the files that load this
quick=(--data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 6 --warmup 2
    --trace-steps 0 --probe-retries 0)

dpbench() {
    run "$DPBENCH" "$@"
}

# Standard output alone into $output, standard error into the file err.
dpbench_stdout() {
    status=0
    output=$("$DPBENCH" "$@" 2>"$folder/err") || status=$?
}

assert_exit() {
    [ "$status" -eq "$1" ] || {
        printf 'exit status %s, not %s; output:\n%s\n' "$status" "$1" "$output" >&2
        return 1
    }
}

# The output holds a match of the extended regular expression.
assert_output() {
    grep -Eq -e "$1" <<<"$output" || {
        printf 'no match of "%s" in:\n%s\n' "$1" "$output" >&2
        return 1
    }
}

refute_output() {
    if grep -Eq -e "$1" <<<"$output"; then
        printf 'a match of "%s" in:\n%s\n' "$1" "$output" >&2
        return 1
    fi
}

assert_nothing_written() {
    local left
    left=$(find "$folder" -mindepth 1 | head -n 5)
    [ -z "$left" ] || {
        printf 'files were left behind:\n%s\n' "$left" >&2
        return 1
    }
}

# A usage error: exit 2, nothing written, the message names the subject and has a remedy.
assert_usage_error() {
    assert_exit 2 && assert_output 'error: ' && assert_output 'hint: ' && assert_nothing_written
}

# The value of a Python expression over the JSON file (or every line of a JSON Lines file): "d" is
# the document (jsonl: the list of them). Read strictly: no NaN, no infinity, no key twice.
json() {
    python3 -c '
import json, sys
def constant(text):
    sys.exit("%s: %s is no JSON" % (sys.argv[1], text))
def pairs(found):
    keys = [key for key, _ in found]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        sys.exit("%s: keys that are there twice: %s" % (sys.argv[1], ", ".join(sorted(twice))))
    return dict(found)
def strict(text):
    return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
text = open(sys.argv[1]).read()
d = [strict(line) for line in text.splitlines()] if sys.argv[1].endswith(".jsonl") \
    else strict(text)
value = eval(sys.argv[2])
print(value if isinstance(value, str) else json.dumps(value))' "$1" "$2"
}

assert_json() {
    local value
    value=$(json "$1" "$2") || return 1
    [ "$value" = "$3" ] || {
        printf '%s: %s is %s, not %s\n' "$1" "$2" "$value" "$3" >&2
        return 1
    }
}

# The only records file under the folder.
records_file() {
    local found
    found=$(find "$folder" -name records.jsonl)
    [ -f "$found" ] || {
        printf 'not exactly one records.jsonl: %s\n' "$found" >&2
        return 1
    }
    printf '%s\n' "$found"
}

# ---- processes ----

children_of() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        awk -v parent="$1" '{ sub(/\(.*\)/, "name") } $4 == parent { print $1 }' | sort -n
}

# Start the program in the background: its process is $background, its output goes to the file log.
start_dpbench() {
    "$DPBENCH" "$@" >"$folder/log" 2>&1 3>&- &
    background=$!
}

# Wait for it: $status and $output as after run. Killed after the seconds given: by default more than
# a machine with a lot else to do needs, and less than the stall time-out.
finish_dpbench() {
    local seconds=${1:-45} waited=0
    while kill -0 "$background" 2>/dev/null && [ "$waited" -lt $((seconds * 10)) ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    if [ "$waited" -ge $((seconds * 10)) ]; then
        kill -KILL "$background"
        printf 'still running after %s s; output:\n' "$seconds" >&2
        cat "$folder/log" >&2
        return 1
    fi
    status=0
    wait "$background" || status=$?
    background=
    output=$(cat "$folder/log")
}

# CPU time of a process in clock ticks (1/100 s).
cpu_ticks() {
    sed -E 's/^.*\) //' "/proc/$1/stat" 2>/dev/null | awk '{print $12 + $13}'
}

# Wait until the program has `count` ranks or more, whatever they do: $ranks, in order.
wait_for_children() {
    local count=$1 tries=0
    while [ "$tries" -lt 2400 ] && kill -0 "$background" 2>/dev/null; do
        mapfile -t ranks < <(children_of "$background")
        [ "${#ranks[@]}" -lt "$count" ] || return 0
        sleep 0.05
        tries=$((tries + 1))
    done
    printf 'no %s ranks under %s; output:\n' "$count" "$background" >&2
    cat "$folder/log" >&2
    return 1
}

# Wait until the run in a folder has written `count` records: the file is $file.
wait_for_records() {
    local tries=0
    while [ "$tries" -lt 1200 ] && kill -0 "$background" 2>/dev/null; do
        file=$(find "$1" -name records.jsonl 2>/dev/null) || true
        [ -z "$file" ] || [ "$(wc -l <"$file")" -lt "$2" ] || return 0
        sleep 0.1
        tries=$((tries + 1))
    done
    printf 'no %s records in %s; output:\n' "$2" "$1" >&2
    cat "$folder/log" >&2
    return 1
}

# Wait until the program has `count` ranks and each has computed for a while: $ranks, in order.
wait_for_ranks() {
    local count=$1 tries=0 pid busy
    while [ "$tries" -lt 1200 ] && kill -0 "$background" 2>/dev/null; do
        mapfile -t ranks < <(children_of "$background")
        busy=0
        for pid in "${ranks[@]}"; do
            [ "$(cpu_ticks "$pid" || echo 0)" -lt 100 ] 2>/dev/null || busy=$((busy + 1))
        done
        [ "${#ranks[@]}" -ne "$count" ] || [ "$busy" -ne "$count" ] || return 0
        sleep 0.1
        tries=$((tries + 1))
    done
    printf 'no %s busy ranks under %s; output:\n' "$count" "$background" >&2
    cat "$folder/log" >&2
    return 1
}

assert_gone() {
    local pid tries
    for pid in "$@"; do
        tries=0
        while [ -d "/proc/$pid" ] && [ "$tries" -lt 300 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
        [ ! -d "/proc/$pid" ] || {
            printf 'process %s is still there: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
            return 1
        }
    done
}

# ---- file systems ----

# with_mount OPTIONS COMMAND...: in a mount namespace of its own with a tmpfs on $folder/out.
# Skips the test where this is not allowed.
with_mount() {
    local options=$1 map=()
    shift
    [ "$(id -u)" -eq 0 ] || map=(--map-root-user)
    mkdir -p "$folder/out"
    unshare --mount "${map[@]}" mount -t tmpfs -o "$options" tmpfs "$folder/out" 2>/dev/null ||
        skip "a tmpfs cannot be mounted here"
    # shellcheck disable=SC2016
    run unshare --mount "${map[@]}" bash -c '
        mount -t tmpfs -o "$1" tmpfs "$2" || exit 99
        cd "$2" || exit 99
        head -c 1M /dev/zero >filler 2>/dev/null
        cd .. || exit 99
        shift 2
        "$@"' sh "$options" "$folder/out" "$@"
}
