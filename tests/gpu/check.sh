#!/usr/bin/env bash
# Everything that one NVIDIA GPU can show, in under eight minutes: builds dpbench with its CUDA module,
# runs it, prints a table last. docs/gpu.md says what its lines mean.
#
#   tests/gpu/check.sh                    all parts
#   tests/gpu/check.sh --only ops,losses  only these (and the build)
#   tests/gpu/check.sh --build DIR        a build folder that is there already; built when it is not
#   tests/gpu/check.sh --out DIR          results; default $OUT, else build/gpu/results
#   tests/gpu/check.sh --limit SECONDS    no part may take longer
#   tests/gpu/check.sh --list             the parts, and what each may take
#
# A part that fails or hangs does not stop the ones after it. Exit status: 0 nothing failed, 1 something
# did, 2 usage, 3 nothing could be run here (the reason is printed for each part).
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
budget_s=470

# name, limit in seconds, what it shows
parts=(
    "build:180:the module for this GPU, and the tests"
    "doctor:20:what this machine is fit for"
    "ops:100:every operator against the reference, in every type"
    "losses:90:losses of training steps against the CPU device's"
    "nccl:30:a communicator of one rank"
    "ceiling:40:large matrix products: the ceiling that shares are taken of"
    "steps:150:step times, beside PyTorch's where it can be imported"
    "trace:40:share of kernels in a step, cost of tracing"
    "teardown:60:nothing is left behind"
    "overlap:90:communication behind computing, with 2 GPUs and more"
)

# workload, precision, batch per rank, further options of both sides
cases=(
    "resnet50 bf16 64 --image-size 224"
    "resnet50 bf16 128 --image-size 224"
    "resnet50 bf16 256 --image-size 224"
    "resnet50 fp16 128 --image-size 224"
    "bert-base bf16 64 --sequence 128"
    "bert-large bf16 32 --sequence 128"
    "dlrm-small bf16 2048 --table-rows 10000"
    "gpt2-small bf16 8 --sequence 1024"
)

# workload and options that make a step small enough for the CPU device
small=(
    "mnist-mlp" "mnist-cnn" "cifar-resnet20"
    "resnet18 --image-size 64" "resnet50 --image-size 64" "vgg16 --image-size 32"
    "dlrm-small --table-rows 200" "dlrm-mlperf --table-rows-max 200"
    "bert-base --sequence 16 --dropout 0" "gpt2-small --sequence 16 --dropout 0"
)

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; }

say() { printf 'check: %s\n' "$*" >&2; }

# row PART WHAT RESULT VERDICT: a line of the table; verdict ok, FAILED, skipped or (a figure) -
row() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$out/rows.tsv"; }

# why_no_gpu: says why, and succeeds, when there is certainly none; the driver's own word comes later.
why_no_gpu() {
    local device
    for device in "${DPB_GPU_DEVICE_FILE:-/dev/nvidiactl}" /dev/dxg; do
        [ ! -e "$device" ] || return 1
    done
    echo "no NVIDIA GPU: neither ${DPB_GPU_DEVICE_FILE:-/dev/nvidiactl} nor /dev/dxg is there"
}

gpu_count() { nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true; }

figures() { "$python" "$here/figures.py" "$@"; }

dpbench() { "$build/harness/cli/dpbench" "$@"; }

# no_time SECONDS: is less than that left to this part? What it has not begun is then skipped, instead
# of being ended half way and called a failure.
no_time() { [ $((part_limit_s - SECONDS)) -lt "$1" ]; }

# ---- the parts: each runs in a process of its own, in $out/<name>; status 77 skips ----

skip() {
    echo "SKIP: $*"
    exit 77
}

part_build() {
    local capability architectures=()
    if ! command -v cmake >/dev/null; then
        [ -x "$build/harness/cli/dpbench" ] || skip "cmake is not installed, and $build holds no build"
        echo "cmake is not installed: $build as it is"
        return 0
    fi
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
    [[ ! $capability =~ ^[0-9]+\.[0-9]$ ]] ||
        architectures=("-DDPBENCH_CUDA_ARCHITECTURES=${capability/./}-real")
    cmake -S "$top" -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDPBENCH_CUDA=ON -DDPB_MICRO=OFF \
        "${architectures[@]}" &&
        cmake --build "$build" --parallel "$(nproc)" --target gpu_check
}

part_doctor() {
    dpbench doctor | tee doctor.txt
    dpbench list devices | tee devices.txt
}

part_ops() {
    local program status name result=0 names=() processes=() i
    for program in "$build"/kernels/cuda/tests/test_gpu_*; do
        [ -x "$program" ] || skip "no test_gpu_* in $build: the module was not built"
        name=${program##*/test_gpu_}
        timeout --kill-after=5 80 "$program" >"$name.log" 2>&1 &
        names+=("$name") processes+=($!)
    done
    for i in "${!names[@]}"; do
        name=${names[$i]} status=0
        wait "${processes[$i]}" || status=$?
        case $status in
        0) row ops "$name" "$(grep -c '       OK ' "$name.log") tests" ok ;;
        77) row ops "$name" "$(grep -m 1 '^SKIP: ' "$name.log")" skipped ;;
        *)
            row ops "$name" "$(grep -c '  FAILED  \] test_' "$name.log") failures, status $status" FAILED
            grep -E 'ERROR|FAILED|error:' "$name.log" | head -n 40
            result=1
            ;;
        esac
    done
    return $result
}

# train NAME WORKLOAD OPTIONS...: one run with its records in NAME/
train() {
    local name=$1 workload=$2
    shift 2
    dpbench run --workload "$workload" --ranks 1 --data synthetic --probe-retries 0 -o "$name" "$@" \
        >"$name.log" 2>&1
}

part_losses() {
    local case workload options name device failed=0 result=0
    for case in "${small[@]}"; do
        read -r workload options <<<"$case"
        name=$workload failed=0
        if no_time 8; then
            row losses "$name" "no time left of $part_limit_s s" skipped
            continue
        fi
        for device in cpu cuda; do
            # shellcheck disable=SC2086 # options are words
            train "$name-$device" "$workload" $options --device "$device" --strategy none \
                --batch-per-rank 8 --steps 8 --warmup 2 --trace-steps 0 || failed=1
        done
        if [ $failed -ne 0 ] || ! figures losses "$name-cpu" "$name-cuda" >"$name.txt" 2>&1; then
            row losses "$name" "$(tail -n 1 "$name.txt" 2>/dev/null || echo 'a run failed')" FAILED
            tail -n 5 "$name-cpu.log" "$name-cuda.log"
            result=1
        else
            row losses "$name" "$(cat "$name.txt")" ok
        fi
    done
    return $result
}

part_nccl() {
    train one mnist-cnn --device cuda --comm nccl --strategy ddp --batch-per-rank 64 --steps 20 \
        --warmup 5 --trace-steps 0 || {
        tail -n 20 one.log
        return 1
    }
    row nccl "one rank" "$(figures step one)" ok
}

part_ceiling() {
    local program=$build/kernels/cuda/tests/gpu_ceiling
    [ -x "$program" ] || skip "$program was not built"
    "$program" | tee ceiling.jsonl || return 1
    figures ceiling ceiling.jsonl >rows.txt || return 1
    while IFS=$'\t' read -r what result; do row ceiling "$what" "$result" -; done <rows.txt
}

# One case of dpbench and of PyTorch, both on the GPU.
step_case() {
    local workload=$1 precision=$2 batch=$3 result=0 name
    shift 3
    name=$workload-$precision-$batch
    if no_time 15; then
        row steps "$name" "no time left of $part_limit_s s" skipped
        return 0
    fi
    local dropout=()
    case $workload in bert* | gpt2*) dropout=(--dropout 0) ;; esac
    if train "$name" "$workload" --device cuda --strategy none --precision "$precision" \
        --batch-per-rank "$batch" --warmup 12 --steps 62 --trace-steps 0 "${dropout[@]}" "$@"; then
        row steps "$name" "$(figures step "$name" --ceiling "$out/ceiling/ceiling.jsonl" \
            --program "$build/harness/cli/dpbench")" ok
    else
        row steps "$name" "$(tail -n 1 "$name.log")" FAILED
        tail -n 20 "$name.log"
        result=1
    fi
    torch_case "$name" "$workload" "$precision" "$batch" "$@" || result=1
    return $result
}

torch_case() {
    local name=$1 workload=$2 precision=$3 batch=$4 script start=$work/start options=()
    shift 4
    [ -n "$torch" ] || return 0
    if no_time 15; then
        row steps "$name, PyTorch" "no time left of $part_limit_s s" skipped
        return 0
    fi
    case $workload in
    resnet50) script=resnet50_torch.py options=(--lr 0.0125 --momentum 0.9 --weight-decay 0.0001) ;;
    bert-*) script=bert_torch.py options=(--size "${workload#bert-}" --lr 0.0001 --weight-decay 0.01) ;;
    dlrm-small) script=dlrm_torch.py options=(--lr 0.1 --weight-decay 0) ;;
    gpt2-small) script=gpt2_torch.py options=(--lr 0.0001 --weight-decay 0.01) ;;
    esac
    if "$build/bench/peers/dpb_peer_start" "$workload" 1 "$batch" "$start" "$@" >"$name-torch.log" 2>&1 &&
        timeout --kill-after=5 $((part_limit_s - SECONDS - 5)) \
            "$python" -W ignore "$top/bench/peers/$script" --device cuda --precision "$precision" \
            --batch "$batch" --warmup 12 --steps 50 --start "$start" "${options[@]}" "$@" \
            >"$name-torch.jsonl" 2>>"$name-torch.log"; then
        row steps "$name, PyTorch" "$(figures torch "$name-torch.jsonl" "$name")" -
    else
        row steps "$name, PyTorch" "$(tail -n 1 "$name-torch.log")" FAILED
        tail -n 5 "$name-torch.log"
        return 1
    fi
    rm -f "$start"
}

part_steps() {
    local case result=0 words
    torch=$("$python" -W ignore -c 'import torch; print(torch.__version__, torch.cuda.is_available())' \
        2>/dev/null) || torch=
    if [[ $torch == *True ]]; then
        row steps "PyTorch" "${torch% *}" -
    else
        row steps "PyTorch" "${torch:+without CUDA}${torch:-cannot be imported by $python}" skipped
        torch=
    fi
    for case in "${cases[@]}"; do
        read -r -a words <<<"$case"
        step_case "${words[@]}" || result=1
    done
    return $result
}

part_trace() {
    train traced resnet50 --device cuda --strategy none --precision bf16 --image-size 224 \
        --batch-per-rank 128 --warmup 8 --steps 28 --trace-steps 5 || {
        tail -n 20 traced.log
        return 1
    }
    figures trace traced >rows.txt || {
        row trace "resnet50" "$(tail -n 1 rows.txt)" FAILED
        return 1
    }
    while IFS=$'\t' read -r what result verdict; do row trace "$what" "$result" "$verdict"; done <rows.txt
    ! cut -f 3 rows.txt | grep -q FAILED
}

part_teardown() {
    local left sanitizer status=0
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -n "$sanitizer" ] && no_time 20; then
        row teardown "compute-sanitizer" "no time left of $part_limit_s s" skipped
    elif [ -n "$sanitizer" ]; then
        timeout --kill-after=5 $((part_limit_s - SECONDS - 8)) "$sanitizer" --tool memcheck --leak-check full --error-exitcode 9 --target-processes all \
            "$build/harness/cli/dpbench" run --device cuda --workload mnist-mlp --strategy none \
            --ranks 1 --data synthetic --batch-per-rank 8 --steps 4 --warmup 2 --trace-steps 0 \
            --probe-retries 0 -o sanitized >sanitizer.log 2>&1 || status=$?
        if [ $status -eq 0 ]; then
            row teardown "compute-sanitizer" "$(grep -m 1 'ERROR SUMMARY' sanitizer.log)" ok
        elif [ $status -eq 124 ] || [ $status -eq 137 ]; then # it makes all slower by a factor
            row teardown "compute-sanitizer" "not done in its time" skipped
        else
            row teardown "compute-sanitizer" "$(grep -m 1 'ERROR SUMMARY' sanitizer.log)" FAILED
            tail -n 20 sanitizer.log
            return 1
        fi
    else
        row teardown "compute-sanitizer" "not installed" skipped
    fi
    left=$(pgrep -f "^$build/harness/cli/dpbench" | wc -l)
    if [ "$left" -ne 0 ]; then
        row teardown "processes" "$left of dpbench are left" FAILED
        return 1
    fi
    row teardown "processes" "none is left" ok
}

part_overlap() {
    local count
    count=$(gpu_count)
    [ "$count" -ge 2 ] || skip "$count GPU, 2 are needed"
    dpbench sweep --device cuda --comm nccl --workload resnet50 --precision bf16 --image-size 224 \
        --batch-per-rank 64 --strategy ddp --ranks "1,$count" --overlap on,off --data synthetic \
        --warmup 10 --steps 40 --trace-steps 3 --probe-retries 0 -o sweep >sweep.log 2>&1 || {
        tail -n 20 sweep.log
        return 1
    }
    figures overlap sweep >rows.txt || return 1
    while IFS=$'\t' read -r what result; do row overlap "$what" "$result" -; done <rows.txt
}

# ---- running them ----

# run_part NAME LIMIT TEXT
run_part() {
    local name=$1 limit=$2 text=$3 status=0 start=$SECONDS left=$((budget_s - SECONDS)) reason rows
    rows=$(grep -c "^$name"$'\t' "$out/rows.tsv" || true)
    if [ $left -lt 5 ]; then
        row "$name" "$text" "no time left of $budget_s s" skipped
        return 0
    fi
    [ "$limit" -le $left ] || limit=$left
    [ "$limit" -le "$most" ] || limit=$most
    rm -rf "${out:?}/$name" "$out/$name.log" # of an earlier check
    mkdir -p "$out/$name"
    timeout --kill-after=10 "$limit" bash "${BASH_SOURCE[0]}" --part "$name" --limit "$limit" \
        --build "$build" --out "$out" >"$out/$name.log" 2>&1 </dev/null || status=$?
    say "$name: status $status, $((SECONDS - start)) s ($out/$name.log)"
    case $status in
    0) [ "$(grep -c "^$name"$'\t' "$out/rows.tsv" || true)" -gt "$rows" ] ||
        row "$name" "$text" "$((SECONDS - start)) s" ok ;;
    77)
        reason=$(grep -m 1 '^SKIP: ' "$out/$name.log")
        row "$name" "$text" "${reason#SKIP: }" skipped
        ;;
    124 | 137) row "$name" "$text" "ran past $limit s" FAILED ;;
    *) awk -F '\t' -v part="$name" '$1 == part && $4 == "FAILED" { found = 1 } END { exit !found }' \
        "$out/rows.tsv" ||
        row "$name" "$text" "status $status: $out/$name.log" FAILED ;;
    esac
}

# skip_all REASON: nothing can be run
skip_all() {
    local entry name text
    for entry in "${parts[@]}"; do
        IFS=: read -r name _ text <<<"$entry"
        wants "$name" || continue
        printf '%-9s SKIP: %s\n' "$name" "$1"
    done
    exit 3
}

# The end of the log of each part that failed: who borrows a GPU may get only this back.
failures() {
    local name
    while read -r name; do
        [ -s "$out/$name.log" ] || continue
        printf '\n---- %s, the end of %s\n' "$name" "$out/$name.log"
        tail -n 30 "$out/$name.log" | cut -c 1-300
    done < <(awk -F '\t' '$4 == "FAILED" && !seen[$1]++ { print $1 }' "$out/rows.tsv")
}

wants() { [ -z "$only" ] || [[ ,$only, == *",$1,"* ]]; }

table() {
    echo
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c |
            sed 's/^ */GPU: /'
    fi
    date -u '+%Y-%m-%dT%H:%M:%SZ'
    sort -s -t $'\t' -k 1,1 "$out/rows.tsv" | awk -F '\t' '
        { printf "%-9s  %-34s  %-8s  %s\n", $1, $2, $4, $3; count[$4]++ }
        END { printf "%d ok, %d failed, %d skipped\n", count["ok"], count["FAILED"], count["skipped"] }'
}

main() {
    local entry name limit text why known
    out=${OUT:-$top/build/gpu/results} build=$top/build/gpu/build only='' part='' most=$budget_s
    while [ $# -gt 0 ]; do
        case $1 in
        --only | --build | --out | --limit | --part)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            case $1 in --limit) most=$2 ;; *) printf -v "${1#--}" '%s' "$2" ;; esac
            shift 2
            ;;
        --list)
            for entry in "${parts[@]}"; do
                IFS=: read -r name limit text <<<"$entry"
                printf '%-9s %4s s  %s\n' "$name" "$limit" "$text"
            done
            exit 0
            ;;
        --help) usage; exit 0 ;;
        *) say "unknown option \"$1\""; usage >&2; exit 2 ;;
        esac
    done
    [[ $most =~ ^[1-9][0-9]*$ ]] || { say "--limit takes seconds, not \"$most\""; exit 2; }
    for name in ${only//,/ }; do
        known=0
        for entry in "${parts[@]}"; do [ "${entry%%:*}" != "$name" ] || known=1; done
        [ $known -eq 1 ] || { say "there is no part \"$name\": --list names them"; exit 2; }
    done
    if [ -n "$part" ]; then
        out=$(cd "$out" && pwd) work=$out/work
        part_limit_s=$most
        mkdir -p "$work" && cd "$out/$part" || exit 3
        "part_$part"
        exit
    fi

    ! why=$(why_no_gpu) || skip_all "$why"
    command -v "$python" >/dev/null || skip_all "$python is not installed (PYTHON names another)"
    mkdir -p "$out" && : >"$out/rows.tsv" || exit 3
    IFS=: read -r name limit text <<<"${parts[0]}"
    run_part "$name" "$limit" "$text"
    if [ ! -x "$build/harness/cli/dpbench" ]; then
        failures
        table
        exit 1
    fi
    # The driver's word, by way of the device itself.
    rm -rf "$out/probe"
    why=$(dpbench run --device cuda --workload mnist-mlp --ranks 1 --strategy none --data synthetic \
        --steps 4 --warmup 2 --trace-steps 0 --probe-retries 0 -o "$out/probe" 2>&1) ||
        [[ $why != *"not available here"* ]] ||
        skip_all "$(grep -m 1 'not available here' <<<"$why")"
    for entry in "${parts[@]:1}"; do
        IFS=: read -r name limit text <<<"$entry"
        ! wants "$name" || run_part "$name" "$limit" "$text"
    done
    failures
    table | tee "$out/table.txt"
    ! cut -f 4 "$out/rows.tsv" | grep -qx FAILED
}

main "$@"
