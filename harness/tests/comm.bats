# dpbench comm: collectives alone.

load helper


short=(--sizes "64B,1MB" --iterations 5)

@test "comm: every collective and type, right on every rank; table, records and CSV agree" {
    dpbench_stdout comm --sizes 64B..4KiB:x8,100000B --iterations 4 --ranks 1,3 \
        --collective all-reduce,reduce-scatter,all-gather,broadcast,reduce,all-to-all \
        --dtype fp32,bf16,fp16,int64 --csv out.csv -o out
    assert_exit 0
    assert_output '^# all-to-all, 3 ranks, comm shm, algorithm direct, blocking calls, in place; measured'
    assert_output '^# Out of bounds values : 0 OK$'
    assert_json out/records.jsonl 'len(d), {r["status"] for r in d} == {"ok"}' '[192, true]'
    assert_json out/records.jsonl 'sum(r["wrong"] for r in d)' 0
    assert_json out/records.jsonl '{r["schema"] for r in d} == {"dpb.comm/1"}' true
    assert_json out/records.jsonl '{len(r["samples_ns"]) for r in d} == {4}' true
    assert_json out/records.jsonl 'all(r["in_place"] and not r["emulated"] for r in d)' true
    # busbw by the factors of nccl-tests; n/a with one rank, where they are 0
    assert_json out/records.jsonl '({r["collective"]: round(r["busbw_factor"], 3) for r in d if r["ranks"] == 3} ==
        {"all-reduce": 1.333, "reduce-scatter": 0.667, "all-gather": 0.667, "broadcast": 1.0,
         "reduce": 1.0, "all-to-all": 0.667})' true
    assert_json out/records.jsonl '(all(abs(r["busbw_bytes_per_s"] / (r["algbw_bytes_per_s"] * r["busbw_factor"]) - 1) < 1e-9
        and abs(r["algbw_bytes_per_s"] * r["time_ns"]["mean"] / 1e9 / r["size_bytes"] - 1) < 1e-9
        for r in d if r["ranks"] == 3))' true
    assert_json out/records.jsonl '[r["busbw_bytes_per_s_reason"] for r in d if r["ranks"] == 1 and r["collective"] == "all-reduce"][0]' \
        'one rank has no bus'
    # whole elements, and the same number for each rank of an all-to-all
    assert_json out/records.jsonl '({r["size_bytes"] for r in d if r["collective"] == "all-to-all" and r["ranks"] == 3
        and r["dtype"] == "int64"}  == {48, 504, 4080, 99984})' true
    [ "$(wc -l <out.csv)" -eq 193 ]
    [ "$(head -n 1 out.csv | cut -d, -f1,9,23)" = collective,size_bytes,wrong ]
}

@test "comm: all algorithms, both ways to call; bytes on the wire are the formula's" {
    dpbench_stdout comm "${short[@]}" --ranks 4 --algorithm direct,ring --call blocking,background \
        --json -o out
    assert_exit 0
    printf '%s' "$output" >out.json
    assert_json out.json 'len(d), sum(r["wrong"] for r in d)' '[8, 0]'
    assert_json out.json '({(r["algorithm"], r["config"]["call"]) for r in d} ==
        {(a, c) for a in ("direct", "ring") for c in ("blocking", "background")})' true
    assert_json out.json '{r["between_bw_bytes_per_s_reason"] for r in d} == {"all ranks are on one node"}' true
    # 2 (P - 1) / P bytes of each rank: 1,500,000 of 1,000,000
    assert_json out.json '{b for r in d if r["size_bytes"] == 1000000 for b in r["wire_bytes_per_rank"]} == {1500000}' true
}

@test "comm: every algorithm is right, in nodes too; what one does not have is refused" {
    dpbench_stdout comm --sizes 64B,1MB --iterations 3 --ranks 4 --ranks-per-node 2 --json -o out \
        --algorithm recursive-doubling,halving-doubling,tree,double-tree,hierarchical
    assert_exit 0
    printf '%s' "$output" >out.json
    assert_json out.json 'len(d), sum(r["wrong"] for r in d)' '[10, 0]'
    assert_json out.json '{r["comm"]["ranks_per_node"] for r in d} == {2}' true
    # of 1 MB: log2 P, 2 (P-1)/P, by the place in the tree, and inside and between nodes
    assert_json out.json '({r["algorithm"]: r["wire_bytes_per_rank"] for r in d if r["size_bytes"] == 1000000} ==
        {"recursive-doubling": [2000000] * 4, "halving-doubling": [1500000] * 4,
         "tree": [1000000, 1000000, 3000000, 1000000], "double-tree": [1000000, 2000000, 2000000, 1000000],
         "hierarchical": [1500000] * 4})' true
    # 2 nodes of 2: hierarchical sends 2 (k-1)/k of each half out, 2 (g-1)/g of 1 MB inside
    assert_json out.json '({(r["nodes"], r["node_between_bytes"], r["rank_inside_bytes"]) for r in d
        if r["size_bytes"] == 1000000 and r["algorithm"] == "hierarchical"} == {(2, 1000000, 1000000)})' true
    assert_json out.json '(all(abs(r["between_bw_bytes_per_s"] * r["time_ns"]["mean"] / 1e9 / r["node_between_bytes"] - 1)
        < 1e-9 for r in d))' true
    dpbench comm --ranks 4 --ranks-per-node 3
    assert_exit 2
    assert_output 'does not divide the 4 ranks'
    dpbench comm --ranks 2 --sizes 4KiB --collective reduce-scatter --algorithm tree
    [ "$status" -ne 0 ]
    assert_output 'algorithm "tree" has no reduce-scatter .*; these have: direct, ring, halving-doubling'
}

@test "comm: an emulated link is named, and takes its time" {
    dpbench_stdout comm --sizes 1MB --iterations 5 --ranks 2 --link 1GB/s,100us -o out
    assert_exit 0
    assert_output 'EMULATED link 8Gbps,100us'
    assert_json out/records.jsonl 'd[0]["emulated"], d[0]["comm"]["link"]["latency_ns"]' '[true, 100000]'
    # 2 alpha + 1 MB at 1 GB/s
    assert_json out/records.jsonl 'd[0]["time_ns"]["min"] > 1100000' true
}

@test "comm: wrong sizes, collectives, types and options are usage errors" {
    for sizes in 0B 8Q 8B..4B 1MiB:x4 8B..1KiB:x1 1B 1KiB,1024B ''; do
        dpbench comm --sizes "$sizes"
        assert_usage_error
    done
    dpbench comm --collective allreduce
    assert_usage_error
    assert_output 'did you mean "all-reduce"'
    for wrong in '--dtype fp8' '--ranks 0' '--ranks 65' '--algorithm best' '--iterations 0' \
        '--workload mnist-cnn' '--link 5' '--call never' 'file'; do
        # shellcheck disable=SC2086 # two words
        dpbench comm $wrong
        assert_usage_error
    done
    dpbench comm --collective all-to-all --ranks 4 --sizes 8B
    assert_usage_error
    assert_output 'at least 16 bytes'
}

@test "comm: what acts between ranks is refused with one" {
    dpbench comm --ranks 1 --algorithm ring
    assert_usage_error
    dpbench comm "${short[@]}" --ranks 1,2 --algorithm ring -o out
    assert_exit 0
    assert_json out/records.jsonl '[r["ranks"] for r in d]' '[1, 1, 2, 2]'
}

@test "comm: what is not supported is skipped with its name, and the rest is measured: exit 3" {
    dpbench comm "${short[@]}" --ranks 2 --dtype uint8 -o out
    assert_exit 3
    assert_output 'cannot sum uint8'
    assert_json out/records.jsonl 'd[0]["status"], "uint8" in d[0]["reason"]' '["skipped", true]'
    dpbench comm "${short[@]}" --ranks 3 --algorithm direct,tree --collective reduce-scatter,broadcast \
        -o some
    assert_exit 3
    assert_output 'has no reduce-scatter'
    assert_json some/records.jsonl '[r["status"] for r in d]' \
        '["ok", "ok", "ok", "ok", "skipped", "skipped", "ok", "ok"]'
    dpbench comm "${short[@]}" --ranks 2 --dtype uint8 --collective all-gather -o gather
    assert_exit 0
}

@test "comm: kill -9 of a rank: exit 4, the message names it, nobody is left, earlier records stay" {
    start_dpbench comm --sizes 1MB --iterations 1000000 --ranks 2 -o out
    wait_for_ranks 2
    kill -KILL "${ranks[1]}"
    finish_dpbench
    assert_exit 4
    assert_output "rank [01].*\b${ranks[1]}\b"
    assert_output '(SIGKILL|Killed|signal 9)'
    assert_gone "${ranks[@]}"
    assert_json out/records.jsonl 'd[0]["status"], d[0]["reason"] != ""' '["failed", true]'
}

@test "comm: a stopped rank ends at the time-out; SIGINT ends with 130" {
    start_dpbench comm --sizes 1MB --iterations 1000000 --ranks 2 --stall-timeout 10s -o out
    wait_for_ranks 2
    kill -STOP "${ranks[1]}"
    finish_dpbench
    assert_exit 4
    assert_output "\b${ranks[1]}\b"
    assert_gone "${ranks[@]}"
    assert_json out/records.jsonl 'd[0]["status"]' timeout
    start_dpbench comm --sizes 1MB --iterations 1000000 --ranks 2 -o second
    wait_for_ranks 2
    kill -INT "$background"
    finish_dpbench
    assert_exit 130
    assert_gone "${ranks[@]}"
    assert_json second/records.jsonl 'd[0]["status"]' interrupted
}

@test "comm: folders and files that cannot be written: exit 3" {
    with_mount size=4k "$DPBENCH" comm "${short[@]}" --ranks 2 -o out/run
    assert_exit 3
    assert_output 'hint: '
    with_mount ro "$DPBENCH" comm "${short[@]}" --ranks 2 -o out/run
    assert_exit 3
    dpbench comm "${short[@]}" --ranks 2 -o fine --csv missing/out.csv
    assert_exit 3
    assert_output 'missing/out.csv'
    refute_output 'Out of bounds'
    [ ! -e fine ]
    dpbench comm "${short[@]}" --ranks 2 -o fine
    assert_exit 0
    dpbench comm "${short[@]}" --ranks 2 -o fine
    assert_exit 2
    assert_output 'already holds a run'
    run bash -c 'ulimit -f 4; "$DPBENCH" comm --sizes 64B --iterations 2000 --ranks 2 -o limit' _
    assert_exit 3
}

@test "comm: refused under a launcher, and where memory is too small, before any work" {
    run env OMPI_COMM_WORLD_SIZE=4 "$DPBENCH" comm "${short[@]}"
    assert_exit 3
    assert_nothing_written
    dpbench comm --sizes 1TiB --ranks 2
    assert_exit 3
    assert_output 'memory: 2 ranks with buffers of 1.* TiB do not fit'
    assert_nothing_written
}

@test "comm: sizes for which there is no memory are recorded as skipped, the rest is measured: exit 3" {
    dpbench_stdout comm --sizes 64B,1TiB,4KiB --iterations 3 --ranks 2 -o out --csv out.csv
    assert_exit 3
    assert_output '^# skipped: memory: 2 ranks with buffers of 1.* TiB do not fit'
    grep -q 'for 1 of the collectives there is no memory' err
    assert_json out/records.jsonl 'sorted((r["size_bytes"], r["status"]) for r in d)' \
        '[[64, "ok"], [4096, "ok"], [1099511627776, "skipped"]]'
    assert_json out/records.jsonl '[r["reason"].split(":")[0] for r in d if r["status"] == "skipped"]' '["memory"]'
    assert_json out/records.jsonl '[k for r in d if r["status"] == "skipped" for k in ("time_ns", "busbw_bytes_per_s") if r.get(k)]' '[]'
    dpbench gate out --baseline out
    assert_exit 5
}

@test "comm: --shuffle measures in another order, which records tell; the table keeps its own" {
    many=(--sizes "64B..8KiB" --iterations 2 --ranks 2 --collective all-reduce,broadcast)
    dpbench comm "${many[@]}" -o given
    assert_exit 0
    assert_json given/records.jsonl '[r["order"] for r in d] == list(range(16))' true
    for n in 1 2 3; do
        dpbench comm "${many[@]}" --shuffle "$((n > 2 ? 1 : n))" -o "out$n"
        assert_exit 0
        assert_output '^# Out of bounds values : 0 OK$'
        assert_json "out$n/records.jsonl" 'sorted(r["order"] for r in d) == list(range(16)) != [r["order"] for r in d]' true
        assert_json "out$n/records.jsonl" '([(r["collective"], r["size_bytes"]) for r in d] ==
            [(c, 64 << i) for c in ("all-reduce", "broadcast") for i in range(8)])' true
    done
    orders() { json "$1/records.jsonl" '[r["order"] for r in d]'; }
    [ "$(orders out1)" = "$(orders out3)" ]
    [ "$(orders out1)" != "$(orders out2)" ]
    dpbench comm --device sim --machine dgx-a100 --shuffle 1
    assert_exit 2
    assert_output 'it is for processes'
}

@test "comm: report says that it is for training runs" {
    dpbench comm "${short[@]}" --ranks 2 -o out
    dpbench report out
    assert_exit 5
    assert_output 'dpb.comm/1'
}

@test "comm --device sim: times of a machine profile, marked, with where they are from; no processes" {
    dpbench_stdout comm --device sim --machine aws-p4d --ranks 8..64:x2 --sizes 25MiB,1GiB --csv out.csv -o out
    assert_exit 0
    assert_output '^# all-reduce, 64 ranks on 8 nodes of machine aws-p4d, in place; SIMULATED, nothing was run$'
    assert_output '^# from: NVIDIA/nccl#527$'
    assert_output '# Avg bus bandwidth .* whose sizes differ: no figure of a machine'
    assert_json out/records.jsonl '{r["simulated"] for r in d} == {True}, len(d)' '[true, 8]'
    # NVIDIA/nccl#527: 57.17 GB/s with 2 nodes, 29.61 with 4
    assert_json out/records.jsonl '[round(r["busbw_bytes_per_s"] / 1e9, 1) for r in d if r["ranks"] in (16, 32) and r["size_bytes"] == 2**30]' '[57.2, 29.6]'
    assert_json out/records.jsonl '[r["origin"] for r in d if r["size_bytes"] == 2**30]' '["measured", "measured", "measured", "extrapolated"]'
    assert_json out/records.jsonl '[r["extrapolated_by"] for r in d if r["size_bytes"] == 2**30 and r["ranks"] == 64]' '[2.0]'
    assert_json out/records.jsonl 'all(r["wrong"] is None and r["samples_ns"] is None and r["algbw_bytes_per_s"] > 0 for r in d)' true
    [ "$(tail -n 1 out.csv | cut -d, -f24-26)" = 'true,"aws-p4d",extrapolated' ]
    # below the smallest size that was measured: no "x41", which would be beyond it
    assert_json out/records.jsonl '[(r["extrapolated_by"], r["extrapolated_below"]) for r in d if r["ranks"] == 16]' '[[null, 40.96], [null, null]]'
    assert_output 'extrapolated /41$'
    assert_output 'extrapolated x2\.0 /41$'
    # 2 nodes with four NICs of 12.5 GB/s: one S/B, and a ring over 16 ranks would send 15/8 of that
    assert_output 'inside +x least +origin$'
    assert_json out/records.jsonl '[round(r["least_time_ns"]) for r in d if r["ranks"] == 16]' '[524288, 21474836]'
    assert_json out/records.jsonl 'all(r["time_ns"]["mean"] > r["least_time_ns"] for r in d)' true
    dpbench comm --device sim --machine aws-p4d --ranks 8 --collective all-gather,broadcast --sizes 1GiB -o half
    assert_exit 0
    assert_json half/records.jsonl '[r["least_time_ns"] and round(r["least_time_ns"]) for r in d]' '[3131747, null]'
}

@test "comm --device sim: what to be careful with is said: busbw above the link, 2 nodes for more" {
    dpbench comm --device sim --machine h200-p5en --sizes 4GiB -o nvls
    assert_exit 0
    assert_output '^# warning: busbw is above the 450 GB/s of the link: .* with NVLink SHARP the switch adds up'
    cat >two.yaml <<'END'
version: 1
name: two
summary: 's'
accelerator: A100-SXM4-80GB
kind: gpu
accelerators-per-node: 8
memory: {value: 80GB, source: s}
memory-rate: {value: 2039GB/s, source: s}
compute.fp32: {value: 19.5TFLOPS, source: s}
inside.rate: {value: 300GB/s, source: s}
between.nics: {value: 8, source: s}
between.rate: {value: 200Gbps, source: s}
curves:
  - {collective: all-reduce, ranks: 16, nodes: 2, source: 'our run', points: [[1MiB, 200us], [1GiB, 15ms]]}
END
    dpbench comm --device sim --machine ./two.yaml --ranks 16,64 --sizes 1GiB -o two
    assert_exit 0
    assert_output '^# warning: measured with 2 nodes, used for more'
    assert_json two/records.jsonl '[len(r["warnings"]) for r in d if r["ranks"] == 16]' '[0]'
    dpbench comm --device sim --machine ./two.yaml --ranks 65536 --collective all-gather --sizes 1GiB -o many
    assert_exit 0
    assert_output '# all-gather, 65536 ranks on 8192 nodes'
}

@test "comm --device sim: --set replaces figures of the machine" {
    sizes=(--device sim --machine dgx-h100 --ranks 8 --collective broadcast --sizes 1GiB)
    dpbench comm "${sizes[@]}" -o a && dpbench comm "${sizes[@]}" --set inside.rate=10GB/s -o b
    assert_exit 0
    slower=$(cat a/records.jsonl b/records.jsonl |
        python3 -c 'import json, sys; a, b = (json.loads(l)["time_ns"]["mean"] for l in sys.stdin); print(b > a)')
    [ "$slower" = True ]
    refute_output 'changes nothing'
    # a curve was measured for these, and the memory has no part in any
    dpbench comm --device sim --machine dgx-a100 --ranks 8 --sizes 1MiB,1GiB -o e \
        --set inside.rate=900GB/s,memory-rate=1TB/s
    assert_exit 0
    [ "$(grep -c 'warning: --set inside.rate=900GB/s changes nothing here: times are of a measured curve, from' <<<"$output")" -eq 1 ]
    assert_output 'warning: --set memory-rate=1TB/s changes nothing here'
    assert_json e/records.jsonl '[len(r["warnings"]) for r in d]' '[2, 2]'
    # figures without which there would be no link
    dpbench comm --device sim --machine mi300x --ranks 16 --sizes 1MiB -o f \
        --set between.nics=8,between.rate=400Gbps
    assert_exit 0
    refute_output 'no link|changes nothing'
    dpbench comm "${sizes[@]}" --set inside.latency -o c
    assert_exit 2
    assert_output '"inside.latency" is not figure=value'
}

@test "comm --device sim: no machine, no link, options of real ranks: exit 2, nothing written" {
    dpbench comm --device sim
    assert_usage_error
    assert_output 'needs a machine'
    dpbench comm --device sim --machine dgx-a10
    assert_usage_error
    assert_output 'did you mean dgx-a100'
    dpbench comm --device sim --machine mi300x --ranks 8,16
    assert_usage_error
    assert_output '16 ranks are on 2 nodes, and it has no link between nodes'
    dpbench comm --device sim --machine dgx-a100 --iterations 5
    assert_usage_error
    assert_output 'it is for processes'
    dpbench comm --device sim --machine dgx-a100 --comm shm
    assert_usage_error
    dpbench comm --machine dgx-a100
    assert_usage_error
    dpbench comm --comm sim
    assert_usage_error
    dpbench comm --ranks 65
    assert_usage_error
    assert_output 'at most 64'
}

@test "comm --help: device sim is there once, with the options that collectives heed" {
    dpbench comm --help
    assert_exit 0
    [ "$(grep -c -- '--machine TEXT' <<<"$output")" -eq 1 ]
    refute_output 'sim,[[:space:]]+sim'
    refute_output '--noise-rank'
    dpbench comm --device sim --machine dgx-a100 --slow-by 10%
    assert_usage_error
}
