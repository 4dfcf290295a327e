#!/usr/bin/env bats
# What `cmake --install` puts somewhere else works there.

load helper

@test "an installed dpbench runs, finds its modules, and has the scenarios' sweep files" {
    run cmake --install "$BUILD" --prefix "$folder/opt"
    assert_exit 0
    local DPBENCH_BUILT=$DPBENCH module
    DPBENCH=$folder/opt/bin/dpbench
    dpbench run "${quick[@]}" --ranks 2 -o here
    assert_exit 0
    for module in "$(dirname "$DPBENCH_BUILT")"/libdpbench_*.so; do
        [ -e "$module" ] || continue
        [ -f "opt/lib/dpbench/$(basename "$module")" ] || { echo "$module is not installed" >&2; return 1; }
    done
    if [ -e opt/lib/dpbench/libdpbench_openmpi.so ]; then
        run env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$DPBENCH" list comms
        refute_output 'libdpbench_openmpi.so is not there'
        rm opt/lib/dpbench/libdpbench_openmpi.so
        run env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$DPBENCH" list comms
        assert_output 'libdpbench_openmpi.so is not there'
    fi
    dpbench sweep opt/share/dpbench/sweeps/quick.yaml --dry-run
    assert_exit 0
}
