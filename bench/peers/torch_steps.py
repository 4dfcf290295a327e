"""What the PyTorch sides of bench/peers/compare share: options, the timed loop, their output.

Output, JSON lines: what ran, then a line per timed step, then the peak of resident memory.
"""
import argparse
import json
import resource
import time

import torch


def options(**extra):
    parser = argparse.ArgumentParser()
    for name, kind in {"batch": int, "steps": int, "warmup": int, "lr": float,
                       "weight-decay": float, **extra}.items():
        parser.add_argument("--" + name, type=kind, required=True)
    return parser.parse_args()


def optimizer(kind, parameters, **settings):
    """In one kernel where this PyTorch has that for the CPU: the faster one."""
    try:
        return kind(parameters, fused=True, **settings), True
    except (RuntimeError, TypeError):
        return kind(parameters, **settings), False


def run(args, parameters, update, fused, loss_of):
    """A step: forward pass and loss, backward pass, optimizer. Its batch is there already."""
    torch.set_num_threads(1)
    found = []
    for step in range(args.warmup + args.steps):
        start = time.perf_counter_ns()
        update.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        update.step()
        value = loss.item()
        if step >= args.warmup:
            found.append({"step": step, "step_ns": time.perf_counter_ns() - start, "loss": value})
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(),
                      "fused_optimizer": fused,
                      "parameters": sum(p.numel() for p in parameters)}))
    for line in found:
        print(json.dumps(line))
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_bytes": 1024 * peak_kib}))
