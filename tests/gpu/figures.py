#!/usr/bin/env python3
"""Figures of tests/gpu/check.sh, read from what its parts left behind. One subcommand per part:

  losses CPU CUDA           do two runs' losses agree? one line; exit 1 when they do not
  step RUN [--ceiling F]    time of a step, samples, TFLOP/s, share of the ceiling, energy: one line
  torch FILE RUN            the same of PyTorch's output, and the ratio to dpbench's run
  ceiling FILE              the best product of each type: lines "what<TAB>result"
  trace RUN                 kernels' share of a step, cost of tracing: lines "what<TAB>result<TAB>verdict"
  overlap RUN               step time and exposed communication of each cell: lines "what<TAB>result"
  --self-test               check the arithmetic on made-up records

RUN is a folder that `dpbench run -o` wrote into. A figure that does not exist is not printed.
"""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

# The CPU sums in another order and fp32 has 24 bits: losses of the first steps agree to some digits.
# Later ones drift apart, each step by more.
LOSS_LIMIT = 2e-3
# Under autocast both sides round to bf16 in different places.
TORCH_LOSS_LIMIT = 5e-2
# A record with lost or unmatched events has no shares.
OVERHEAD_LIMIT = 1.25


class Bad(Exception):
    """What makes a part fail, in one line."""


def records(run):
    found = glob.glob(os.path.join(run, "**", "records.jsonl"), recursive=True)
    if len(found) != 1:
        raise Bad(f"{len(found)} records.jsonl under {run}")
    with open(found[0], encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def record(run):
    every = records(run)
    if len(every) != 1 or every[0]["status"] != "ok":
        raise Bad(f"{run}: {every[0]['status'] if every else 'no record'}: "
                  f"{every[0].get('reason') if every else ''}")
    return every[0]


def curve(run):
    return record(run)["training"]["loss_curve"]["loss"]


def losses(cpu, cuda):
    one, other = curve(cpu), curve(cuda)
    if len(one) != len(other) or not one:
        raise Bad(f"{len(one)} losses on the CPU, {len(other)} on the GPU")
    worst = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(one, other))
    text = f"{len(one)} steps, largest difference {worst:.1e} (limit {LOSS_LIMIT:.0e})"
    if not worst <= LOSS_LIMIT:  # also when it is no number
        raise Bad(text + f": {one[:3]} on the CPU, {other[:3]} on the GPU")
    return [text]


def flops_per_sample(workload, program):
    """Of a training step: three times the forward pass."""
    if not program or not os.path.exists(program):
        return None
    text = subprocess.run([program, "list", "workloads", "--json"], capture_output=True, text=True,
                          check=True).stdout
    return next((w["train_flops_per_sample"] for w in json.loads(text) if w["name"] == workload),
                None)


def best_product(path, dtype):
    if not path or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        found = [json.loads(line) for line in file if line.startswith("{")]
    return max((one["tflops"] for one in found if one["dtype"] == dtype), default=None)


def step(run, ceiling=None, program=None):
    one = record(run)
    median_ns = statistics.median(one["samples_step_ns"])
    samples = one["global_batch"]
    text = [f"{median_ns * 1e-6:.2f} ms", f"{samples / median_ns * 1e9:.0f} samples/s"]
    flops = flops_per_sample(one["config"]["workload"], program)
    if flops:
        tflops = flops * samples / median_ns * 1e-3
        best = best_product(ceiling, one["config"]["precision"])
        text.append(f"{tflops:.3g} TFLOP/s" + (f" ({tflops / best:.0%} of {best:.0f})" if best else ""))
    energy = one.get("energy") or {}
    if energy.get("energy_per_sample_j") is not None:
        text.append(f"{energy['energy_per_sample_j']:.3g} J/sample")
    if energy.get("throttled"):
        text.append("THROTTLED")
    data_ns = (one.get("phases") or {}).get("data_ns")
    if data_ns:
        text.append(f"waits {data_ns / median_ns:.0%} for data")
    return [", ".join(text)]


def torch(path, run):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    median_ns = statistics.median(line["step_ns"] for line in lines if "step_ns" in line)
    text = f"{median_ns * 1e-6:.2f} ms"
    try:
        one = record(run)
    except Bad:
        return [text + ", nothing to compare with"]
    mine, theirs = one["training"]["loss_curve"]["loss"][0], lines[0]["first_loss"]
    if not abs(mine - theirs) <= TORCH_LOSS_LIMIT * abs(theirs):
        raise Bad(f"{text}; other losses in the first step: dpbench {mine:.5g}, PyTorch {theirs:.5g}")
    ratio = median_ns / statistics.median(one["samples_step_ns"])
    return [f"{text}, PyTorch / dpbench {ratio:.2f}, first losses {theirs:.4f} and {mine:.4f}"]


def ceiling(path):
    found = []
    for dtype in ("bf16", "fp16", "fp32"):
        best = best_product(path, dtype)
        if best:
            found.append(f"{dtype}\t{best:.1f} TFLOP/s")
    if not found:
        raise Bad(f"{path} has no product")
    return found


def trace(run):
    one = record(run)
    span, overlap = one["trace"], one["overlap"]
    lost, ratio = span.get("lost") or 0, span.get("overhead_ratio")
    found = [f"lost events\t{lost}\t{'ok' if lost == 0 else 'FAILED'}"]
    if ratio is not None:
        found.append(f"traced / timed step\t{ratio:.3f}\t{'ok' if ratio <= OVERHEAD_LIMIT else 'FAILED'}")
    if not overlap or not overlap.get("span_ns"):
        found.append(f"kernels\tno figure: {one.get('overlap_reason')}\tFAILED")
    else:
        share = overlap["compute_ns"] / overlap["span_ns"]
        found.append(f"kernels' share of a step\t{share:.1%}\t{'ok' if 0 < share <= 1 else 'FAILED'}")
        found.append(f"idle share of a step\t{overlap['idle_ns'] / overlap['span_ns']:.1%}\t-")
    return found


def overlap(run):
    found = []
    for one in records(run):
        what = f"{one['ranks']} ranks, overlap {'on' if one['config'].get('overlap') else 'off'}"
        if one["status"] != "ok":
            raise Bad(f"{what}: {one['status']}: {one['reason']}")
        text = f"{statistics.median(one['samples_step_ns']) * 1e-6:.2f} ms"
        share = one.get("overlap")
        if share and share.get("comm_ns"):
            text += f", {share['overlap_ns'] / share['comm_ns']:.0%} of communication hidden"
        found.append(f"{what}\t{text}")
    return found


def self_test():
    base = {"status": "ok", "reason": None, "global_batch": 10, "ranks": 1,
            "samples_step_ns": [2_000_000, 1_000_000, 3_000_000],
            "config": {"workload": "w", "precision": "bf16", "overlap": True},
            "training": {"loss_curve": {"loss": [2.0, 1.0]}}, "phases": {"data_ns": 0},
            "energy": {"energy_per_sample_j": 0.5, "throttled": False},
            "trace": {"lost": 0, "overhead_ratio": 1.1},
            "overlap": {"span_ns": 10, "compute_ns": 9, "idle_ns": 1, "comm_ns": 4, "overlap_ns": 3}}

    def run(folder, name, **changes):
        os.makedirs(os.path.join(folder, name, "deep"))
        with open(os.path.join(folder, name, "deep", "records.jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps({**base, **changes}) + "\n")
        return os.path.join(folder, name)

    def fails(call, *args):
        try:
            call(*args)
        except Bad as error:
            return str(error)
        raise AssertionError("nothing failed")

    def loss(*values):
        return {"training": {"loss_curve": {"loss": list(values)}}}

    with tempfile.TemporaryDirectory() as folder:
        one = run(folder, "one")
        assert losses(one, run(folder, "near", **loss(2.001, 1.0)))[0].startswith("2 steps, largest")
        fails(losses, one, run(folder, "far", **loss(2.1, 1.0)))
        fails(losses, one, run(folder, "nan", **loss(float("nan"), 1.0)))
        fails(losses, one, run(folder, "short", **loss(2.0)))
        fails(losses, one, run(folder, "failed", status="failed", reason="x"))
        fails(losses, one, os.path.join(folder, "nowhere"))
        assert step(one) == ["2.00 ms, 5000 samples/s, 0.5 J/sample"], step(one)
        held = run(folder, "held", energy={"energy_per_sample_j": None, "throttled": True})
        assert step(held) == ["2.00 ms, 5000 samples/s, THROTTLED"], step(held)
        products = os.path.join(folder, "products")
        with open(products, "w", encoding="utf-8") as file:
            file.write('{"dtype": "bf16", "size": 1, "tflops": 5}\nSKIP\n'
                       '{"dtype": "bf16", "size": 2, "tflops": 7}\n')
        assert ceiling(products) == ["bf16\t7.0 TFLOP/s"]
        program = os.path.join(folder, "program")
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho '[{\"name\": \"w\", \"train_flops_per_sample\": 700000000}]'\n")
        os.chmod(program, 0o755)
        # 10 samples of 0.7 GFLOP in 2 ms: 3.5 TFLOP/s, half of the ceiling
        assert ", 3.5 TFLOP/s (50% of 7)" in step(one, products, program)[0], step(one, products, program)
        fails(ceiling, os.path.join(folder, "none"))
        theirs = os.path.join(folder, "torch")
        with open(theirs, "w", encoding="utf-8") as file:
            file.write('{"first_loss": 2.01}\n{"step_ns": 4000000}\n{"peak_bytes": 1}\n')
        assert torch(theirs, one) == ["4.00 ms, PyTorch / dpbench 2.00, first losses 2.0100 and 2.0000"]
        fails(torch, theirs, run(folder, "other", **loss(3.0)))
        assert trace(one) == ["lost events\t0\tok", "traced / timed step\t1.100\tok",
                              "kernels' share of a step\t90.0%\tok", "idle share of a step\t10.0%\t-"]
        bad = trace(run(folder, "lost", trace={"lost": 3, "overhead_ratio": 2.0}, overlap=None,
                        overlap_reason="lost"))
        assert [line.rsplit("\t", 1)[1] for line in bad] == ["FAILED"] * 3, bad
        assert overlap(one) == ["1 ranks, overlap on\t2.00 ms, 75% of communication hidden"]
    print("self-test: ok")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    options = {"--ceiling": None, "--program": None}
    while len(words) > 2 and words[-2] in options:
        options[words[-2]] = words[-1]
        words = words[:-2]
    commands = {"losses": (losses, 2), "step": (step, 1), "torch": (torch, 2), "ceiling": (ceiling, 1),
                "trace": (trace, 1), "overlap": (overlap, 1)}
    if not words or words[0] not in commands or len(words) - 1 != commands[words[0]][1]:
        print(__doc__)
        return 2
    function, arguments = commands[words[0]][0], words[1:]
    if function is step:
        arguments += [options["--ceiling"], options["--program"]]
    try:
        print("\n".join(function(*arguments)))
    except (Bad, OSError, KeyError, ValueError, TypeError) as error:
        print(f"{type(error).__name__}: {error}" if not isinstance(error, Bad) else error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
