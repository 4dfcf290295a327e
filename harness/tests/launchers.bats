# Ranks that mpirun, srun or somebody else started: what is refused, and what works on one machine.
# Real hosts: tests/hosts.
load helper

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

# As in the helper, but for meeting files: they have a folder of the test's own. In /tmp are those of other runs,
# also of this very test.
setup() {
    outer=$(mktemp -d)
    folder=$outer/work
    mkdir "$folder"
    mkdir -m 700 "$outer/meetings"
    export XDG_RUNTIME_DIR=$outer/meetings
    cd "$folder" || return 1
}

teardown() {
    # shellcheck disable=SC2046 # words
    kill -KILL $(jobs -p) 2>/dev/null || true
    cd / && rm -rf "$outer"
}

# need_mpirun NAME: openmpi or mpich, as `mpirun` first in PATH.
need_mpirun() {
    local program
    program=$(command -v "mpirun.$1") || skip "mpirun.$1 is not installed"
    fake mpirun "exec $program \"\$@\""
}

# need_mpi NAME: and the module of that MPI.
need_mpi() {
    need_mpirun "$1"
    [ -e "$(dirname "$DPBENCH")/libdpbench_$1.so" ] || skip "built without $1"
}

# fake NAME LINE...: a program that is first in PATH.
fake() {
    mkdir -p "$folder/bin"
    printf '%s\n' '#!/bin/sh' "${@:2}" >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
    PATH=$folder/bin:$PATH
}

# process RANK SIZE ARGUMENT...: one of several, by torchrun's variables, in the background; what it says
# goes to the file out.N, N being how many there are.
processes=()
process() {
    local program=${program:-$DPBENCH}
    RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=localhost MASTER_PORT=$port LOCAL_RANK=$1 \
        "$program" "${@:3}" >"out.${#processes[@]}" 2>&1 3>&- &
    processes+=("$!")
}

# Wait for all: $statuses, and everything they said in $output.
statuses=()
join_processes() {
    local pid status_of
    for pid in "${processes[@]}"; do
        status_of=0
        wait "$pid" || status_of=$?
        statuses+=("$status_of")
    done
    output=$(cat out.*)
}

assert_statuses() {
    [ "${statuses[*]}" = "$*" ] || {
        printf 'exit statuses %s, not %s; output:\n%s\n' "${statuses[*]}" "$*" "$output" >&2
        return 1
    }
}

port=$((20000 + $$ % 10000)) # names the meeting: of this test file alone
late=(--launcher torchrun-env --rendezvous-timeout)
meet=("${late[@]}" 60s)

# ---- what cannot take effect, or is not there ----

@test "options for hosts are refused where they cannot take effect" {
    for option in --hosts --hostfile --interface --rendezvous --launcher-args; do
        dpbench run "$option" a:1
        assert_usage_error
        assert_output "$option a:1 cannot take effect with --launcher local"
    done
    dpbench sweep --launcher mpirun --rendezvous a:1
    assert_usage_error
    dpbench verify --launcher none --hosts a:1
    assert_usage_error
    dpbench comm --launcher mpirun --hosts a:1 --hostfile b
    assert_usage_error
    assert_output '\-\-hosts and --hostfile both'
}

@test "wrong hosts and hostfiles are refused by entry, file and line" {
    fake mpirun 'echo "mpirun (Open MPI) 4.1.4"'
    dpbench run --launcher mpirun --hosts a:2,b:x
    assert_exit 2
    assert_output '"b:x" is no host: slots are a number'
    dpbench run --launcher mpirun --hosts 'a:2,,b:2'
    assert_exit 2
    assert_output 'the name is empty'
    printf 'node1 slots=4\nnode2 slots=0\n' >hostfile
    dpbench run --launcher mpirun --hostfile hostfile
    assert_exit 2
    assert_output 'hostfile:2: "node2 slots=0" is no host'
    dpbench run --launcher mpirun --hostfile nowhere
    assert_exit 3
    dpbench run "${quick[@]}" --launcher mpirun --hosts a:2,b:1 --comm mpi --ranks 4
    assert_exit 3
    assert_output '4 ranks do not fit on 2 hosts, which take 3'
    [ ! -e runs ]
}

@test "hosts named twice, and some without slots, are warned about; the mapping is printed" {
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' \
        'echo "no node1 here"; exit 7'
    dpbench run "${quick[@]}" --launcher mpirun --hosts node1:1,node2:2,node1:1,node3 --comm mpi \
        --interface lo
    assert_exit 4
    assert_output 'host "node1" is named again: it is one host with 2 slots'
    assert_output 'some have none \("node3"\): those have one'
    assert_output 'node 0  node1  ranks 0-1'
    assert_output 'node 1  node2  ranks 2-3'
    assert_output 'node 2  node3  rank 4'
    assert_output 'mpirun exited with code 7: no node1 here'
}

@test "doctor: the first mpirun and its module, srun and the job, the interfaces" {
    export DPBENCH_MODULE_PATH=$folder
    PATH=/nowhere run "$DPBENCH" doctor
    assert_exit 0
    assert_output '^ok +mpirun +none in PATH: .*openmpi-bin'
    assert_output '^ok +srun +none in PATH; not in a Slurm job'
    assert_output '^ok +interfaces +[^ ]+ [0-9a-f.:]+'
    fake mpirun 'echo "mpirun (Open MPI) 4.1.4"'
    fake srun 'echo "slurm 22.05.8"'
    SLURM_JOB_ID=7 dpbench doctor
    assert_exit 0
    assert_output '^warn +mpirun +.*bin/mpirun: mpirun \(Open MPI\) 4\.1\.4; .*libdpbench_openmpi\.so is not there'
    assert_output '^ok +srun +.*bin/srun: slurm 22\.05\.8; in Slurm job 7'
    fake mpirun 'echo "HYDRA build details:"; echo "    Version:  4.0.2"'
    fake srun 'echo "srun: error: no configuration"; exit 1'
    dpbench doctor
    assert_output '^warn +mpirun +.*: Hydra 4\.0\.2; .*libdpbench_mpich\.so is not there'
    assert_output '^warn +srun +.*: srun: error: no configuration; not in a Slurm job'
    fake mpirun 'echo Another MPI'
    dpbench doctor
    assert_output '^warn +mpirun +.*: not usable by --launcher mpirun: "Another MPI"'
}

@test "no mpirun, no srun, no MPI's mpirun: which package has it" {
    PATH=/nowhere run "$DPBENCH" run --launcher mpirun
    assert_exit 3
    assert_output 'there is no mpirun in PATH'
    assert_output 'hint: .*openmpi-bin'
    PATH=/nowhere run "$DPBENCH" run --launcher srun
    assert_exit 3
    assert_output 'hint: .*slurm-client'
    fake mpirun 'echo Another MPI'
    dpbench run --launcher mpirun
    assert_exit 3
    assert_output 'neither Open MPI.s nor MPICH.s'
    assert_output 'hint: '
}

@test "what mpirun says first, and what helps against it, stands in the message" {
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' "cat '$folder/says'; exit 1"
    printf '%s\n' ----- 'mpirun has detected an attempt to run as root.' '' 'Running as root is bad.' '' \
        'We reiterate our advice against doing so.' ----- >says
    dpbench run "${quick[@]}" --launcher mpirun --ranks 2
    assert_exit 4
    assert_output 'mpirun exited with code 1: mpirun has detected an attempt to run as root\.\)'
    assert_output 'hint: .*OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.*--launcher-args=--allow-run-as-root'
    printf '%s\n' ----- 'There are not enough slots available in the system to satisfy the 9' 'slots' >says
    dpbench run "${quick[@]}" --launcher mpirun --ranks 2
    assert_output 'hint: .*--hosts.*--oversubscribe'
    printf '%s\n' 'ssh: connect to host node7 port 22: Connection refused' ----- 'ORTE was unable' >says
    dpbench run "${quick[@]}" --launcher mpirun --ranks 2
    assert_output 'code 1: ssh: connect to host node7 port 22: Connection refused\)'
    assert_output 'hint: `ssh HOST true` must work'
}

@test "what mpirun is asked for, and --launcher-args" {
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' \
        "printf '%s\n' \"\$@\" >'$folder/words'" "env >'$folder/variables'" \
        "cat >'$folder/input'" 'echo over; exit 1'
    dpbench run "${quick[@]}" --launcher mpirun --comm mpi --ranks 3 --hosts 'localhost:2,127.0.0.2:2' \
        --launcher-args "--mca btl 'tcp,self'"
    assert_exit 4
    [ "$(tr '\n' ' ' <words)" = "-np 3 --host localhost:2,127.0.0.2:1 --map-by slot --bind-to none \
-x DPBENCH_LAUNCHER -x DPBENCH_TOKEN --mca btl tcp,self $(realpath "$DPBENCH") worker " ] || {
        cat words >&2
        return 1
    }
    grep -Eq '^DPBENCH_LAUNCHER=127\.0\.0\.1:[0-9]+$' variables
    grep -Eq '^DPBENCH_TOKEN=[0-9a-f]{64}$' variables
    [ ! -s input ]
    ! grep -q "$(sed -n 's/^DPBENCH_TOKEN=//p' variables)" words runs/*/*
}

@test "--help and --version work in an empty environment and under every launcher's variables" {
    for variables in '' 'RANK=x WORLD_SIZE=y' 'OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4' \
        'PMI_RANK=9 PMI_SIZE=2' 'SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2'; do
        for arguments in --help --version 'run --help' 'sweep --help' 'comm --help'; do
            # shellcheck disable=SC2086 # words
            run env -i $variables "$DPBENCH" $arguments
            assert_exit 0
        done
    done
}

# ---- processes that somebody else started ----

@test "no variables tell a process its rank: silent singletons are refused" {
    for i in 1 2 3; do
        dpbench run "${quick[@]}" --launcher none
        assert_exit 3
        assert_output 'no variables of torchrun, mpirun or srun tell this process its rank'
    done
    assert_nothing_written
    run env RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 \
        "$DPBENCH" run "${quick[@]}" --launcher none
    assert_exit 3
    assert_output 'RANK=0 and WORLD_SIZE=2, but OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4'
}

@test "a rank that does not come is named when the time is over" {
    process 0 3 run "${quick[@]}" "${late[@]}" 8s # for the second to come, on a busy machine
    process 1 3 run "${quick[@]}" "${late[@]}" 8s
    join_processes
    assert_statuses 4 4
    assert_output '1 of 3 ranks did not come within --rendezvous-timeout: 2$'
    [ ! -e runs ]
}

@test "without rank 0 the others end, too" {
    process 1 2 run "${quick[@]}" "${late[@]}" 1s
    join_processes
    assert_statuses 4
    assert_output 'rank 1 did not meet rank 0 within --rendezvous-timeout'
}

@test "a process that waits for rank 0 can be interrupted" {
    export DPBENCH_TOKEN=0123456789abcdef0123
    for place in "file:$folder/meet" "127.0.0.1:$port"; do
        process 1 2 run "${quick[@]}" --launcher torchrun-env --rendezvous-timeout 200s --rendezvous "$place"
    done
    for pid in "${processes[@]}"; do
        for ((i = 0; i < 600; i++)); do # until it handles SIGTERM
            ! grep -Eq '^SigCgt:.*[4-7c-f][0-9a-f]{3}$' "/proc/$pid/status" || break
            sleep 0.1
        done
    done
    kill -TERM "${processes[@]}"
    join_processes
    assert_statuses 130 130
    assert_output 'interrupted: nothing was launched yet'
}

@test "a place to meet that others can read, or that says nothing, is named by both sides" {
    # However late it is, the file is looked at.
    shared=(--rendezvous "file:$folder/meet" --rendezvous-timeout 1ms --launcher torchrun-env)
    touch meet
    chmod 644 meet
    process 0 2 run "${quick[@]}" "${shared[@]}"
    process 1 2 run "${quick[@]}" "${shared[@]}"
    join_processes
    assert_statuses 3 4
    assert_output 'meet", where the ranks meet, may be another user.s work'
    assert_output 'rank 1 did not meet .*meet" is no plain file of this user that nobody else can read'
    chmod 600 meet
    processes=() statuses=()
    process 1 2 run "${quick[@]}" "${shared[@]}"
    join_processes
    assert_statuses 4
    assert_output 'meet" does not say where rank 0 is'
}

@test "a rank claimed twice is refused, by process" {
    process 0 3 run "${quick[@]}" "${meet[@]}"
    process 1 3 run "${quick[@]}" "${meet[@]}"
    process 1 3 run "${quick[@]}" "${meet[@]}"
    join_processes
    assert_statuses 3 3 3
    assert_output 'rank 1 is claimed twice: by pid [0-9]+ on .* and by pid [0-9]+ on'
    [ ! -e runs ]
}

@test "two processes that are rank 0: the second is refused, the run goes on without it" {
    process 0 2 run "${quick[@]}" "${meet[@]}" --ranks 9
    for ((i = 0; i < 600; i++)); do
        [ -z "$(find "$XDG_RUNTIME_DIR" -name "dpbench-$(id -u)-1-*" -size +0)" ] || break
        sleep 0.1
    done
    process 0 2 run "${quick[@]}" "${meet[@]}" --ranks 9
    status=0
    wait "${processes[1]}" || status=$?
    [ "$status" -eq 3 ]
    process 1 2 run "${quick[@]}" "${meet[@]}" --ranks 9
    processes=("${processes[0]}" "${processes[2]}")
    join_processes
    assert_statuses 3 3
    assert_output 'rank 0 is claimed twice'
    assert_output '9 ranks need as many processes, and 2 were started'
}

# port=N rank_zero: a rank 0 that waits for rank 1, in the background as $waiting, and its file in $meeting.
rank_zero() {
    local before i
    before=$(ls "$XDG_RUNTIME_DIR")
    process 0 2 run "${quick[@]}" "${meet[@]}"
    waiting=${processes[-1]}
    for ((i = 0; i < 600; i++)); do
        meeting=$(comm -13 <(echo "$before") <(ls "$XDG_RUNTIME_DIR"))
        [ -z "$meeting" ] || [ ! -s "$XDG_RUNTIME_DIR/$meeting" ] || return 0
        sleep 0.1
    done
    return 1
}

@test "the meeting file of a rank 0 that was killed goes with the next one; the living keep theirs" {
    local dead alive
    mkdir -m 700 xdg
    export XDG_RUNTIME_DIR=$folder/xdg
    touch "xdg/dpbench-$(id -u)-notes" "xdg/dpbench-$(id -u)-1-0123456789abcdef.old" # nobody's meeting
    port=$((port + 1)) rank_zero
    dead=$meeting
    kill -KILL "$waiting"
    wait "$waiting" || true
    [ -s "xdg/$dead" ]
    port=$((port + 2)) rank_zero
    alive=$meeting
    [ ! -e "xdg/$dead" ]
    port=$((port + 3)) rank_zero
    [ -s "xdg/$alive" ]
    for pid in "${processes[@]:1}"; do
        kill -TERM "$pid"
        wait "$pid" || true
    done
    [ "$(ls xdg)" = "$(printf 'dpbench-%d-1-0123456789abcdef.old\ndpbench-%d-notes' "$(id -u)" "$(id -u)")" ]
}

@test "variables that disagree with how many there are" {
    process 0 2 run "${quick[@]}" "${meet[@]}"
    process 1 3 run "${quick[@]}" "${meet[@]}"
    join_processes
    assert_statuses 3 3
    assert_output '2 processes are there, but rank 1 .* was told that there are 3'
}

@test "another binary, and another command line, are refused with their ranks" {
    cp "$DPBENCH" other
    printf x >>other
    process 0 3 run "${quick[@]}" "${meet[@]}"
    program=$folder/other process 1 3 run "${quick[@]}" "${meet[@]}"
    process 2 3 run "${quick[@]}" "${meet[@]}"
    join_processes
    assert_statuses 3 3 3
    assert_output 'rank 1 \(pid [0-9]+ on .*\) runs another dpbench than rank 0'
    processes=() statuses=()
    rm out.*
    process 0 3 run "${quick[@]}" "${meet[@]}"
    process 1 3 run "${quick[@]}" "${meet[@]}"
    process 2 3 run "${quick[@]}" "${meet[@]}" --lr 0.5
    join_processes
    assert_statuses 3 3 3
    assert_output 'rank 2 \(pid [0-9]+ on .*\) was given another command line than rank 0'
}

@test "processes on several hosts need a secret and a place to meet" {
    run env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
        "$DPBENCH" run "${quick[@]}" --launcher none
    assert_exit 3
    assert_output 'do not tell 4 processes on several hosts where to meet'
    run env RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 \
        "$DPBENCH" run "${quick[@]}" --launcher torchrun-env
    assert_exit 3
    assert_output 'need a secret that they share: DPBENCH_TOKEN is not set'
    run env RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 DPBENCH_TOKEN=short \
        "$DPBENCH" run "${quick[@]}" --launcher torchrun-env --rendezvous localhost:2000
    assert_exit 2
    refute_output short
}

@test "a usage error that only the driver finds ends all processes with its exit code" {
    process 0 2 run "${quick[@]}" "${meet[@]}" --ranks 3
    process 1 2 run "${quick[@]}" "${meet[@]}" --ranks 3
    join_processes
    assert_statuses 3 3
    assert_output '3 ranks need as many processes, and 2 were started'
    [ ! -e runs ]
}

@test "hosts with different numbers of ranks: what has two levels is refused before any work" {
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' 'exit 9'
    uneven=(--launcher mpirun --hosts node1:2,node2:1 --interface lo)
    for option in '--mpi-algorithm hierarchical' '--strategy horovod --hierarchical on'; do
        # shellcheck disable=SC2086 # words
        dpbench run "${quick[@]}" "${uneven[@]}" $option
        assert_exit 2
        assert_output "--${option##*--} needs as many ranks on every node.*: node1 2, node2 1"
        assert_output 'hint: .*--ranks-per-node'
    done
    dpbench comm "${uneven[@]}" --mpi-algorithm hierarchical --sizes 1KiB
    assert_exit 2
    [ ! -e runs ]
    dpbench run "${quick[@]}" "${uneven[@]}" --hosts node1:2,node2:2 --ranks-per-node 1 --ranks 2 \
        --mpi-algorithm hierarchical
    assert_exit 2 # given twice
    dpbench run "${quick[@]}" --launcher mpirun --hosts node1:2,node2:1 --interface lo --ranks 2 \
        --ranks-per-node 1 --mpi-algorithm hierarchical
    assert_exit 4
}

@test "--ranks-per-node where somebody else has placed the ranks otherwise is refused" {
    unshare --uts hostname other 2>/dev/null || skip "no host can be made here (unshare --uts)"
    # shellcheck disable=SC2016 # the inner shells expand it
    fake elsewhere 'exec unshare --uts sh -c '"'"'hostname other; exec "$@"'"'"' sh "$DPBENCH" "$@"'
    process 0 2 run "${quick[@]}" "${meet[@]}" --ranks 2 --ranks-per-node 2
    program=elsewhere process 1 2 run "${quick[@]}" "${meet[@]}" --ranks 2 --ranks-per-node 2
    join_processes
    assert_statuses 3 3
    assert_output '--ranks-per-node 2 cannot take effect: 2 ranks are on 2 nodes so: .* 1, other 1'
    # shellcheck disable=SC2016
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' \
        'export OMPI_COMM_WORLD_SIZE=2' \
        'OMPI_COMM_WORLD_RANK=0 "$DPBENCH" worker &' \
        'OMPI_COMM_WORLD_RANK=1 elsewhere worker &' \
        wait
    dpbench run "${quick[@]}" --launcher mpirun --ranks 2 --ranks-per-node 2 -o out
    assert_exit 3
    assert_output '--ranks-per-node 2 cannot take effect: 2 ranks are on 2 nodes so: .* 1, other 1'
}

@test "processes of several hosts meet by a file also where there is no default route" {
    # shellcheck disable=SC2016 # the inner shell expands it
    isolated='ip link add one type veth peer name two && ip address add 10.9.0.1/24 dev one &&
        ip link set one up && ip link set two up && ip link set lo up'
    unshare --net sh -c "$isolated" 2>/dev/null || skip "no network name space can be made here"
    # shellcheck disable=SC2016
    run unshare --net bash -c "$isolated"'
        for rank in 1 0; do
            RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 "$DPBENCH" "$@" >out.$rank 2>&1 &
        done
        wait
        cat out.0' sh run "${quick[@]}" --launcher torchrun-env --rendezvous file:meet --ranks 9
    assert_output '9 ranks need as many processes, and 2 were started'
}

@test "data are looked at by the ranks, where the driver may have none; what they say is the run's" {
    need_mpi openmpi
    "$DPBENCH" data make --workload dlrm-small --table-rows 100 --samples 400 -o i.csv
    "$DPBENCH" data pack --workload dlrm-small --table-rows 100 --data interactions --data-file i.csv \
        --shards 2 -o packed
    train=(--workload dlrm-small --table-rows 100 --data packed --steps 4 --warmup 2 --trace-steps 0
        --probe-retries 0 --bind off --launcher mpirun --launcher-args --oversubscribe --ranks 2)
    dpbench run "${train[@]}" --data-dir nowhere -o a
    assert_exit 3
    assert_output 'rank [01] \(pid [0-9]+ on .*\) failed in setup, before the first step: there is no packed data set in "nowhere"'
    dpbench run "${train[@]}" --data-dir packed --batch-per-rank 8000 -o b
    assert_exit 2
    assert_output 'rank [01] \(pid [0-9]+ on .*\) failed in setup, before the first step: .*16000'
    # Where all ranks are known to be here, it is seen before any work.
    dpbench run "${train[@]}" --hosts localhost:2 --data-dir nowhere -o c
    assert_exit 3
    [ ! -e c ]
}

@test "MPI in processes that are there serves one launch only" {
    process 0 2 run "${quick[@]}" "${meet[@]}" --comm mpi --repeats 2
    process 1 2 run "${quick[@]}" "${meet[@]}" --comm mpi --repeats 2
    join_processes
    assert_statuses 2 2
    assert_output 'can serve one launch with --launcher torchrun-env, and this plan has 2'
    assert_output 'hint: --launcher mpirun'
}

# ---- what works ----

@test "mpirun starts the ranks of every cell: a sweep over 1, 2 and 4 ranks" {
    need_mpi openmpi
    printf '%s\n' 'version: 1' 'name: ranks' 'axes:' '  ranks: [1, 2, 4]' >ranks.yaml
    dpbench sweep ranks.yaml "${quick[@]}" --launcher mpirun --launcher-args --oversubscribe \
        --comm mpi --repeats 1 --bind off -o sweep
    assert_exit 0
    assert_json sweep/records.jsonl '[r["status"] for r in d]' '["ok", "ok", "ok"]'
    assert_json sweep/records.jsonl 'sorted(r["world"]["ranks"] for r in d)' '[1, 2, 4]'
    assert_json sweep/records.jsonl '{r["launcher"]["launcher"] for r in d} == {"mpirun"}' true
    assert_json sweep/manifest.json 'd["launcher"]["launcher"]' mpirun
    assert_json sweep/records.jsonl 'any("DPBENCH_TOKEN=" in w for w in d[0]["launcher"]["command"])' \
        false
    dpbench sweep --resume sweep
    assert_exit 2
    assert_output 'were started with --launcher mpirun, and now there is none'
    assert_output 'hint: .dpbench sweep --resume sweep --launcher mpirun --launcher-args=--oversubscribe`'
    assert_json sweep/records.jsonl \
        'all(r["repro"].endswith(" --launcher mpirun --launcher-args=--oversubscribe") for r in d)' true
    sed 's/"state": *"[a-z]*"/"state": "running"/' sweep/manifest.json >stopped.json
    cp -r sweep stopped
    mv stopped.json stopped/manifest.json
    dpbench report stopped
    assert_output 'hint: .*`dpbench sweep --resume stopped --launcher mpirun --launcher-args=--oversubscribe`'
    dpbench sweep --resume sweep --launcher mpirun --launcher-args --oversubscribe
    assert_exit 0
    assert_output '3 launches were done before'
}

@test "an interrupted run under mpirun: 130, what continues it, and nobody is left" {
    need_mpi openmpi
    marked() { grep -lzs "^DPB_TEST_MARK=$folder\$" /proc/[0-9]*/environ | wc -l; }
    env DPB_TEST_MARK="$folder" "$DPBENCH" run --data synthetic --workload mnist-mlp --batch-per-rank 8 --steps 1000000 \
        --warmup 2 --trace-steps 0 --probe-retries 0 --bind off --repeats 1 --launcher mpirun \
        --launcher-args --oversubscribe --ranks 2 -o run >out.run 2>&1 3>&- &
    driver=$!
    for ((i = 0; i < 600; i++)); do
        [ "$(marked)" -lt 4 ] || break # the driver, mpirun and its ranks
        sleep 0.1
    done
    sleep 1
    status=0
    kill -TERM "$driver"
    wait "$driver" || status=$?
    output=$(cat out.run)
    assert_exit 130
    assert_output 'hint: continue with .dpbench sweep --resume run --launcher mpirun --launcher-args=--oversubscribe`'
    refute_output 'Segmentation'
    for ((i = 0; i < 600; i++)); do
        [ "$(marked)" -gt 0 ] || break
        sleep 0.1
    done
    [ "$(marked)" -eq 0 ]
}

@test "an interrupted launcher is told to end while its ranks are still there" {
    # shellcheck disable=SC2016 # the fake expands it
    fake mpirun 'case $1 in --version) echo "mpirun (Open MPI) 4.1.4"; exit 0;; esac' \
        'OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 setsid "$DPBENCH" worker &' \
        "trap 'sleep 0.2; kill -0 \$(cat $folder/rank) && touch $folder/there; kill \$(cat $folder/rank); exit 1' TERM" \
        "echo \$! >$folder/rank" \
        'while :; do wait; done'
    start_dpbench run "${quick[@]}" --launcher mpirun --ranks 2 -o out
    for ((i = 0; i < 600; i++)); do # until it listens to the driver, in a thread
        [ ! -s rank ] || [ "$(find "/proc/$(<rank)/task" -mindepth 1 -maxdepth 1 | wc -l)" -lt 2 ] || break
        sleep 0.1
    done
    kill -TERM "$background"
    finish_dpbench 60
    assert_exit 130
    [ -e there ]
}

@test "kill -9 of the driver under mpirun: ranks and mpirun end, and leave no files or shared memory" {
    need_mpi openmpi
    python3 -c 'import os; os.pidfd_open(os.getpid())' 2>/dev/null || skip "there are no file descriptors of processes"
    mkdir tmp shared
    TMPDIR=$folder/tmp OMPI_MCA_btl_vader_backing_directory=$folder/shared start_dpbench run "${quick[@]/#6/2000000}" \
        --launcher mpirun --launcher-args --oversubscribe --ranks 2 --comm mpi --bind off -o out
    for ((i = 0; i < 600; i++)); do
        [ "$(find shared -type f | wc -l)" -lt 2 ] || break
        sleep 0.1
    done
    cat log
    kill -0 "$background"
    [ -n "$(ls shared)" ] || skip "this Open MPI has its shared memory elsewhere"
    kill -KILL "$background"
    wait "$background" || true
    for ((i = 0; i < 600; i++)); do
        grep -qlzs "^TMPDIR=$folder/tmp\$" /proc/[0-9]*/environ || break
        sleep 0.1
    done
    [ -z "$(ls tmp shared | grep -v :)" ]
}

@test "MPICH's mpirun on a named host" {
    need_mpi mpich
    dpbench run "${quick[@]}" --launcher mpirun --hosts localhost:2 --comm mpi --bind off -o run
    assert_exit 0
    assert_json run/records.jsonl '[r["ranks"] for r in d]' '[2]'
    assert_json run/records.jsonl 'd[0]["launcher"]["hosts"]' '[{"name": "localhost", "slots": 2}]'
    assert_json run/records.jsonl 'd[0]["launcher"]["version"].startswith("Hydra")' true
}

@test "mpirun has started a dpbench for every rank" {
    need_mpi openmpi
    run mpirun --oversubscribe --bind-to none -np 4 "$DPBENCH" run "${quick[@]}" --launcher none \
        --comm mpi --bind off --json -o run
    assert_exit 0
    assert_json run/records.jsonl '[(r["status"], r["ranks"]) for r in d]' '[["ok", 4]]'
    [ "$(grep -c '"schema"' <<<"$output")" -le 1 ]
}

@test "--comm auto is mpi with any launcher but local, in run and in comm" {
    need_mpi openmpi
    dpbench run "${quick[@]}" --launcher mpirun --launcher-args --oversubscribe --ranks 2 --bind off -o run
    assert_exit 0
    assert_json run/records.jsonl '[(r["status"], r["config"]["comm"]) for r in d]' '[["ok", "mpi"]]'
    refute_output 'node 0' # one host: its ranks need no map
    dpbench comm --launcher mpirun --sizes 1KiB --iterations 3 --ranks 1 --bind off -o comm
    assert_exit 0
    assert_json comm/records.jsonl 'd[0]["comm"]["name"]' mpi
    assert_json comm/records.jsonl 'd[0]["busbw_bytes_per_s"], d[0]["busbw_bytes_per_s_reason"]' \
        '[null, "one rank has no bus"]'
    assert_output 'n/a'
    dpbench run --help
    assert_output 'mpi with any'
    dpbench run "${quick[@]}" --launcher mpirun --comm shm --ranks 2
    assert_exit 2
    assert_output 'comm shm moves bytes through memory'
}

@test "collectives alone, by mpirun" {
    need_mpi openmpi
    dpbench comm --launcher mpirun --launcher-args --oversubscribe --comm mpi --ranks 2 --sizes 1KiB \
        --iterations 3 --bind off -o comm
    assert_exit 0
    assert_json comm/records.jsonl 'd[0]["launcher"]["launcher"]' mpirun
    assert_json comm/records.jsonl '(d[0]["world"]["ranks"], len(d[0]["world"]["hosts"]))' '[2, 1]'
}
