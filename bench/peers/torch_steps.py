"""What the PyTorch sides of bench/peers/compare share: options, the start, the timed loop, output.

Output, JSON lines: what ran, the loss of the very first step, a line per timed step, then the peak
of resident memory; with --device cuda, of the GPU's memory.
"""
import argparse
import json
import resource
import time

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def options(choices=None, **extra):
    parser = argparse.ArgumentParser()
    for name, kind in {"batch": int, "steps": int, "warmup": int, "lr": float,
                       "weight-decay": float, "start": str, **extra}.items():
        parser.add_argument("--" + name, type=kind, required=True)
    for name, values in (choices or {}).items():  # the first one is the default
        parser.add_argument("--" + name, choices=values, default=values[0])
    parser.add_argument("--precision", choices=TYPES, default="fp32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--meet", help="a file that does not exist, where ranks find each other")
    args = parser.parse_args()
    if args.device == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False  # nor does dpbench's fp32
    else:
        torch.set_num_threads(1)
    return args


class Start:
    """What peer_start.c has written: dpbench's initial parameters and its first global batch."""

    KINDS = {"float32": torch.float32, "int32": torch.int32}

    def __init__(self, args):
        self.first, self.count, self.device = args.rank * args.batch, args.batch, args.device
        self.path, self.arrays = args.start, {}
        with open(self.path, "rb") as file:
            header = json.loads(file.readline())
            self.parameters, at = header["parameters"], file.tell()
        for array in self.parameters + header["batch"]:
            self.arrays[array["name"]] = (at, array)
            at += 4 * array["numel"]

    def read(self, name):
        at, array = self.arrays[name]
        with open(self.path, "rb") as file:
            file.seek(at)
            data = bytearray(file.read(4 * array["numel"]))
        return torch.frombuffer(data, dtype=self.KINDS[array["dtype"]]).view(array["shape"])

    def batch(self, name):
        """This rank's part of an array of the batch, where the network is."""
        return self.read(name)[self.first:self.first + self.count].clone().to(self.device)

    def set(self, parameters):
        """dpbench registers parameters in PyTorch's order."""
        if len(parameters) != len(self.parameters):
            raise ValueError(f"{len(parameters)} parameters, dpbench has {len(self.parameters)}")
        for mine, theirs in zip(parameters, self.parameters):
            if list(mine.shape) != theirs["shape"]:
                raise ValueError(f"{theirs['name']} is {theirs['shape']}, here {mine.shape}")
            with torch.no_grad():
                mine.copy_(self.read(theirs["name"]))


def distribute(args, network):
    """With several ranks, gradients are averaged over them; statistics stay local, as dpbench's."""
    if args.ranks == 1:
        return network
    torch.distributed.init_process_group("gloo", init_method="file://" + args.meet,
                                         rank=args.rank, world_size=args.ranks)
    return torch.nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True,
                                                     broadcast_buffers=False)


def optimizer(kind, parameters, **settings):
    """In one kernel where this PyTorch has that for the CPU: the faster one."""
    try:
        return kind(parameters, fused=True, **settings), True
    except (RuntimeError, TypeError):
        return kind(parameters, **settings), False


def run(args, parameters, update, fused, loss_of):
    """A step: forward pass and loss, backward pass, optimizer. Its batch is there already."""
    found, first_loss = [], None
    scaler = torch.cuda.amp.GradScaler(enabled=args.precision == "fp16")
    for step in range(args.warmup + args.steps):
        start = time.perf_counter_ns()
        update.zero_grad(set_to_none=True)
        with torch.autocast(args.device, TYPES[args.precision] if args.precision != "fp32" else None,
                            enabled=args.precision != "fp32"):
            loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        value = loss.item()  # waits for the device, as dpbench does at the end of a step
        if args.device == "cuda":
            torch.cuda.synchronize()
        first_loss = value if first_loss is None else first_loss
        if step >= args.warmup:
            found.append({"step": step, "step_ns": time.perf_counter_ns() - start, "loss": value})
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(),
                      "fused_optimizer": fused, "first_loss": first_loss,
                      "parameters": sum(p.numel() for p in parameters)}))
    for line in found:
        print(json.dumps(line))
    if args.device == "cuda":
        peak_bytes = torch.cuda.max_memory_reserved()
    else:
        peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak_bytes": peak_bytes}))
    if args.ranks > 1:
        torch.distributed.destroy_process_group()
