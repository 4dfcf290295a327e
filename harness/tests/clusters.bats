#!/usr/bin/env bats
# What docs/clusters/ tells people to write holds for the program that was built.

load helper

clusters=$(cd "$(dirname "$BATS_TEST_FILENAME")/../../docs/clusters" && pwd)

@test "both images install the package of every library that the program links" {
    command -v dpkg-query >/dev/null && command -v ldd >/dev/null || skip "no dpkg here to ask"
    local library path package file checked=0
    for library in $(readelf -d "$DPBENCH" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        path=$(ldd "$DPBENCH" | awk -v name="$library" '$1 == name { print $3 }')
        [ -n "$path" ] || continue
        package=$(dpkg-query -S "$(readlink -f "$path")" 2>/dev/null | head -n 1) || continue
        package=${package%%:*}
        case $package in libc6 | libgcc-s1 | libstdc++6 | "") continue ;; esac
        for file in Dockerfile.cpu Dockerfile.cuda; do
            # The last stage only: the first one has everything.
            sed '1,/^FROM.*AS build/d' "$clusters/$file" | grep -qw -- "$package" ||
                { echo "$file does not install $package, for $library" >&2; return 1; }
        done
        checked=$((checked + 1))
    done
    [ "$checked" -ge 5 ] || skip "only $checked of the program's libraries belong to packages here"
}

@test "every option in the files for Kubernetes is one of the verb it is given to" {
    local file verb option count=0
    for file in mpijob.yaml indexed-job.yaml; do
        verb=$(sed -n '/ args:/,/^ *[a-z]*:/s/^ *- \([a-z]*\)$/\1/p' "$clusters/$file")
        dpbench "$verb" --help
        assert_exit 0
        for option in $(sed -n 's/^ *- --\([a-z-]*\)=.*/\1/p' "$clusters/$file"); do
            assert_output "--$option( |$)"
            count=$((count + 1))
        done
    done
    [ "$count" -ge 8 ]
}
