# The CUDA module: each way in which it, or what it needs, can be missing has one reason that says
# what to do, and exit code 3; everything else works without it.
load helper

module=$(dirname "$DPBENCH")/libdpbench_cuda.so

need_module() {
    [ -e "$module" ] || skip "built without the CUDA toolkit"
}

need_no_driver() {
    ! ldconfig -p | grep -q 'libcuda\.so\.1' || skip "there is an NVIDIA driver here"
}

# run --device cuda is refused in one line that matches.
refused() {
    run "$DPBENCH" run "${quick[@]}" --device cuda
    assert_exit 3
    assert_output "$1"
    [ "$(grep -c 'error: ' <<<"$output")" -eq 1 ] || { echo "$output" >&2; return 1; }
    assert_nothing_written
}

@test "no module beside the program: every place where it was looked for" {
    mkdir -p "$folder/bin"
    cp "$DPBENCH" "$folder/bin/dpbench"
    run "$folder/bin/dpbench" run --device cuda
    assert_exit 3
    assert_output "device \"cuda\" is not available here, because libdpbench_cuda.so is not there"
    assert_output "tried $folder/bin/libdpbench_cuda.so, $folder/bin/../lib/dpbench/libdpbench_cuda.so"
    run "$folder/bin/dpbench" run "${quick[@]}" --ranks 1 -o "$folder/r"
    assert_exit 0
}

@test "a module in ../lib/dpbench is found" {
    need_module
    need_no_driver
    mkdir -p "$folder/bin" "$folder/lib/dpbench"
    cp "$DPBENCH" "$folder/bin/dpbench"
    cp "$module" "$folder/lib/dpbench"
    run "$folder/bin/dpbench" run --device cuda
    assert_exit 3
    assert_output 'there is no NVIDIA driver'
}

@test "no module in the folders that are given: each of them" {
    export DPBENCH_MODULE_PATH=/nowhere:/nor/here
    refused 'tried /nowhere/libdpbench_cuda.so, /nor/here/libdpbench_cuda.so'
}

@test "a module of another ABI" {
    export DPBENCH_MODULE_PATH=$MODULES/other_abi
    refused 'is built for module ABI 99, and this dpbench needs [0-9]+: build both from the same'
}

@test "a module whose library is missing: the loader's words" {
    export DPBENCH_MODULE_PATH=$MODULES/needs_gone
    refused 'does not load: libdpb_gone.so: cannot open shared object file'
}

@test "a file that is no module" {
    mkdir "$BATS_TMPDIR/$$"
    ln -s /dev/null "$BATS_TMPDIR/$$/libdpbench_cuda.so"
    export DPBENCH_MODULE_PATH=$BATS_TMPDIR/$$
    refused 'does not load: .*libdpbench_cuda.so: (file too short|invalid ELF header|cannot)'
    rm -r "${BATS_TMPDIR:?}/$$"
}

@test "a library without the entry is no module" {
    local other=$BATS_TMPDIR/$$
    mkdir "$other"
    cp "$MODULES/libdpb_gone.so" "$other/libdpbench_cuda.so"
    export DPBENCH_MODULE_PATH=$other
    refused 'is no module of dpbench: it has no dpb_module_entry'
    rm -r "$other"
}

@test "no driver" {
    need_module
    need_no_driver
    refused 'because there is no NVIDIA driver \(libcuda.so.1: cannot open shared object file'
}

@test "the toolkit's stub in the place of a driver" {
    need_module
    need_no_driver
    local nvcc stub
    nvcc=$(command -v nvcc) || skip "no toolkit in PATH"
    stub=$(dirname "$(readlink -f "$nvcc")")/../lib/stubs/libcuda.so
    [ -e "$stub" ] || stub=$(dirname "$(readlink -f "$nvcc")")/../lib64/stubs/libcuda.so
    [ -e "$stub" ] || skip "the toolkit has no stub"
    mkdir "$BATS_TMPDIR/$$"
    ln -s "$stub" "$BATS_TMPDIR/$$/libcuda.so.1"
    LD_LIBRARY_PATH=$BATS_TMPDIR/$$ refused "is the CUDA toolkit's stub, not a driver"
    rm -r "${BATS_TMPDIR:?}/$$"
}

@test "comm and recorder give the device's reason" {
    need_module
    need_no_driver
    dpbench list comms
    assert_exit 0
    assert_output '^nccl '
    assert_output 'there is no NVIDIA driver'
    dpbench list recorders --json
    assert_exit 0
    [ "$(jq -r '.[] | select(.name == "cupti") | .available' <<<"$output" 2>/dev/null ||
        python3 -c 'import json,sys
print([str(p["available"]).lower() for p in json.load(sys.stdin) if p["name"] == "cupti"][0])' \
            <<<"$output")" = false ]
}

@test "memory that a comm cannot move is refused before anything else" {
    dpbench run --device cuda --comm shm
    assert_exit 2
    assert_output 'device cuda cannot train with --comm shm'
    dpbench run --comm nccl
    assert_exit 2
    assert_output 'device cpu cannot train with --comm nccl'
}

@test "more traced steps than CUPTI's recorder can hold are refused before anything else" {
    dpbench run --device cuda --trace-steps 21 -o r
    assert_exit 2
    assert_output 'error: --trace-steps 21: recorder "cupti" records at most 20 steps'
    assert_output 'use --trace-steps 20, or fewer'
    [ ! -e r ]
}

@test "--comm auto is shm on the CPU, and the record says so" {
    dpbench run "${quick[@]}" --ranks 1 --comm auto -o r
    assert_exit 0
    grep -q '"comm": *"shm"' r/records.jsonl
}

@test "libraries that are missing or no such libraries: doctor names each, and goes on" {
    need_module
    DPB_CUDNN_LIBRARY=/nowhere/libcudnn.so DPB_CUBLASLT_LIBRARY=/nowhere/libcublasLt.so \
        DPB_NCCL_LIBRARY=$MODULES/libdpb_gone.so DPB_CUPTI_LIBRARY=/nowhere/libcupti.so \
        dpbench doctor --device cuda
    assert_output 'fail +cuBLASLt +cuBLASLt: /nowhere/libcublasLt.so: cannot open shared object'
    assert_output 'warn +cuDNN +cuDNN: /nowhere/libcudnn.so: cannot open'
    assert_output 'warn +NCCL +NCCL has no function ncclGetVersion: it is too old or too new'
    assert_output 'warn +CUPTI +CUPTI: /nowhere/libcupti.so: cannot open'
    assert_output 'device cpu +available'
}

@test "vendors' folders hidden: the module still opens and says why the device cannot be used" {
    need_module
    need_no_driver
    unshare -m true 2>/dev/null || skip "no permission to mount"
    local runpath
    runpath=$(readelf -d "$module" | sed -n 's/.*RUNPATH.*\[\(.*\)\]/\1/p')
    mkdir "$BATS_TMPDIR/$$"
    run unshare -m bash -c '
        IFS=:
        for hidden in $1; do mount --bind "$2" "$hidden" || exit 99; done
        "$3" doctor --device cuda' - "$runpath" "$BATS_TMPDIR/$$" "$DPBENCH"
    rm -r "${BATS_TMPDIR:?}/$$"
    [ "$status" -ne 99 ] || skip "cannot hide $runpath"
    assert_exit 3
    assert_output 'fail +cuBLASLt +cuBLASLt: libcublasLt.so.13: cannot open shared object file'
    assert_output 'fail +device cuda +not available here'
}

@test "doctor ends with 3 when the device that it was asked for cannot be used" {
    need_no_driver
    dpbench doctor --device cuda
    assert_exit 3
    assert_output '^fail +device cuda'
    dpbench doctor --device nothing
    assert_exit 2
    assert_output '"nothing" is no device'
}

@test "the module exports one function, and needs no library of a vendor" {
    need_module
    [ "$(nm -D --defined-only "$module" | awk '{ print $3 }')" = dpb_module_entry ]
    run readelf -d "$module"
    refute_output 'NEEDED.*lib(cu|nccl|nvidia)'
}

@test "comm mpi without mpirun: one line that says so; it is listed with that reason" {
    run env -u PMI_RANK -u PMI_SIZE "$DPBENCH" comm --comm mpi --sizes 1KiB --ranks 2
    assert_exit 3
    assert_output 'comm "mpi" is not available here, because this process was started without mpirun'
    [ "$(grep -c 'error: ' <<<"$output")" -eq 1 ] || { echo "$output" >&2; return 1; }
    assert_nothing_written
    run env -u PMI_RANK -u PMI_SIZE "$DPBENCH" list comms
    assert_exit 0
    assert_output 'started without mpirun'
}
